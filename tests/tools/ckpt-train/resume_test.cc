// A run that was interrupted goes on as if nothing had happened.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json/json_reader.h"
#include "tests/testing/matchers.h"
#include "tests/tools/ckpt-train/small_training.h"
#include "tools/ckpt-train/cmd_train.h"

namespace ckpt::train {
namespace {

using testing::Call;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::Said;

class ResumeTest : public testing::SmallTraining {
 protected:
  // The last line that a run prints.
  static std::string DigestOf(const Said& said) {
    EXPECT_TRUE(said.IsDone()) << said.code.status().ToString() << said.err;
    const std::size_t at = said.out.rfind("state-digest ");
    EXPECT_NE(at, std::string::npos) << said.out;
    return at == std::string::npos ? "" : said.out.substr(at);
  }

  // Goes on with what lies in `out`; nothing else is said, but for the mesh.
  static TrainOptions GoOn(const Path& out, int ranks, std::vector<std::string> mesh = {}) {
    TrainOptions options;
    options.common.threads = 1;
    options.run.ranks = ranks;
    options.run.load = out.string();
    options.run.save = out.string();
    options.run.set = std::move(mesh);
    options.print_state_digest = true;
    return options;
  }

  // Every line without what takes another time every time.
  Result<std::vector<std::string>> Metrics(const Path& path) {
    CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(PosixStorage(), path, 1 << 20));
    std::vector<std::string> lines;
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = text.find('\n', begin);
      const std::string line = text.substr(begin, end - begin);
      lines.push_back(line.substr(0, line.find(",\"step_ms\"")));
      begin = end + 1;
    }
    return lines;
  }
};

TEST_F(ResumeTest, TheSameMeshEndsWithTheSameBits) {
  TrainOptions whole = Options(2, {"expert_model_parallel_size=2"});
  whole.run.metrics = In("whole.jsonl").string();
  const std::string expected = DigestOf(Call(RunTrain, whole));

  TrainOptions first = Options(2, {"expert_model_parallel_size=2", "exit_interval=3"});
  first.run.metrics = In("parts.jsonl").string();
  first.run.save = In("out").string();
  const Said interrupted = Call(RunTrain, first);
  ASSERT_TRUE(interrupted.IsDone());
  EXPECT_THAT(interrupted.err, HasSubstr("ended after step 3"));
  TrainOptions second = GoOn(In("out"), 2, {"expert_model_parallel_size=2", "exit_interval=0"});
  second.run.metrics = In("parts.jsonl").string();
  EXPECT_EQ(DigestOf(Call(RunTrain, second)), expected);

  const auto parts = Metrics(In("parts.jsonl"));
  ASSERT_THAT(parts, IsOk());
  EXPECT_EQ(parts->size(), 8U);
  EXPECT_EQ(*parts, Metrics(In("whole.jsonl")).value());
}

// Sums that no mesh changes make runs on several meshes comparable bit for bit.
TEST_F(ResumeTest, CanonicalSumsEndWithTheSameBitsOnAnyMesh) {
  const std::string expected = DigestOf(Call(RunTrain, Options(1, {"reduction=canonical"})));

  TrainOptions first =
      Options(2, {"reduction=canonical", "expert_model_parallel_size=2", "exit_interval=3"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  TrainOptions second =
      GoOn(In("out"), 4,
           {"expert_model_parallel_size=1", "num_distributed_optimizer_instances=2",
            "outer_dp_sharding_strategy=optim", "exit_interval=6"});
  ASSERT_TRUE(Call(RunTrain, second).IsDone());
  TrainOptions third =
      GoOn(In("out"), 2,
           {"expert_model_parallel_size=1", "num_distributed_optimizer_instances=1",
            "data_parallel_sharding_strategy=no_shard", "outer_dp_sharding_strategy=no_shard",
            "exit_interval=0"});
  third.prove = true;
  EXPECT_EQ(DigestOf(Call(RunTrain, third)), expected);
}

TEST_F(ResumeTest, ProvesThatNothingWasLost) {
  TrainOptions first = Options(2, {"exit_interval=3"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  TrainOptions again = GoOn(In("out"), 1);
  again.prove = true;
  const Said said = Call(RunTrain, again);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString() << said.err;
  EXPECT_THAT(said.err, HasSubstr("proved: the state digest is"));
  EXPECT_THAT(said.err, HasSubstr("loss of the batch after step 3"));
}

TEST_F(ResumeTest, FindsDataThatChanged) {
  TrainOptions first = Options(2, {"exit_interval=3"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  WriteData("five six seven eig ");
  TrainOptions again = GoOn(In("out"), 2);
  again.prove = true;
  const Said said = Call(RunTrain, again);
  ASSERT_THAT(said.code, IsOk());
  EXPECT_EQ(*said.code, cli::ExitCode::kDifferent);
  EXPECT_THAT(said.err, HasSubstr("the loss after loading is not the stored one"));
}

TEST_F(ResumeTest, StartsWhereThereIsNoCheckpointYet) {
  TrainOptions options = Options(1);
  options.run.load = options.run.save = In("out").string();
  const Said said = Call(RunTrain, options);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  EXPECT_THAT(said.err, HasSubstr("no checkpoint in "));
  const Said again = Call(RunTrain, options);
  EXPECT_THAT(again.err, HasSubstr("nothing to do: step 8 is done"));
  EXPECT_EQ(DigestOf(again), DigestOf(said));
}

TEST_F(ResumeTest, StartsNoSecondRunInTheFolderOfAnother) {
  TrainOptions options = Options(1);
  options.run.save = In("out").string();
  options.run.metrics = In("metrics.jsonl").string();
  ASSERT_TRUE(Call(RunTrain, options).IsDone());
  const auto metrics = Metrics(In("metrics.jsonl"));
  ASSERT_THAT(metrics, IsOk());
  options.run.load = In("mistyped").string();
  const Said said = Call(RunTrain, options);
  EXPECT_THAT(said.code, testing::FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(said.code.status().ToString(), HasSubstr("go on from them with --load"));
  EXPECT_EQ(*Metrics(In("metrics.jsonl")), *metrics);
}

// Each save takes them from the one before, which is gone by the time of the next.
TEST_F(ResumeTest, KeepsTheModelsSideFilesWhenOldCheckpointsGo) {
  std::string tokens;
  for (int i = 0; i < 24; ++i) tokens += "{\"input_ids\": [1, 2, 3, 4, 5, 6, 7, 8, 9]}\n";
  ASSERT_THAT(WriteSmallFile(PosixStorage(), In("tokens.jsonl"), AsBytes(tokens)), IsOk());
  TrainOptions options;
  options.common.threads = 1;
  options.run.ranks = 2;
  options.run.save = In("out").string();
  options.run.init =
      std::string("hf:") + CKPT_SOURCE_DIR + "/tests/golden/hf/qwen3moe-norm-bf16/ckpt";
  options.run.set = {"seq_length=8", "train_iters=1", "data_path=" + In("tokens.jsonl").string()};
  ASSERT_TRUE(Call(RunTrain, options).IsDone());
  options.run.init.clear();
  options.run.load = In("out").string();
  for (const char* mode : {"async_save=false", "async_save=true"}) {
    SCOPED_TRACE(mode);
    options.run.set = {mode, "keep_checkpoints=1", "save_interval=1",
                       std::string(mode).ends_with("true") ? "train_iters=7" : "train_iters=4"};
    const Said said = Call(RunTrain, options);
    ASSERT_TRUE(said.IsDone()) << said.code.status().ToString() << said.err;
  }
  const auto left = PosixStorage().List(In("out"));
  ASSERT_THAT(left, IsOk());
  EXPECT_EQ(left->size(), 2U);  // and the tracker
  const auto config = PosixStorage().Stat(In("out") / "iter_0000007" / "hf_assets" / "config.json");
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->type, FileType::kRegular);
}

TEST_F(ResumeTest, GivenSettingsGoBeforeStoredOnes) {
  TrainOptions first = Options(1, {"train_iters=2"});
  first.run.save = In("out").string();
  ASSERT_TRUE(Call(RunTrain, first).IsDone());
  TrainOptions shown = GoOn(In("out"), 1, {"lr=0.5"});
  shown.print_config = true;
  const Said said = Call(RunTrain, shown);
  ASSERT_TRUE(said.IsDone()) << said.code.status().ToString();
  EXPECT_THAT(said.out, HasSubstr("\nlr: 0.5\n"));
  EXPECT_THAT(said.out, HasSubstr("\nhidden_size: 24\n"));
  EXPECT_THAT(said.out, HasSubstr("\ntrain_iters: 2\n"));
}

}  // namespace
}  // namespace ckpt::train
