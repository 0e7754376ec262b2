#include "tools/ckpt-inspect/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/warning.h"
#include "core/io/memory_storage.h"
#include "tests/testing/matchers.h"
#include "tests/tools/ckpt-inspect/fake_source.h"

namespace ckpt::inspect {
namespace {

using ::ckpt::testing::BytesOf;
using ::ckpt::testing::FailsWith;
using ::ckpt::testing::FakeSource;
using ::ckpt::testing::IsOkAndHolds;
using ::testing::HasSubstr;

class CommandsTest : public ::testing::Test {
 protected:
  CommandsTest() {
    auto source = std::make_unique<FakeSource>();
    source_ = source.get();
    source->AddTensor("a.w", DType::kFloat32, {2, 3}, BytesOf<float>({1, 2, 3, 4, 5, 0.1F}));
    source->AddTensor("b", DType::kInt64, {2}, BytesOf<std::int64_t>({INT64_MIN, INT64_MAX}));
    source->AddObject("step", {.type = "int", .json = "7", .warnings = {}});
    checkpoint_.path = "/run/iter_0000003";
    checkpoint_.iteration = 3;
    checkpoint_.source = std::move(source);
    json_.json = true;
    json_.threads = 2;
  }
  // Runs after the test has added what it needs.
  const ListedCheckpoint& Checkpoint() {
    source_->Finish();
    checkpoint_.problems = ListProblems(checkpoint_).problems;
    return checkpoint_;
  }

  FakeSource* source_;
  ListedCheckpoint checkpoint_;
  CommonOptions json_;
  cli::StringOutput out_;
  cli::StringOutput err_;
  Streams streams_{.out = out_, .err = err_};
};

TEST_F(CommandsTest, SummaryAddsUp) {
  EXPECT_THAT(RunSummary(Checkpoint(), {.common = json_}, streams_), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(out_.text(), HasSubstr("\"tensors\": 2"));
  EXPECT_THAT(out_.text(), HasSubstr("\"bytes\": 40"));
  EXPECT_THAT(out_.text(), HasSubstr("\"parameters\": 8"));
  EXPECT_THAT(out_.text(), HasSubstr("\"float32\": 24"));
  EXPECT_THAT(out_.text(), HasSubstr("\"iteration\": 3"));
}

TEST_F(CommandsTest, TensorsFollowThePattern) {
  const TensorsOptions options{.common = json_, .match = "a.*"};
  EXPECT_THAT(RunTensors(Checkpoint(), options, streams_), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(out_.text(), HasSubstr("\"key\": \"a.w\""));
  EXPECT_THAT(out_.text(), HasSubstr("\"shape\": [2, 3]"));
  EXPECT_THAT(out_.text(), ::testing::Not(HasSubstr("\"key\": \"b\"")));
}

TEST_F(CommandsTest, ShowPrintsExactValues) {
  const ShowOptions options{.common = json_, .key = "a.w", .slice = ""};
  EXPECT_THAT(RunShow(Checkpoint(), options, streams_), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(out_.text(),
              HasSubstr("\"values\": [[1.0, 2.0, 3.0], [4.0, 5.0, 0.10000000149011612]]"));
  EXPECT_THAT(out_.text(), HasSubstr("\"min\":0.10000000149011612,\"max\":5.0"));
}

TEST_F(CommandsTest, ShowKeepsAll64Bits) {
  const ShowOptions options{.common = json_, .key = "b", .slice = ""};
  EXPECT_THAT(RunShow(Checkpoint(), options, streams_), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(out_.text(), HasSubstr("[-9223372036854775808, 9223372036854775807]"));
}

TEST_F(CommandsTest, ShowSlicesAsNumpyDoes) {
  const ShowOptions options{.common = json_, .key = "a.w", .slice = "-1,1:"};
  EXPECT_THAT(RunShow(Checkpoint(), options, streams_), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(out_.text(), HasSubstr("\"offset\": [1, 1]"));
  EXPECT_THAT(out_.text(), HasSubstr("\"values\": [5.0, 0.10000000149011612]"));
}

TEST_F(CommandsTest, ShowNeedsNoMoreThanItsBudget) {
  ShowOptions options{.common = json_, .key = "a.w", .slice = ""};
  options.common.memory_budget = 16;  // blocks of one element
  EXPECT_THAT(RunShow(Checkpoint(), options, streams_), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(out_.text(), HasSubstr("[[1.0, 2.0, 3.0], [4.0, 5.0, 0.10000000149011612]]"));
}

TEST_F(CommandsTest, ShowSuggestsTheNearestKey) {
  const ShowOptions options{.common = json_, .key = "a.v", .slice = ""};
  const auto result = RunShow(Checkpoint(), options, streams_);
  ASSERT_THAT(result, FailsWith(ErrorKind::kNotFound));
  EXPECT_THAT(result.status().first().hint, HasSubstr("a.w"));
}

TEST_F(CommandsTest, ShowNamesTheTensorOfAWrongSlice) {
  const ListedCheckpoint& checkpoint = Checkpoint();
  for (const char* slice : {"2", "0,0,0", "0:1:2"}) {
    SCOPED_TRACE(slice);
    const ShowOptions options{.common = json_, .key = "a.w", .slice = slice};
    const auto result = RunShow(checkpoint, options, streams_);
    ASSERT_THAT(result, FailsWith(ErrorKind::kUsage));
    EXPECT_EQ(result.status().first().tensor, "a.w");
    EXPECT_EQ(result.status().first().file, "/run/iter_0000003");
  }
}

TEST_F(CommandsTest, ShowGivesAnObjectsValue) {
  const ShowOptions options{.common = json_, .key = "step", .slice = ""};
  EXPECT_THAT(RunShow(Checkpoint(), options, streams_), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(out_.text(), HasSubstr("\"value\": 7"));
}

TEST_F(CommandsTest, DigestDoesNotDependOnThreads) {
  DigestOptions options{.common = json_, .match = "", .as = ""};
  ASSERT_THAT(RunDigest(Checkpoint(), options, streams_), IsOkAndHolds(ExitCode::kDone));
  cli::StringOutput other;
  Streams streams{.out = other, .err = err_};
  options.common.threads = 1;
  ASSERT_THAT(RunDigest(checkpoint_, options, streams), IsOkAndHolds(ExitCode::kDone));
  EXPECT_EQ(out_.text(), other.text());
}

TEST_F(CommandsTest, DigestRefusesDamageAndNamesTheTensor) {
  source_->Damage("b");
  const auto result = RunDigest(Checkpoint(), {.common = json_, .match = "", .as = ""}, streams_);
  ASSERT_THAT(result, FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(result.status().first().tensor, "b");
  EXPECT_EQ(out_.text(), "");
}

TEST_F(CommandsTest, DigestOfOtherTensorsGoesOn) {
  source_->Damage("b");
  const DigestOptions options{.common = json_, .match = "a.w", .as = ""};
  EXPECT_THAT(RunDigest(Checkpoint(), options, streams_), IsOkAndHolds(ExitCode::kDone));
}

// An entry that the reader could not read is in no index.
TEST_F(CommandsTest, PatternsOfUnreadableTensorsSayWhy) {
  source_->AddProblem(
      Error(ErrorKind::kUnsupported, "an unknown filter").Tensor("a.packed").first());
  const ListedCheckpoint& checkpoint = Checkpoint();
  for (const std::string match : {"a.packed", "*packed"}) {
    SCOPED_TRACE(match);
    const DigestOptions digest{.common = json_, .match = match, .as = ""};
    EXPECT_THAT(RunDigest(checkpoint, digest, streams_), FailsWith(ErrorKind::kUnsupported));
    const TensorsOptions tensors{.common = json_, .match = match};
    EXPECT_THAT(RunTensors(checkpoint, tensors, streams_), FailsWith(ErrorKind::kUnsupported));
    const ShardsOptions shards{.common = json_, .match = match};
    EXPECT_THAT(RunShards(checkpoint, shards, streams_), FailsWith(ErrorKind::kUnsupported));
  }
  EXPECT_EQ(out_.text(), "");
  // The others of the pattern can be listed, and a digest would be of some alone.
  const TensorsOptions some{.common = json_, .match = "a.*"};
  EXPECT_THAT(RunTensors(checkpoint, some, streams_), IsOkAndHolds(ExitCode::kDone));
  const DigestOptions all{.common = json_, .match = "a.*", .as = ""};
  EXPECT_THAT(RunDigest(checkpoint, all, streams_), FailsWith(ErrorKind::kUnsupported));
  const DigestOptions other{.common = json_, .match = "b", .as = ""};
  EXPECT_THAT(RunDigest(checkpoint, other, streams_), IsOkAndHolds(ExitCode::kDone));
}

TEST_F(CommandsTest, VerifyListsDamageAndReturnsIt) {
  source_->Damage("b");
  const auto storage = MakeMemoryStorage();
  const auto result = RunVerify(*storage, Checkpoint(), {.common = json_}, streams_);
  EXPECT_THAT(result, IsOkAndHolds(ExitCode::kDifferent));
  EXPECT_THAT(out_.text(), HasSubstr("\"ok\": false"));
  EXPECT_THAT(out_.text(), HasSubstr("\"tensor\": \"b\""));
}

TEST_F(CommandsTest, VerifyTakesWarningsAsFine) {
  source_->AddProblem(Warning(ErrorKind::kLeftover, "nothing refers to this file", "x"));
  const auto storage = MakeMemoryStorage();
  const auto result = RunVerify(*storage, Checkpoint(), {.common = json_}, streams_);
  EXPECT_THAT(result, IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(out_.text(), HasSubstr("\"severity\": \"warning\""));
  EXPECT_THAT(out_.text(), HasSubstr("\"protection\": \"crc32\""));
}

TEST_F(CommandsTest, VerifyTellsWhatIsNotUnderstoodFromDamage) {
  source_->AddProblem(
      Error(ErrorKind::kUnsupported, "a tensor of a library's own class").Tensor("a.w").first());
  const auto storage = MakeMemoryStorage();
  EXPECT_THAT(RunVerify(*storage, Checkpoint(), {.common = json_}, streams_),
              IsOkAndHolds(ExitCode::kFailed));
  EXPECT_THAT(out_.text(), HasSubstr("\"ok\": false"));
  EXPECT_THAT(out_.text(), HasSubstr("\"not_understood\": [\n    \"a.w\"\n  ]"));
  EXPECT_THAT(RunVerify(*storage, checkpoint_, {}, streams_), IsOkAndHolds(ExitCode::kFailed));
  EXPECT_THAT(out_.text(), HasSubstr("\n1 not understood (a.w), no damage found: "));

  source_->Damage("b");
  EXPECT_THAT(RunVerify(*storage, checkpoint_, {}, streams_), IsOkAndHolds(ExitCode::kDifferent));
  EXPECT_THAT(out_.text(), HasSubstr("\ndamaged, 1 not understood (a.w): "));
}

TEST_F(CommandsTest, QuickVerifyReadsNoTensor) {
  source_->Damage("b");
  const auto storage = MakeMemoryStorage();
  const VerifyOptions options{.common = json_, .quick = true};
  EXPECT_THAT(RunVerify(*storage, Checkpoint(), options, streams_), IsOkAndHolds(ExitCode::kDone));
}

TEST_F(CommandsTest, MetaListsObjects) {
  EXPECT_THAT(RunMeta(Checkpoint(), {.common = json_}, streams_), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(out_.text(), HasSubstr("\"step\": 7"));
}

TEST_F(CommandsTest, MetaListsWhatIsWrongElsewhere) {
  source_->AddProblem(Error(ErrorKind::kOutOfRange, "a negative offset").Tensor("b").first());
  EXPECT_THAT(RunMeta(Checkpoint(), {.common = json_}, streams_), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(out_.text(), HasSubstr("\"message\": \"a negative offset\""));
}

TEST_F(CommandsTest, ShardsSayWhereEveryChunkLies) {
  const ShardsOptions options{.common = json_, .match = "a.w"};
  EXPECT_THAT(RunShards(Checkpoint(), options, streams_), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(out_.text(), HasSubstr("\"file\": \"a.w.bin\""));
  EXPECT_THAT(out_.text(), HasSubstr("\"length\": 24"));
  EXPECT_THAT(out_.text(), HasSubstr("\"bytes\": 24"));
}

}  // namespace
}  // namespace ckpt::inspect
