// Conversions of training runs, and what two of them have in common.
#ifndef CKPT_TESTS_CONVERTERS_VERBS_CONVERT_RUN_FIXTURE_H_
#define CKPT_TESTS_CONVERTERS_VERBS_CONVERT_RUN_FIXTURE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "converters/verbs/training_state.h"
#include "core/checkpoint/digest.h"
#include "formats/registry/registry.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt::testing {

class ConvertRunTest : public ConvertTest {
 protected:
  static Path RunOf(const std::string& format, const std::string& name) {
    return GoldenDir() / format / name / "ckpt";
  }
  [[nodiscard]] ConvertOptions ToTorchDist(const Path& source) const {
    ConvertOptions options = Between("fsdp_dtensor", "torch_dist", source, "torch_dist");
    options.overwrite = true;
    return options;
  }
  [[nodiscard]] ConvertOptions ToFsdpRun(const Path& source) const {
    ConvertOptions options = Between("torch_dist", "fsdp_dtensor", source, "fsdp");
    options.overwrite = true;
    return options;
  }

  // Key → digest of every tensor that begins with one of `prefixes`.
  static std::map<std::string, std::string> Tensors(const Path& path,
                                                    const std::vector<std::string>& prefixes) {
    std::map<std::string, std::string> digests;
    const auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    if (!opened.ok()) return digests;
    for (const GlobalTensor& tensor : opened->source->index().tensors()) {
      const bool is_wanted = std::ranges::any_of(
          prefixes, [&](const std::string& prefix) { return tensor.key.starts_with(prefix); });
      if (!is_wanted) continue;
      const auto digest =
          DigestTensor(*opened->source, tensor, HashAlgorithm::kSha256, std::uint64_t{1} << 20);
      EXPECT_THAT(digest, IsOk());
      digests[tensor.key] =
          std::string(DTypeName(tensor.dtype)) + FormatDims(tensor.shape) + digest.value();
    }
    return digests;
  }

  // Key → value of every object. `_extra_state` of Transformer Engine holds nothing, and is there
  // for Megatron's loader alone.
  static std::map<std::string, std::string> Objects(const Path& path) {
    std::map<std::string, std::string> texts;
    const auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    if (!opened.ok()) return texts;
    for (const ObjectEntry& object : opened->source->index().objects()) {
      if (object.key.find("_extra_state") != std::string::npos) continue;
      const auto text = opened->source->ReadObject(object);
      EXPECT_THAT(text, IsOk());
      if (text.ok()) texts[object.key] = text->json;
    }
    return texts;
  }

  static TrainingState WholeState(const Path& path) {
    auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    auto state = UnderstandTrainingState(
        PosixStorage(), std::make_shared<const OpenedCheckpoint>(std::move(opened).value()), {},
        RunDetail::kWhole);
    EXPECT_THAT(state, IsOk());
    return state.ok() ? std::move(state).value() : TrainingState();
  }

  // What no format takes from another one: random states, arguments that are no plain values.
  static void ExpectNoPartOfTheStateDropped(const ConvertReport& report) {
    for (const LeftOutEntry& entry : report.dropped) {
      EXPECT_THAT(entry.key, ::testing::AnyOf(::testing::StartsWith("rng_state"),
                                              ::testing::StartsWith("args."),
                                              ::testing::StartsWith("rerun_state_machine")));
    }
  }

  // What both formats store of a run, and the order of groups apart.
  static void ExpectSameRun(const TrainingRun& expected, const TrainingRun& actual) {
    EXPECT_EQ(actual.iteration, expected.iteration);
    EXPECT_EQ(actual.consumed_samples, expected.consumed_samples);
    EXPECT_EQ(actual.num_floating_point_operations, expected.num_floating_point_operations);
    EXPECT_EQ(actual.schedule, expected.schedule);
    EXPECT_EQ(actual.seed, expected.seed);
    EXPECT_THAT(actual.groups, ::testing::UnorderedElementsAreArray(expected.groups));
  }

  // The weight decay of every parameter, whatever group it is in.
  static void ExpectSameDecay(const TrainingRun& expected, const TrainingRun& actual) {
    const auto decay_in = [](const TrainingRun& run) {
      std::map<std::string, double> decay;
      for (const auto& [weight, group] : run.group_of) {
        decay[weight] = run.groups[group].weight_decay;
      }
      return decay;
    };
    EXPECT_EQ(decay_in(actual), decay_in(expected));
  }
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_CONVERTERS_VERBS_CONVERT_RUN_FIXTURE_H_
