// Training runs whose optimizers are stored in the forms that Megatron-Core has.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "formats/registry/registry.h"
#include "tests/converters/verbs/convert_run_fixture.h"

namespace ckpt {
namespace {

using ::testing::AllOf;
using testing::ConvertRunTest;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

// The form of Megatron-Core up to 0.15: the same tensors, flattened, of any number of files.
TEST_F(ConvertRunTest, GoesToAnOlderFormAndBackUnchanged) {
  const std::vector<std::string> all = {"model.module.", "optimizer.state."};
  for (const char* name : {"dense_fsdp2", "moe_ep2_fsdp4"}) {
    // Of experts that are one parameter it is not written: here each has its own.
    const std::string experts = "sequential";
    const Path source = dir_.path() / "apart";
    ConvertOptions apart =
        Between("fsdp_dtensor", "fsdp_dtensor", RunOf("fsdp_dtensor", name), "apart");
    apart.overwrite = true;
    apart.to.choices["expert_names"] = experts;
    ASSERT_THAT(Convert(apart), IsOk());
    ConvertOptions there = ToTorchDist(source);
    there.to.forms["optimizer-form"] = "fully_sharded_model_space";
    for (const int files : {0, 3}) {
      for (const std::optional<int> level : {std::optional<int>(), std::optional(3)}) {
        SCOPED_TRACE(fmt::format("{}, {} files, {}", name, files, level ? "zstd" : "plain"));
        there.files = files;
        there.zstd_level = level;
        const auto report = Convert(there);
        ASSERT_THAT(report, IsOk());
        EXPECT_EQ(report->target_digest, report->source_digest);
        ConvertOptions back = ToFsdpRun(there.target);
        back.to.choices["expert_names"] = experts;
        ASSERT_THAT(Convert(back), IsOk());
        EXPECT_EQ(Tensors(back.target, all), Tensors(source, all));
        ExpectSameRun(WholeState(source).run, WholeState(there.target).run);
      }
    }
    // The same as the usual form, by other keys of the exact weights.
    ConvertOptions usual = there;
    usual.to.forms.clear();
    usual.target = dir_.path() / "usual";
    ASSERT_THAT(Convert(usual), IsOk());
    const std::vector<std::string> moments = {"optimizer.state.exp_avg"};
    EXPECT_EQ(Tensors(there.target, moments), Tensors(usual.target, moments));
    const auto values = [](const std::map<std::string, std::string>& tensors) {
      std::vector<std::string> digests;
      for (const auto& [key, digest] : tensors) digests.push_back(digest);
      return digests;
    };
    EXPECT_EQ(values(Tensors(there.target, {"optimizer.state.fp32_param."})),
              values(Tensors(usual.target, {"optimizer.state.param."})));
  }
}

// Megatron-Core up to 0.15 flattens what it keeps of such experts in another order than weights.
TEST_F(ConvertRunTest, AnOlderFormIsNotWrittenOfExpertsThatAreOneParameter) {
  ConvertOptions there = ToTorchDist(RunOf("fsdp_dtensor", "moe_ep2_fsdp4"));
  there.to.forms["optimizer-form"] = "fully_sharded_model_space";
  const auto report = Convert(there);
  ASSERT_THAT(report, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(report.status().first().actual, HasSubstr("moe_grouped_gemm"));
}

// Megatron's default form: the buffers of the ranks that the run had, and however weights are cut.
TEST_F(ConvertRunTest, GoesToBuffersAndBackUnchanged) {
  const std::vector<std::string> all = {"decoder.", "embedding.", "output_layer.", "optimizer."};
  for (const std::string& name : testing::GoldenCases(
           "torch_dist",
           {"opt_dp_reshardable_dp1_core016", "opt_dp_reshardable_dp2_core019",
            "opt_dp_reshardable_tp2dp2_core016", "opt_fully_reshardable_dp1_core016",
            "opt_fully_reshardable_tp2dp2_core016", "opt_fully_reshardable_pp2dp2_core019"})) {
    SCOPED_TRACE(name);
    const Path source = RunOf("torch_dist", name);
    ConvertOptions usual = Between("torch_dist", "torch_dist", source, "usual");
    usual.to.choices["transformer_impl"] = "local";
    usual.overwrite = true;
    ASSERT_THAT(Convert(usual), IsOk());
    for (const std::uint64_t shard_bytes : {0U, 3000U}) {
      ConvertOptions there = usual;
      there.target = dir_.path() / "buffers";
      there.to.forms["optimizer-form"] = "dp_reshardable";
      there.max_shard_bytes = shard_bytes;
      if (shard_bytes > 0) there.zstd_level = 3;
      const auto report = Convert(there);
      ASSERT_THAT(report, IsOk());
      EXPECT_EQ(report->target_digest, report->source_digest);
      EXPECT_TRUE(Tensors(there.target, {"optimizer.state."}).empty());
      ConvertOptions back = usual;
      back.source = there.target;
      back.target = dir_.path() / "back";
      ASSERT_THAT(Convert(back), IsOk());
      EXPECT_EQ(Tensors(back.target, all), Tensors(usual.target, all));
      ExpectSameRun(WholeState(source).run, WholeState(there.target).run);
    }
  }
}

// Which keys, of which shapes, and what is stored beside buffers.
TEST_F(ConvertRunTest, HasTheBuffersOfTheRun) {
  const auto described = [](const Path& path) {
    std::map<std::string, std::string> keys;
    const auto opened = OpenCheckpoint(PosixStorage(), path);
    EXPECT_THAT(opened, IsOk());
    if (!opened.ok()) return keys;
    const CheckpointIndex& index = opened->source->index();
    for (const GlobalTensor& tensor : index.tensors()) {
      std::string& text = keys[tensor.key];
      text = fmt::format("{} {}", DTypeName(tensor.dtype), FormatDims(tensor.shape));
      if (!tensor.key.starts_with("optimizer.")) continue;
      std::vector<std::string> boxes;
      for (const Chunk& chunk : index.chunks(tensor)) boxes.push_back(FormatBox(index.box(chunk)));
      std::ranges::sort(boxes);
      for (const std::string& box : boxes) text += box;
    }
    for (const ObjectEntry& object : index.objects()) {
      std::string& text = keys[object.key];
      if (object.key.find(".per_bucket_numel") == std::string::npos) continue;
      text = opened->source->ReadObject(object).value().json;
    }
    return keys;
  };
  for (const std::string& name : testing::GoldenCases(
           "torch_dist", {"opt_dp_reshardable_dp1_core016", "opt_dp_reshardable_tp2dp2_core016"})) {
    SCOPED_TRACE(name);
    const Path source = RunOf("torch_dist", name);
    ConvertOptions options = Between("torch_dist", "torch_dist", source, "buffers");
    options.to.choices["transformer_impl"] = "local";
    options.to.forms["optimizer-form"] = "dp_reshardable";
    options.overwrite = true;
    ASSERT_THAT(Convert(options), IsOk());
    EXPECT_EQ(described(options.target), described(source));
  }
}

TEST_F(ConvertRunTest, RefusesBuffersThatWouldNotBeTheRuns) {
  const Path source = RunOf("torch_dist", "opt_dp_reshardable_tp2dp2_core016");
  const auto refused = [&](const auto& change) {
    ConvertOptions options = Between("torch_dist", "torch_dist", source, "refused");
    options.to.forms["optimizer-form"] = "dp_reshardable";
    change(options);
    const auto prepared = PrepareConversion(PosixStorage(), options);
    return prepared.ok() ? std::string("nothing") : prepared.status().ToString();
  };
  EXPECT_THAT(refused([](ConvertOptions& options) { options.dtype = DType::kFloat32; }),
              AllOf(HasSubstr("of another dtype"),
                    HasSubstr("ckpt-convert --dtype bfloat16 stores the weights so")));
  EXPECT_THAT(refused([](ConvertOptions& options) {
                options.to.choices["transformer_impl"] = "transformer_engine";
              }),
              HasSubstr("another implementation of layers"));
  EXPECT_THAT(
      refused([](ConvertOptions& options) { options.to.forms["expert-optimizer"] = "separate"; }),
      HasSubstr("the run's experts have no buffers of their own"));
  EXPECT_THAT(refused([](ConvertOptions& options) {
                options.source = RunOf("torch_dist", "opt_fully_reshardable_dp1_core016");
              }),
              HasSubstr("args.transformer_impl"));
  EXPECT_THAT(refused([](ConvertOptions& options) {
                options.to.container = FindFormat("fsdp_dtensor").value();
              }),
              HasSubstr("the target does not have this option"));
}

// Before Core 0.16 the optimizer's tensors were slices of flattened parameters. One that is not
// distributed counts updates in a tensor. By default, one that is has all parameters in buffers.
TEST_F(ConvertRunTest, ReadsFormsThatAreNotWritten) {
  for (const std::string& name : testing::GoldenCases(
           "torch_dist", {"opt_model_space_dp1_core012", "opt_model_space_dp2_core013",
                          "opt_model_space_tp2dp2_core015", "opt_float16_dp1_core016",
                          "opt_fp32_dp2_core016", "opt_dp_reshardable_dp1_core016",
                          "opt_dp_reshardable_dp2_core019", "opt_dp_reshardable_tp2dp2_core016"})) {
    SCOPED_TRACE(name);
    ConvertOptions options = ToFsdpRun(RunOf("torch_dist", name));
    ASSERT_THAT(Convert(options), IsOk());
    EXPECT_EQ(WholeState(options.target).run.finished_updates(), 2);
  }
}

// Buffers of which nothing says where in them a parameter lies.
TEST_F(ConvertRunTest, SaysWhatAFormDoesNotHold) {
  ConvertOptions options = ToFsdpRun(RunOf("torch_dist", "opt_gather_scatter_tp2dp2_core014"));
  const auto prepared = PrepareConversion(PosixStorage(), options);
  ASSERT_THAT(prepared, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(prepared.status().first().message,
              HasSubstr("the checkpoint does not say where in them a parameter lies"));
  options.weights_only = true;
  EXPECT_THAT(PrepareConversion(PosixStorage(), options), IsOk());
}

// Also the form that is taken anyway.
TEST_F(ConvertRunTest, WeightsAloneHaveNoFormOfAnOptimizer) {
  for (const auto& [source, weights_only] :
       {std::pair(RunOf("fsdp_dtensor", "dense_fsdp2"), true),
        std::pair(RunOf("torch_dist", "dense_tp1_core018_integrity"), false)}) {
    for (const char* form : {"fully_reshardable", "fully_sharded_model_space", "dp_reshardable"}) {
      SCOPED_TRACE(source.string() + form);
      ConvertOptions options = Between("", "torch_dist", source, "refused");
      options.weights_only = weights_only;
      options.to.forms["optimizer-form"] = form;
      const auto prepared = PrepareConversion(PosixStorage(), options);
      ASSERT_FALSE(prepared.ok());
      EXPECT_EQ(prepared.status().kind(), ErrorKind::kUsage);
      EXPECT_THAT(prepared.status().ToString(),
                  HasSubstr("--optimizer-form is about an optimizer"));
      EXPECT_THAT(prepared.status().ToString(), HasSubstr("expected a training run"));
      options.to.forms.clear();
      EXPECT_THAT(PrepareConversion(PosixStorage(), options), IsOk());
    }
  }
}

}  // namespace
}  // namespace ckpt
