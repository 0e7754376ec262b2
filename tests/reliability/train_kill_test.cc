// ckpt-train itself is killed, in steps and in saves, and goes on to the same state bit for bit.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/posix_storage.h"
#include "tests/reliability/fast_dir.h"
#include "tests/reliability/killed_process.h"
#include "tests/reliability/suite.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {
namespace {

class TrainKillTest : public ::testing::TestWithParam<bool> {
 protected:
  TrainKillTest() {
    std::string lines;
    for (int i = 0; i < 24; ++i) {
      std::string ids;
      for (int t = 0; t < 9; ++t) ids += fmt::format("{}{}", t == 0 ? "" : ", ", (i * 7 + t) % 11);
      lines += fmt::format("{{\"input_ids\": [{}], \"labels\": [{}]}}\n", ids, ids);
    }
    EXPECT_THAT(WriteSmallFile(storage_, dir() / "data.jsonl", AsBytes(lines)), IsOk());
  }

  [[nodiscard]] const Path& dir() const { return dir_.path(); }

  // Saves after every second step and keeps two; goes on from what `root` holds.
  [[nodiscard]] Command Train(const Path& root) const {
    Command command = {CKPT_TRAIN_PROGRAM, "--ranks", "2", "--quiet", "--print-state-digest"};
    for (const std::string& setting :
         {std::string("num_layers=1"), std::string("hidden_size=8"),
          std::string("ffn_hidden_size=12"), std::string("num_attention_heads=2"),
          std::string("vocab_size=11"), std::string("seq_length=8"),
          std::string("global_batch_size=4"), std::string("train_iters=24"), std::string("lr=1e-2"),
          std::string("save_interval=2"), std::string("keep_checkpoints=2"),
          "data_path=" + (dir() / "data.jsonl").string(), "save=" + root.string(),
          "load=" + root.string(), fmt::format("async_save={}", GetParam())}) {
      command.emplace_back("--set");
      command.push_back(setting);
    }
    return command;
  }

  // What the program says of the state it ends with.
  static std::string DigestIn(const ProcessEnd& end) {
    const std::size_t at = end.output.find("state-digest ");
    return at == std::string::npos ? "" : end.output.substr(at, 13 + 32);
  }

  Storage& storage_ = PosixStorage();

 private:
  FastDir dir_;
};

INSTANTIATE_TEST_SUITE_P(Saves, TrainKillTest, ::testing::Bool(), [](const auto& test) {
  return std::string(test.param ? "InTheBackground" : "AtOnce");
});

// One run, killed again and again until it gets to its end; and then from the start.
TEST_P(TrainKillTest, EndsInTheStateOfTheRunThatNobodyKilled) {
  Suite suite(
      fmt::format("kill -9, training{}", GetParam() ? " with saves in the background" : ""));
  std::mt19937_64 rng(TestSeed(kDefaultSeed));
  const auto whole = RunAndKill(Train(dir() / "whole"), {});
  ASSERT_THAT(whole, IsOk());
  ASSERT_EQ(whole->exit_code, 0) << whole->output;
  const std::string expected = DigestIn(*whole);
  ASSERT_NE(expected, "") << whole->output;

  // At random steps of what it does to files, and after random times.
  const auto traced =
      RunAndKill(Train(dir() / "traced"), {.at_step = std::numeric_limits<int>::max()});
  const std::uint64_t kills = IsLongRun() ? 500 : 60;
  int runs = 0;
  const Path root = dir() / "killed";
  while (suite.cases() < kills) {
    // Of the time of a whole run: what is left of this one may take less.
    const std::chrono::microseconds after(rng() % static_cast<std::uint64_t>(whole->time.count()));
    const auto end = RunAndKill(Train(root), {.after = after});
    ASSERT_THAT(end, IsOk());
    if (end->killed) {
      suite.Count();
      continue;
    }
    const std::string where = fmt::format("run {}, {} kills so far", runs, suite.cases());
    if (end->exit_code != 0) {
      suite.Fail(where + ": does not go on: " + end->output);
    } else if (DigestIn(*end) != expected) {
      suite.Fail(where + ": ends in another state: " + DigestIn(*end));
    }
    ++runs;
    ASSERT_THAT(storage_.RemoveAll(root), IsOk());
  }
  // The last one goes on, too.
  const auto last = RunAndKill(Train(root), {});
  ASSERT_THAT(last, IsOk());
  if (last->exit_code != 0 || DigestIn(*last) != expected) {
    suite.Fail("the last run: " + last->output);
  }
  suite.Note(fmt::format("{} runs got to their end", runs + 1));
  suite.Note(traced.ok() ? fmt::format("{} steps", traced->steps)
                         : "no steps: " + traced.status().ToString());
}

// SIGTERM is not a loss at all: the run saves and ends in order, and goes on from the very step.
TEST_P(TrainKillTest, SavesAndEndsInOrderWhenItIsAskedTo) {
  Suite suite(
      fmt::format("SIGTERM, training{}", GetParam() ? " with saves in the background" : ""));
  std::mt19937_64 rng(TestSeed(kDefaultSeed) + 1);
  const auto whole = RunAndKill(Train(dir() / "whole"), {});
  ASSERT_THAT(whole, IsOk());
  const std::string expected = DigestIn(*whole);
  ASSERT_NE(expected, "") << whole->output;
  const Path root = dir() / "stopped";
  int in_order = 0;
  for (int i = 0; i < (IsLongRun() ? 60 : 8); ++i) {
    const std::chrono::microseconds after(rng() % static_cast<std::uint64_t>(whole->time.count()));
    const auto end = RunAndKill(Train(root), {.after = after, .signal = SIGTERM});
    ASSERT_THAT(end, IsOk());
    suite.Count();
    // Before the program listens, the signal ends it as any other.
    if (end->exit_code == 0) ++in_order;
    if (end->exit_code > 0) suite.Fail("fails: " + end->output);
    const auto last = RunAndKill(Train(root), {});
    ASSERT_THAT(last, IsOk());
    if (last->exit_code != 0 || DigestIn(*last) != expected) {
      suite.Fail("the next run: " + last->output);
    }
    ASSERT_THAT(storage_.RemoveAll(root), IsOk());
  }
  EXPECT_GT(in_order, 0);
  suite.Note(fmt::format("{} ended in order", in_order));
}

}  // namespace
}  // namespace ckpt::testing
