// The whole experiment in small: a few steps, some topologies, and what it leaves behind.
#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/posix_storage.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"
#include "tools/ckpt-train/experiment/cmd_experiment.h"
#include "tools/ckpt-train/experiment/internal/folder.h"

namespace ckpt::train {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr std::uint64_t kMaxBytes = 1 << 20;

ExperimentOptions SmallExperiment(const Path& output, std::vector<std::string> topologies) {
  ExperimentOptions options;
  options.common.quiet = true;
  options.common.progress = false;
  options.common.threads = 1;
  options.output = output.string();
  options.topologies = std::move(topologies);
  options.steps = 3;
  options.resume_steps = 2;
  return options;
}

struct Outcome {
  Result<cli::ExitCode> code;
  std::string out;
  std::string err;
};

Outcome Reshard(const ExperimentOptions& options) {
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams = {.out = out, .err = err};
  Result<cli::ExitCode> code = RunReshard(options, PosixStorage(), streams);
  return {std::move(code), out.text(), err.text()};
}

std::vector<std::string> NamesIn(const Path& directory) {
  std::vector<std::string> names;
  const Result<std::vector<DirectoryEntry>> entries = PosixStorage().List(directory);
  EXPECT_THAT(entries, IsOk());
  if (!entries.ok()) return names;
  for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
  return names;
}

std::string TextOf(const Path& path) {
  Result<std::string> text = ReadSmallFile(PosixStorage(), path, kMaxBytes);
  EXPECT_THAT(text, IsOk());
  return text.ok() ? *std::move(text) : std::string();
}

TEST(ExperimentReshardTest, ResumesUnderOtherMeshesAndBack) {
  const testing::TempDir temp;
  const Path output = temp.path() / "out";
  ExperimentOptions options = SmallExperiment(output, {"a", "e", "i", "back"});
  const Outcome outcome = Reshard(options);
  ASSERT_THAT(outcome.code, IsOk());
  EXPECT_EQ(*outcome.code, cli::ExitCode::kDone) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("bit for bit in all 5 resumed runs"));  // c came along
  EXPECT_THAT(NamesIn(output), ElementsAre("ckptkit-experiment.txt", "curves.svg", "data.jsonl",
                                           "metrics", "report.json", "report.md"));
  EXPECT_THAT(NamesIn(output / "metrics"), ElementsAre("a.jsonl", "back.jsonl", "c.jsonl",
                                                       "e.jsonl", "i.jsonl", "source.jsonl"));
  EXPECT_THAT(TextOf(output / "report.md"),
              HasSubstr("| (e) | HFSDP, EP 4 | 8 ranks, 2 instances, EP 4 |"));
  EXPECT_THAT(TextOf(output / "report.md"), HasSubstr("(curves.svg)"));
  // 3 steps, 2 that (c) took, 2 that the way back took.
  const std::string metrics = TextOf(output / "metrics" / "source.jsonl");
  EXPECT_EQ(std::ranges::count(metrics, '\n'), 7);
}

TEST(ExperimentReshardTest, CanonicalSumsMakeAllBitEqual) {
  const testing::TempDir temp;
  ExperimentOptions options = SmallExperiment(temp.path() / "out", {"e", "h"});
  options.common.json = true;
  options.canonical = true;
  options.keep = true;
  const Outcome outcome = Reshard(options);
  ASSERT_THAT(outcome.code, IsOk());
  EXPECT_EQ(*outcome.code, cli::ExitCode::kDone) << outcome.out << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("\"equal_steps\": 2"));
  EXPECT_THAT(NamesIn(temp.path() / "out"), Contains("checkpoints"));
  EXPECT_EQ(TextOf(temp.path() / "out" / "report.json"), outcome.out);
}

TEST(ExperimentReshardTest, RunsAgainInItsOwnFolder) {
  const testing::TempDir temp;
  const ExperimentOptions options = SmallExperiment(temp.path() / "out", {"b"});
  for (int run = 0; run < 2; ++run) {
    const Outcome outcome = Reshard(options);
    ASSERT_THAT(outcome.code, IsOk()) << run;
    EXPECT_EQ(*outcome.code, cli::ExitCode::kDone) << outcome.out << outcome.err;
  }
}

TEST(ExperimentFolderTest, TouchesNothingThatNoExperimentMade) {
  const testing::TempDir temp;
  Storage& storage = PosixStorage();
  ASSERT_THAT(WriteSmallFile(storage, temp.path() / "thesis.tex", AsBytes("x")), IsOk());
  EXPECT_THAT(ExperimentFolder::Open(storage, temp.path()), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(ExperimentFolder::Open(storage, temp.path() / "thesis.tex"),
              FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(NamesIn(temp.path()), ElementsAre("thesis.tex"));
}

TEST(ExperimentFolderTest, TouchesNothingThatCameLater) {
  const testing::TempDir temp;
  Storage& storage = PosixStorage();
  const Path path = temp.path() / "out";
  ASSERT_THAT(ExperimentFolder::Open(storage, path), IsOk());
  ASSERT_THAT(WriteSmallFile(storage, path / "curves.svg", AsBytes("x")), IsOk());
  EXPECT_THAT(ExperimentFolder::Open(storage, path), IsOk());
  ASSERT_THAT(WriteSmallFile(storage, path / "notes.txt", AsBytes("x")), IsOk());
  EXPECT_THAT(ExperimentFolder::Open(storage, path), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(NamesIn(path), ElementsAre("ckptkit-experiment.txt", "metrics", "notes.txt"));
}

TEST(ExperimentReshardTest, RefusesCanonicalSumsOnAGpu) {
  const testing::TempDir folder;
  ExperimentOptions options = SmallExperiment(folder.path() / "out", {"a"});
  options.canonical = true;
  options.device = "cuda";
  EXPECT_THAT(Reshard(options).code, FailsWith(ErrorKind::kUnsupported));
  EXPECT_FALSE(boost::filesystem::exists(folder.path() / "out"));
  options.device = "auto";
  EXPECT_THAT(Reshard(options).code, IsOk());
}

}  // namespace
}  // namespace ckpt::train
