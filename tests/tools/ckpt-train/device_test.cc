// --device: what every verb computes on, and what it refuses.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/golden.h"
#include "tests/tools/ckpt-train/small_training.h"
#include "tools/ckpt-train/cmd_bench.h"
#include "tools/ckpt-train/cmd_check.h"
#include "tools/ckpt-train/cmd_evaluate.h"
#include "tools/ckpt-train/cmd_generate.h"
#include "trainer/backend/backend.h"

namespace ckpt::train {
namespace {

using testing::Call;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::Said;

bool HasGpu() { return trainer::ChooseBackend({.name = "cuda"}).ok(); }

class DeviceTest : public testing::SmallTraining {
 protected:
  void SetUp() override {
    SmallTraining::SetUp();
    const std::string line = "{\"input_ids\": [5, 6, 7, 8, 9, 10, 11, 12, 13]}\n";
    ASSERT_THAT(WriteSmallFile(PosixStorage(), tokens(), AsBytes(line)), testing::IsOk());
  }

  // Every verb, on `device`, with one setting more.
  [[nodiscard]] std::vector<std::pair<std::string, Said>> EveryVerb(const std::string& device,
                                                                    const std::string& set) const {
    const std::string model = "hf:" + (testing::GoldenDir() / "hf/qwen3-tied-bf16/ckpt").string();
    TrainOptions train = Options(1, {set, "train_iters=1"});
    EvaluateOptions evaluate;
    evaluate.run.set = {set, "seq_length=8", "packing=false", "data_path=" + tokens().string()};
    GenerateOptions generate;
    generate.run.set = {set};
    generate.prompt_ids = {5, 6, 7};
    generate.tokens = 1;
    CheckOptions check;
    check.reference = (testing::GoldenDir() / "hf/qwen3-tied-bf16/reference.safetensors").string();
    check.run.set = {set};
    BenchOptions bench;
    bench.model = "tiny";
    bench.tokens_per_rank = 16;
    bench.seq = 16;
    bench.warmup = 0;
    bench.steps = 1;
    bench.run.set = {set, "bf16=false"};
    for (RunOptions* run : {&evaluate.run, &generate.run, &check.run}) run->init = model;
    for (RunOptions* run : {&train.run, &evaluate.run, &generate.run, &check.run, &bench.run}) {
      run->ranks = 1;
      run->device = device;
    }
    for (cli::CommonOptions* common :
         {&train.common, &evaluate.common, &generate.common, &check.common, &bench.common}) {
      common->threads = 1;
      common->verbosity = 1;
      common->progress = false;
    }
    return {{"train", Call(RunTrain, train)},
            {"evaluate", Call(RunEvaluate, evaluate)},
            {"generate", Call(RunGenerate, generate)},
            {"check", Call(RunCheck, check)},
            {"bench", Call(RunBench, bench)}};
  }

 private:
  [[nodiscard]] Path tokens() const { return In("tokens.jsonl"); }
};

TEST_F(DeviceTest, EveryVerbRefusesOnAGpuWhatNoneComputes) {
  for (const auto& [verb, said] : EveryVerb("cuda", "reduction=canonical")) {
    ASSERT_THAT(said.code, FailsWith(ErrorKind::kUnsupported)) << verb;
    EXPECT_THAT(said.code.status().ToString(), HasSubstr("a GPU does not compute canonical sums"))
        << verb;
  }
}

// On any machine.
TEST_F(DeviceTest, EveryVerbThatMayChooseTakesTheCpuForIt) {
  for (const auto& [verb, said] : EveryVerb("auto", "reduction=canonical")) {
    ASSERT_TRUE(said.IsDone()) << verb << ": " << said.code.status().ToString();
    EXPECT_THAT(said.err, HasSubstr("info: device: cpu (cuda: a GPU does not compute canonical "
                                    "sums)\n"))
        << verb;
  }
}

TEST_F(DeviceTest, WithoutAGpuEveryVerbSaysSo) {
  if (HasGpu()) GTEST_SKIP() << "there is a GPU";
  for (const auto& [verb, said] : EveryVerb("cuda", "seed=1")) {
    ASSERT_THAT(said.code, FailsWith(ErrorKind::kUnsupported)) << verb;
    EXPECT_THAT(said.code.status().first().hint, HasSubstr("--device cpu")) << verb;
  }
  for (const auto& [verb, said] : EveryVerb("auto", "seed=1")) {
    ASSERT_TRUE(said.IsDone()) << verb << ": " << said.code.status().ToString();
    EXPECT_THAT(said.err, HasSubstr("info: device: cpu (cuda: ")) << verb;
  }
  for (const auto& [verb, said] : EveryVerb("cpu", "seed=1")) {
    ASSERT_TRUE(said.IsDone()) << verb << ": " << said.code.status().ToString();
    EXPECT_THAT(said.err, HasSubstr("info: device: cpu\n")) << verb;
  }
}

}  // namespace
}  // namespace ckpt::train
