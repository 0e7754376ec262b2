// Trainings of a few seconds, asked for as on the command line.
#ifndef CKPT_TESTS_TOOLS_CKPT_TRAIN_SMALL_TRAINING_H_
#define CKPT_TESTS_TOOLS_CKPT_TRAIN_SMALL_TRAINING_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/io/posix_storage.h"
#include "core/json/json_reader.h"
#include "core/json/json_writer.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"
#include "tools/ckpt-train/cmd_train.h"
#include "tools/cli/text_output.h"

namespace ckpt::testing {

// What a command said and how it ended.
struct Said {
  Result<cli::ExitCode> code;
  std::string out;
  std::string err;

  // Whether it ended in order.
  [[nodiscard]] bool IsDone() const { return code.ok() && *code == cli::ExitCode::kDone; }
};

// Calls one of the verbs' functions.
template <typename Options, typename Verb>
Said Call(Verb verb, const Options& options) {
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams = {.out = out, .err = err};
  Result<cli::ExitCode> code = verb(options, PosixStorage(), streams);
  return {std::move(code), out.text(), err.text()};
}

// A folder with data, and settings of a small model of bytes that trains on it.
class SmallTraining : public ::testing::Test {
 protected:
  void SetUp() override { WriteData("one two three four "); }

  [[nodiscard]] Path In(std::string_view name) const { return folder_.path() / std::string(name); }

  // Documents that repeat `text`.
  void WriteData(std::string_view text) {
    std::string whole;
    for (int i = 0; i < 6; ++i) whole += text;
    std::string lines;
    for (int i = 0; i < 24; ++i) lines += "{\"text\": " + JsonQuote(whole) + "}\n";
    ASSERT_THAT(PosixStorage().RemoveAll(In("data.jsonl")), IsOk());
    ASSERT_THAT(WriteSmallFile(PosixStorage(), In("data.jsonl"), AsBytes(lines)), IsOk());
  }

  // As on the command line; settings in `more` stand for those of the same names here.
  [[nodiscard]] train::TrainOptions Options(int ranks, std::vector<std::string> more = {}) const {
    train::TrainOptions options;
    options.common.threads = 1;
    options.run.ranks = ranks;
    options.run.device = "cpu";  // also where there is a GPU
    std::vector<std::string> set = {
        "num_layers=1",           "hidden_size=24",
        "ffn_hidden_size=32",     "num_attention_heads=2",
        "vocab_size=258",         "num_experts=4",
        "moe_ffn_hidden_size=20", "seq_length=16",
        "global_batch_size=8",    "lr=1e-2",
        "train_iters=8",          "data_path=" + In("data.jsonl").string()};
    std::erase_if(set, [&](const std::string& ours) {
      const std::string key = ours.substr(0, ours.find('=') + 1);
      for (const std::string& other : more) {
        if (other.starts_with(key)) return true;
      }
      return false;
    });
    options.run.set = std::move(set);
    options.run.set.insert(options.run.set.end(), more.begin(), more.end());
    options.print_state_digest = true;
    return options;
  }

  TempDir folder_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TOOLS_CKPT_TRAIN_SMALL_TRAINING_H_
