// ckpt-train itself is killed, in steps and in saves, and goes on to the same state bit for bit. In
// every form that a run can be saved in.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <limits>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/posix_storage.h"
#include "formats/megatron/root.h"
#include "tests/reliability/fast_dir.h"
#include "tests/reliability/killed_process.h"
#include "tests/reliability/small_model.h"
#include "tests/reliability/suite.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt::testing {
namespace {

struct Case {
  const char* format;
  bool is_async = false;
  bool is_of_bridge = false;  // with the files of Megatron-Bridge
};
// For the lines of the report: " as hdf5 in the background".
std::string Described(const Case& c) {
  const std::string_view form = c.is_of_bridge ? "Bridge" : c.format;
  return (form == "fsdp_dtensor" ? "" : fmt::format(" as {}", form)) +
         (c.is_async ? " with saves in the background" : "");
}
std::string NameOf(const Case& c) {
  return fmt::format("{}{}{}", c.format, c.is_of_bridge ? "OfBridge" : "",
                     c.is_async ? "InTheBackground" : "AtOnce");
}
void PrintTo(const Case& c, std::ostream* os) { *os << NameOf(c); }

class KilledTraining : public ::testing::Test {
 protected:
  KilledTraining() {
    std::string lines;
    for (int i = 0; i < 24; ++i) {
      std::string ids;
      for (int t = 0; t < 9; ++t) ids += fmt::format("{}{}", t == 0 ? "" : ", ", (i * 7 + t) % 11);
      lines += fmt::format("{{\"input_ids\": [{}], \"labels\": [{}]}}\n", ids, ids);
    }
    EXPECT_THAT(WriteSmallFile(storage_, dir() / "data.jsonl", AsBytes(lines)), IsOk());
  }

  [[nodiscard]] const Path& dir() const { return dir_.path(); }

  // Saves after every second step. `more`: the model, and how it is saved.
  [[nodiscard]] Command Train(const Path& root, std::vector<std::string> more) const {
    Command command = {CKPT_TRAIN_PROGRAM, "--ranks", "2", "--quiet"};
    more.insert(more.end(), {"seq_length=8", "global_batch_size=4", "train_iters=24", "lr=1e-2",
                             "save_interval=2", "data_path=" + (dir() / "data.jsonl").string(),
                             "save=" + root.string()});
    for (const std::string& setting : more) {
      command.emplace_back("--set");
      command.push_back(setting);
    }
    return command;
  }

  // Every checkpoint below `root` must have each of its files as `expected` has it, and no other.
  std::size_t CountWholeIterations(const Path& root, const Tree& expected, const std::string& where,
                                   Suite& suite) {
    const auto iterations = megatron::ListIterations(storage_, root);
    EXPECT_THAT(iterations, IsOk());
    for (const std::int64_t iteration : *iterations) {
      const std::string name = megatron::IterationName(iteration);
      const auto tree = ReadTree(storage_, root / name);
      EXPECT_THAT(tree, IsOk());
      Tree of_iteration;
      for (const auto& [file, content] : expected) {
        if (file.starts_with(name + "/")) of_iteration[file.substr(name.size() + 1)] = content;
      }
      if (*tree != of_iteration) suite.Fail(fmt::format("{}: {} is not whole", where, name));
    }
    return iterations->size();
  }

  // Somewhere in a run that takes so long.
  std::chrono::microseconds Within(std::chrono::microseconds whole) {
    return std::chrono::microseconds(rng_() % static_cast<std::uint64_t>(whole.count()));
  }

  Storage& storage_ = PosixStorage();

 private:
  FastDir dir_;
  std::mt19937_64 rng_{TestSeed(kDefaultSeed)};
};

class TrainKillTest : public KilledTraining, public ::testing::WithParamInterface<Case> {
 protected:
  // Keeps two checkpoints; goes on from what `root` holds.
  [[nodiscard]] Command Train(const Path& root) const {
    std::vector<std::string> settings = {"num_layers=1",
                                         "hidden_size=8",
                                         "ffn_hidden_size=12",
                                         "num_attention_heads=2",
                                         "vocab_size=11",
                                         "keep_checkpoints=2",
                                         "load=" + root.string(),
                                         fmt::format("save_format={}", GetParam().format),
                                         fmt::format("async_save={}", GetParam().is_async)};
    if (GetParam().is_of_bridge) settings.emplace_back("tree=megatron-bridge");
    Command command = KilledTraining::Train(root, std::move(settings));
    command.emplace_back("--print-state-digest");
    return command;
  }

  // What the program says of the state it ends with.
  static std::string DigestIn(const ProcessEnd& end) {
    const std::size_t at = end.output.find("state-digest ");
    return at == std::string::npos ? "" : end.output.substr(at, 13 + 32);
  }
};

INSTANTIATE_TEST_SUITE_P(Saves, TrainKillTest,
                         ::testing::Values(Case{"fsdp_dtensor"}, Case{"fsdp_dtensor", true},
                                           Case{"torch_dist"}, Case{"torch_dist", true},
                                           Case{"torch_dist", false, true},
                                           Case{"torch_dist", true, true}, Case{"fsdp2"},
                                           Case{"fsdp2", true}, Case{"hdf5"}, Case{"hdf5", true}),
                         [](const auto& test) { return NameOf(test.param); });

// One run, killed again and again until it gets to its end; and then from the start.
TEST_P(TrainKillTest, EndsInTheStateOfTheRunThatNobodyKilled) {
  Suite suite(fmt::format("kill -9, training{}", Described(GetParam())));
  const auto whole = RunAndKill(Train(dir() / "whole"), {});
  ASSERT_THAT(whole, IsOk());
  ASSERT_EQ(whole->exit_code, 0) << whole->output;
  const std::string expected = DigestIn(*whole);
  ASSERT_NE(expected, "") << whole->output;

  // At random steps of what it does to files, and after random times.
  const auto traced =
      RunAndKill(Train(dir() / "traced"), {.at_step = std::numeric_limits<int>::max()});
  const std::uint64_t kills = IsLongRun() ? 500 : 24;
  int runs = 0;
  const Path root = dir() / "killed";
  while (suite.cases() < kills) {
    // Of the time of a whole run: what is left of this one may take less.
    const auto end = RunAndKill(Train(root), {.after = Within(whole->time)});
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
  Suite suite(fmt::format("SIGTERM, training{}", Described(GetParam())));
  const auto whole = RunAndKill(Train(dir() / "whole"), {});
  ASSERT_THAT(whole, IsOk());
  const std::string expected = DigestIn(*whole);
  ASSERT_NE(expected, "") << whole->output;
  const Path root = dir() / "stopped";
  int in_order = 0;
  for (int i = 0; i < (IsLongRun() ? 60 : 8); ++i) {
    const auto end = RunAndKill(Train(root), {.after = Within(whole->time), .signal = SIGTERM});
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

// No run goes on from weights alone, nor saves where another one did: what is there must be whole.
TEST_F(KilledTraining, LeavesWeightsThatAreWhole) {
  Suite suite("kill -9, training as hf");
  const Path model = LoadGolden("hf", "llama-tied-fp32").path;
  const auto train = [&](const Path& root) {
    return Train(root, {"init=hf:" + model.string(), "save_format=hf"});
  };
  const auto whole = RunAndKill(train(dir() / "whole"), {});
  ASSERT_THAT(whole, IsOk());
  ASSERT_EQ(whole->exit_code, 0) << whole->output;
  const auto expected = ReadTree(storage_, dir() / "whole");
  ASSERT_THAT(expected, IsOk());

  const Path root = dir() / "killed";
  const std::uint64_t kills = IsLongRun() ? 500 : 24;
  std::uint64_t runs = 0;
  std::size_t iterations = 0;
  for (; suite.cases() < kills; ++runs) {
    const auto end = RunAndKill(train(root), {.after = Within(whole->time)});
    ASSERT_THAT(end, IsOk());
    if (end->killed) suite.Count();
    const std::string where = fmt::format("run {}, {} kills so far", runs, suite.cases());
    if (!end->killed && end->exit_code != 0) suite.Fail(where + ": fails: " + end->output);
    iterations += CountWholeIterations(root, *expected, where, suite);
    ASSERT_THAT(storage_.RemoveAll(root), IsOk());
  }
  EXPECT_GT(iterations, 0U);
  suite.Note(fmt::format("{} whole repositories, {} runs got to their end", iterations,
                         runs - suite.cases()));
}

}  // namespace
}  // namespace ckpt::testing
