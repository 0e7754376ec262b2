// save_format hf: what all ranks write together is what ckpt-convert makes of a checkpoint of the
// run.
#include <map>
#include <ostream>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "converters/verbs/convert.h"
#include "core/io/posix_storage.h"
#include "core/manifest/manifest.h"
#include "core/manifest/read_manifest.h"
#include "core/manifest/verify_manifest.h"
#include "formats/registry/registry.h"
#include "tests/testing/fault_storage.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/trainer/run/small_session.h"

namespace ckpt::train {
namespace {

using ::testing::IsEmpty;
using testing::IsOk;
using testing::SaveState;
using testing::SmallSessions;
using testing::With;

struct MeshCase {
  const char* name;
  const char* model;  // a published one
  int ranks;
  layout::Configuration settings = {};
};
void PrintTo(const MeshCase& c, std::ostream* os) { *os << c.name; }

class SaveWeightsTest : public ::testing::TestWithParam<MeshCase> {
 protected:
  [[nodiscard]] Path Model() const {
    return testing::GoldenDir() / "hf" / GetParam().model / "ckpt";
  }
  [[nodiscard]] layout::Configuration Settings(const Path& save) const {
    return With(GetParam().settings, {{"init", "hf:" + Model().string()},
                                      {"seq_length", 4},
                                      {"global_batch_size", 4},
                                      {"train_iters", 3},
                                      {"save", save.string()}});
  }

  // Saves state 9 as iteration 1, and gives its directory.
  static Result<Path> Save(const layout::Configuration& settings, int ranks) {
    CKPT_ASSIGN_OR_RETURN(SmallSessions sessions,
                          SmallSessions::Create(PosixStorage(), settings, ranks));
    const Status saved = sessions.Run([](RankSession& session, trainer::HostGroup&) -> Status {
      CKPT_RETURN_IF_ERROR(session.Start().status());
      CKPT_RETURN_IF_ERROR(SaveState(session, 9, 1));
      return session.checkpoints().Finish();
    });
    CKPT_RETURN_IF_ERROR(saved);
    return Path(*settings.at("save").AsText()) / "iter_0000001";
  }

  // Every file but our manifest, by its name.
  static std::map<std::string, std::string> ReadAll(const Path& directory) {
    std::map<std::string, std::string> contents;
    const auto names = ListRecursively(PosixStorage(), directory);
    for (const std::string& name : names.value()) {
      if (name == kManifestName) continue;
      contents[name] = ReadSmallFile(PosixStorage(), directory / name, 64 << 20).value();
    }
    return contents;
  }

  const testing::TempDir directory_;
};

TEST_P(SaveWeightsTest, LeavesTheRepositoryThatAConversionOfTheRunGives) {
  const auto whole = Save(Settings(directory_.path() / "whole"), GetParam().ranks);
  ASSERT_THAT(whole, IsOk());
  ConvertOptions options;
  options.source = *whole;
  options.target = directory_.path() / "converted";
  options.to.container = *FindFormat("hf");
  const auto prepared = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(prepared, IsOk());
  ASSERT_THAT(RunConversion(PosixStorage(), *prepared, options), IsOk());

  const auto weights = Save(With(Settings(directory_.path() / "weights"), {{"save_format", "hf"}}),
                            GetParam().ranks);
  ASSERT_THAT(weights, IsOk());
  const auto expected = ReadAll(options.target);
  const auto actual = ReadAll(*weights);
  EXPECT_TRUE(expected.contains("config.json"));
  for (const auto& [name, content] : expected) {
    ASSERT_TRUE(actual.contains(name)) << name;
    EXPECT_TRUE(actual.at(name) == content) << name;
  }
  EXPECT_EQ(actual.size(), expected.size());

  // The manifest joins what the ranks told of the files that they filled together.
  const auto manifest = ReadManifest(PosixStorage(), *weights);
  ASSERT_THAT(manifest, IsOk());
  ASSERT_NE(*manifest, nullptr);
  EXPECT_EQ((*manifest)->files.size(), actual.size());
  const auto problems = VerifyManifest(PosixStorage(), *weights, **manifest, KnownRunRoot());
  ASSERT_THAT(problems, IsOk());
  EXPECT_THAT(*problems, IsEmpty());
  const auto converted = ReadManifest(PosixStorage(), options.target);
  ASSERT_THAT(converted, IsOk());
  EXPECT_EQ((*manifest)->files, (*converted)->files);
  EXPECT_EQ((*manifest)->origin->format, (*converted)->origin->format);
  EXPECT_EQ((*manifest)->origin->choices, (*converted)->origin->choices);
  for (const ManifestTensor& tensor : (*manifest)->tensors) {
    EXPECT_THAT((*converted)->tensors, ::testing::Contains(tensor));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, SaveWeightsTest,
    ::testing::Values(
        MeshCase{"Dense1", "llama-untied-bf16", 1}, MeshCase{"Dense2", "llama-untied-bf16", 2},
        MeshCase{"Dense4", "llama-untied-bf16", 4}, MeshCase{"Tied4", "llama-tied-fp32", 4},
        MeshCase{"Biased4", "qwen2-bf16", 4},
        MeshCase{"Replicas4", "qwen3-tied-bf16", 4, {{"num_distributed_optimizer_instances", 2}}},
        MeshCase{"Experts1", "qwen3moe-norm-bf16", 1},
        MeshCase{"Experts2", "qwen3moe-norm-bf16", 2, {{"expert_model_parallel_size", 2}}},
        MeshCase{"Experts4", "qwen3moe-step-bf16", 4, {{"expert_model_parallel_size", 2}}},
        MeshCase{"LocalNames2", "llama-untied-bf16", 2, {{"transformer_impl", "local"}}}),
    [](const auto& test) { return std::string(test.param.name); });

class SaveWeightsFaults : public SaveWeightsTest {};

TEST_P(SaveWeightsFaults, OfAnyRankLeaveNothing) {
  for (const int broken_rank : {0, 1}) {
    bool was_saved = false;
    for (int call = 0; !was_saved; call += 3) {
      const Path save = directory_.path() / ("run-" + std::to_string(broken_rank));
      ASSERT_THAT(PosixStorage().RemoveAll(save), IsOk());
      auto sessions = SmallSessions::Create(
          PosixStorage(), With(Settings(save), {{"save_format", "hf"}}), GetParam().ranks);
      ASSERT_THAT(sessions, IsOk());
      testing::FaultStorage broken(PosixStorage(), call);
      sessions->storage_of = [&](int rank) -> Storage& {
        return rank == broken_rank ? static_cast<Storage&>(broken) : PosixStorage();
      };
      const Status saved = sessions->Run([&](RankSession& session, trainer::HostGroup&) -> Status {
        CKPT_RETURN_IF_ERROR(session.Start().status());
        CKPT_RETURN_IF_ERROR(SaveState(session, 9, 1));
        return session.checkpoints().Finish();
      });
      was_saved = saved.ok();
      if (was_saved) {
        EXPECT_GT(call, 6);
        break;
      }
      const auto manifest = ReadManifest(PosixStorage(), save / "iter_0000001");
      if (manifest.ok() && *manifest != nullptr) {
        // Published, and then the tracker could not be written.
        const auto problems =
            VerifyManifest(PosixStorage(), save / "iter_0000001", **manifest, KnownRunRoot());
        ASSERT_THAT(problems, IsOk());
        EXPECT_THAT(*problems, IsEmpty()) << "call " << call;
      } else {
        const auto stat = PosixStorage().Stat(save / "iter_0000001");
        ASSERT_THAT(stat, IsOk());
        EXPECT_EQ(stat->type, FileType::kMissing) << "call " << call;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, SaveWeightsFaults,
                         ::testing::Values(MeshCase{"Dense2", "llama-untied-bf16", 2}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(CheckpointSettingsTest, NothingIsComputedToProveWeightsAlone) {
  for (const auto& [format, proves] : {std::pair{"fsdp_dtensor", true}, std::pair{"hf", false}}) {
    const layout::Configuration settings = {{"save_format", format}};
    trainer::SettingsReader reader(settings);
    EXPECT_EQ(ReadCheckpointSettings(reader).save_proof, proves) << format;
  }
}

}  // namespace
}  // namespace ckpt::train
