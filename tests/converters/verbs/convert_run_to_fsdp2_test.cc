// Training runs under the names of a program with FSDP2.
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/converters/verbs/convert_run_fixture.h"

namespace ckpt {
namespace {

using testing::ConvertRunTest;
using testing::IsOk;

// Under the names of a program with FSDP2 and back, in both forms of its optimizer.
TEST_F(ConvertRunTest, GoesToFsdp2AndBackUnchanged) {
  const std::vector<std::string> all = {"model.module.", "optimizer.state."};
  for (const char* name : {"dense_fsdp2", "moe_ep2_fsdp4"}) {
    for (const char* form : {"nested", "flattened"}) {
      SCOPED_TRACE(fmt::format("{}, {}", name, form));
      const Path source = RunOf("fsdp_dtensor", name);
      ConvertOptions there = Between("fsdp_dtensor", "dcp", source, "fsdp2");
      there.overwrite = true;
      there.to.naming = "fsdp2";
      there.to.forms["optimizer-state-dict"] = form;
      if (form == std::string_view("flattened")) there.zstd_level = 3;
      const auto report = Convert(there);
      ASSERT_THAT(report, IsOk());
      EXPECT_EQ(report->target_format, "dcp");
      EXPECT_EQ(report->target_digest, report->source_digest);
      ExpectNoPartOfTheStateDropped(*report);
      const TrainingState first = WholeState(source);
      const TrainingState between = WholeState(there.target);
      EXPECT_EQ(between.run.iteration, first.run.iteration);
      EXPECT_EQ(between.run.schedule, first.run.schedule);
      ConvertOptions back = Between("fsdp2", "fsdp_dtensor", there.target, "again");
      back.overwrite = true;
      back.to.choices["transformer_impl"] =
          first.weights.match.layout.choices.at("transformer_impl");
      back.to.choices["expert_names"] = first.weights.match.layout.choices.at("expert_names");
      ASSERT_THAT(Convert(back), IsOk());
      EXPECT_EQ(Tensors(back.target, all), Tensors(source, all));
      const TrainingState last = WholeState(back.target);
      EXPECT_EQ(last.run.iteration, first.run.iteration);
      EXPECT_EQ(last.run.consumed_samples, first.run.consumed_samples);
      EXPECT_EQ(last.run.num_floating_point_operations, first.run.num_floating_point_operations);
      EXPECT_EQ(last.run.schedule, first.run.schedule);
      ExpectSameDecay(first.run, last.run);
    }
  }
}

// Megatron-Core keeps exact weights beside rounded ones: there is one of each in FSDP2's names.
TEST_F(ConvertRunTest, GoesFromMegatronCoreToFsdp2AndBack) {
  const Path source = RunOf("torch_dist", "opt_fully_reshardable_dp1_core016");
  ConvertOptions there = Between("torch_dist", "dcp", source, "fsdp2");
  there.to.naming = "fsdp2";
  ASSERT_THAT(Convert(there), IsOk());
  ConvertOptions back = Between("fsdp2", "torch_dist", there.target, "again");
  back.dtype = DType::kBfloat16;
  ASSERT_THAT(Convert(back), IsOk());
  const std::vector<std::string> all = {"decoder.", "embedding.", "output_layer.", "optimizer."};
  EXPECT_EQ(Tensors(back.target, all), Tensors(source, all));
}

// Loaders of FSDP2 ask for a tied tensor under each of its names, whatever the container.
TEST_F(ConvertRunTest, HasTheCopiesOfItsNames) {
  if (!testing::HasGolden("fsdp_dtensor", "dense_tied_fsdp4")) GTEST_SKIP();
  for (const char* container : {"hdf5", "torch_save", "dcp"}) {
    ConvertOptions options =
        Between("fsdp_dtensor", container, RunOf("fsdp_dtensor", "dense_tied_fsdp4"), container);
    options.to.naming = "fsdp2";
    ASSERT_THAT(Convert(options), IsOk());
    const auto opened = OpenCheckpoint(PosixStorage(), options.target);
    ASSERT_THAT(opened, IsOk());
    EXPECT_NE(opened->source->index().FindTensor("model.lm_head.weight"), nullptr) << container;
  }
}

}  // namespace
}  // namespace ckpt
