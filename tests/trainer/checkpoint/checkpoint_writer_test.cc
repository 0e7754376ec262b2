// Ranks that write a checkpoint together publish all of it or nothing.
#include "trainer/checkpoint/checkpoint_writer.h"

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/memory_source.h"
#include "core/io/memory_storage.h"
#include "core/layout/affine.h"
#include "core/manifest/manifest_text.h"
#include "core/manifest/verify_manifest.h"
#include "formats/dcp/writer.h"
#include "tests/testing/fault_storage.h"
#include "tests/testing/matchers.h"
#include "tests/testing/run_root.h"
#include "tests/trainer/comm/no_more_threads.h"
#include "trainer/comm/thread_comm.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using testing::FaultStorage;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;
using ::testing::Not;

constexpr int kRanks = 3;
constexpr std::int64_t kRows = 4;  // of each rank
constexpr std::int64_t kRowElems = 6;
constexpr std::uint64_t kRankBytes = kRows * kRowElems * sizeof(float);
const Path kTarget = "/run/iter_0000007";

// One tensor, of which every rank has four rows with `value` in them.
WriteJob JobOf(int rank, float value) {
  const Dims shape = {kRows * kRanks, kRowElems};
  IndexBuilder builder;
  const EncodingId raw = builder.AddEncoding("raw");
  builder.AddTensor("t", DType::kFloat32, shape);
  dcp::WriterOptions options;
  options.placed.emplace_back();
  for (int r = 0; r < kRanks; ++r) {
    const Box box = {.offsets = {r * kRows, 0}, .sizes = {kRows, kRowElems}};
    builder.AddChunk(box, builder.AddFile("rank-" + std::to_string(r)), raw, 0, kRankBytes);
    options.placed.back().push_back({.box = box, .writer = static_cast<std::uint32_t>(r)});
  }
  WriteJob job;
  job.plan.write =
      dcp::PlanDcp({{.key = "t", .dtype = DType::kFloat32, .shape = shape}}, options).value();
  job.plan.recipes = {{.nests = {layout::IdentityNest(0, shape)}, .source_dtype = DType::kFloat32}};
  for (int r = 0; r < kRanks; ++r) job.writers.push_back(r);
  const std::vector<float> values(kRows * kRowElems, value);
  const ByteSpan bytes = std::as_bytes(std::span(values));
  std::vector<std::shared_ptr<const ReadableFile>> files(kRanks);
  files[static_cast<std::size_t>(rank)] = MakeMemoryFile("rank", Bytes(bytes.begin(), bytes.end()));
  job.source = MakePartialSource(builder.Build().value(), std::move(files)).value();
  job.target = kTarget;
  job.staging.if_target_exists = StagedDirectory::IfTargetExists::kReplace;
  job.tool = "test";
  return job;
}

using SaveBody = std::function<Status(CheckpointWriter&, HostGroup&)>;

// Runs the body on every rank; `storage_of` gives each its way to the disk. Statuses by rank; ranks
// that failed abort nobody, as in a run that goes on to report.
std::vector<Status> RunWriters(const std::function<Storage&(int rank)>& storage_of,
                               const SaveBody& body) {
  std::vector<Status> statuses(kRanks);
  const Status all = RunRanks(kRanks, [&](HostGroup& world) -> Status {
    CheckpointWriter writer(storage_of(world.rank()), world);
    statuses[static_cast<std::size_t>(world.rank())] = body(writer, world);
    return OkStatus();
  });
  EXPECT_THAT(all, IsOk());
  return statuses;
}

Status Save(CheckpointWriter& writer, HostGroup& world, float value) {
  CKPT_RETURN_IF_ERROR(writer.Start(JobOf(world.rank(), value)));
  return writer.Finish();
}

// The files below `directory` and their contents, each of them proved by the manifest.
Result<std::vector<std::string>> ReadWhole(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(
      const std::string text,
      ReadSmallFile(storage, directory / std::string(kManifestName), kMaxManifestBytes));
  CKPT_ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(text, "manifest"));
  CKPT_ASSIGN_OR_RETURN(std::vector<Problem> problems,
                        VerifyManifest(storage, directory, manifest, testing::kRunRoot));
  if (!problems.empty()) return Status(std::move(problems));
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListRecursively(storage, directory));
  std::vector<std::string> contents;
  for (const std::string& name : names) {
    CKPT_ASSIGN_OR_RETURN(std::string content, ReadSmallFile(storage, directory / name, 1 << 20));
    contents.push_back(name + ": " + std::move(content));
  }
  return contents;
}

class CheckpointWriterTest : public ::testing::Test {
 protected:
  Storage& OnDisk(int /*rank*/) { return *storage_; }
  std::vector<Status> SaveOnAll(float value) {
    return RunWriters(
        [this](int rank) -> Storage& { return OnDisk(rank); },
        [&](CheckpointWriter& writer, HostGroup& world) { return Save(writer, world, value); });
  }
  // What is under the target's name after a whole save.
  std::vector<std::string> Expected(float value) {
    const std::unique_ptr<Storage> storage = MakeMemoryStorage();
    const auto on_it = [&](int /*rank*/) -> Storage& { return *storage; };
    const auto save = [&](CheckpointWriter& writer, HostGroup& world) {
      return Save(writer, world, value);
    };
    for (const Status& status : RunWriters(on_it, save)) EXPECT_THAT(status, IsOk());
    const auto whole = ReadWhole(*storage, kTarget);
    EXPECT_THAT(whole, IsOk());
    return whole.ok() ? *whole : std::vector<std::string>();
  }
  bool Exists(const Path& path) { return storage_->Stat(path).value().type != FileType::kMissing; }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(CheckpointWriterTest, PublishesWhatAllRanksWroteWithAManifestThatProvesIt) {
  for (const Status& status : SaveOnAll(1)) ASSERT_THAT(status, IsOk());
  const auto whole = ReadWhole(*storage_, kTarget);
  ASSERT_THAT(whole, IsOk());
  EXPECT_EQ(whole->size(), kRanks + 2U);  // data files, .metadata, manifest
  EXPECT_FALSE(Exists(kTarget.string() + ".ckptkit-partial"));
}

// A rank that gets no thread for it writes when it is asked how far it is.
TEST_F(CheckpointWriterTest, WritesWithoutAThreadOfItsOwn) {
  const std::vector<std::string> expected = Expected(2);
  std::optional<testing::NoMoreThreads> limit;
  const auto save = [&](CheckpointWriter& writer, HostGroup& world) -> Status {
    CKPT_RETURN_IF_ERROR(world.Barrier());  // every rank has the thread that it runs on
    if (world.rank() == 0) limit.emplace();
    CKPT_RETURN_IF_ERROR(world.Barrier());
    CKPT_RETURN_IF_ERROR(writer.Start(JobOf(world.rank(), 2)));
    while (writer.busy()) CKPT_RETURN_IF_ERROR(writer.Poll());
    return OkStatus();
  };
  const auto on_disk = [this](int rank) -> Storage& { return OnDisk(rank); };
  for (const Status& status : RunWriters(on_disk, save)) EXPECT_THAT(status, IsOk());
  limit.reset();
  EXPECT_THAT(ReadWhole(*storage_, kTarget), IsOkAndHolds(expected));
}

TEST_F(CheckpointWriterTest, GivesTheSameBytesWhenItIsPolled) {
  const auto poll = [&](CheckpointWriter& writer, HostGroup& world) -> Status {
    CKPT_RETURN_IF_ERROR(writer.Start(JobOf(world.rank(), 1)));
    EXPECT_TRUE(writer.busy());
    while (writer.busy()) CKPT_RETURN_IF_ERROR(writer.Poll());
    return writer.Poll();  // nothing to do
  };
  const auto on_disk = [this](int rank) -> Storage& { return OnDisk(rank); };
  for (const Status& status : RunWriters(on_disk, poll)) ASSERT_THAT(status, IsOk());
  EXPECT_THAT(ReadWhole(*storage_, kTarget), IsOkAndHolds(Expected(1)));
}

TEST_F(CheckpointWriterTest, GivesTheSameBytesOnSeveralThreads) {
  const auto save = [&](CheckpointWriter& writer, HostGroup& world) -> Status {
    WriteJob job = JobOf(world.rank(), 1);
    job.threads = 1 + world.rank();
    CKPT_RETURN_IF_ERROR(writer.Start(std::move(job)));
    return writer.Finish();
  };
  const auto on_disk = [this](int rank) -> Storage& { return OnDisk(rank); };
  for (const Status& status : RunWriters(on_disk, save)) ASSERT_THAT(status, IsOk());
  EXPECT_THAT(ReadWhole(*storage_, kTarget), IsOkAndHolds(Expected(1)));
}

TEST_F(CheckpointWriterTest, SavesAgainAndAgain) {
  const auto thrice = [&](CheckpointWriter& writer, HostGroup& world) -> Status {
    for (const float value : {1.0F, 2.0F, 3.0F}) {
      CKPT_RETURN_IF_ERROR(Save(writer, world, value));
    }
    return OkStatus();
  };
  const auto on_disk = [this](int rank) -> Storage& { return OnDisk(rank); };
  for (const Status& status : RunWriters(on_disk, thrice)) ASSERT_THAT(status, IsOk());
  EXPECT_THAT(ReadWhole(*storage_, kTarget), IsOkAndHolds(Expected(3)));
}

TEST_F(CheckpointWriterTest, TellsTheRankThatFailedItsErrorAndTheOthersWhoItWas) {
  FaultStorage broken(*storage_, 0, ErrorKind::kNoSpace);
  const std::vector<Status> statuses =
      RunWriters([&](int rank) -> Storage& { return rank == 1 ? broken : *storage_; },
                 [&](CheckpointWriter& writer, HostGroup& world) {
                   const Status status = Save(writer, world, 1);
                   EXPECT_FALSE(writer.busy());
                   return status;
                 });
  EXPECT_THAT(statuses[1], FailsWith(ErrorKind::kNoSpace));
  for (const int other : {0, 2}) {
    const Status& status = statuses[static_cast<std::size_t>(other)];
    EXPECT_THAT(status, FailsWith(ErrorKind::kCancelled));
    EXPECT_THAT(status.ToString(), HasSubstr("rank 1"));
    EXPECT_THAT(status.ToString(), HasSubstr("saving " + kTarget.string()));
  }
  EXPECT_FALSE(Exists(kTarget));
}

// Each call that changes something fails, on each rank, over an older checkpoint of the name.
TEST_F(CheckpointWriterTest, KeepsTheOldCheckpointWhateverFails) {
  const std::vector<std::string> old_one = Expected(1);
  const std::vector<std::string> new_one = Expected(2);
  ASSERT_NE(old_one, new_one);
  int failures = 0;
  for (int failing = 0; failing < kRanks; ++failing) {
    for (int call = 0;; ++call) {
      SCOPED_TRACE(::testing::Message() << "rank " << failing << ", call " << call);
      storage_ = MakeMemoryStorage();
      for (const Status& status : SaveOnAll(1)) ASSERT_THAT(status, IsOk());
      FaultStorage broken(*storage_, call);
      const std::vector<Status> statuses = RunWriters(
          [&](int rank) -> Storage& { return rank == failing ? broken : *storage_; },
          [&](CheckpointWriter& writer, HostGroup& world) { return Save(writer, world, 2); });
      const auto whole = ReadWhole(*storage_, kTarget);
      ASSERT_THAT(whole, IsOk());
      if (broken.calls() <= call) {  // nothing was left to fail
        for (const Status& status : statuses) EXPECT_THAT(status, IsOk());
        EXPECT_EQ(*whole, new_one);
        break;
      }
      ++failures;
      for (const Status& status : statuses) EXPECT_FALSE(status.ok());
      EXPECT_THAT(statuses[static_cast<std::size_t>(failing)], FailsWith(ErrorKind::kIo));
      EXPECT_TRUE(*whole == old_one || *whole == new_one);
      // The next save succeeds, whatever was left behind.
      for (const Status& status : SaveOnAll(2)) EXPECT_THAT(status, IsOk());
      EXPECT_THAT(ReadWhole(*storage_, kTarget), IsOkAndHolds(new_one));
    }
  }
  EXPECT_GE(failures, 20);
}

TEST_F(CheckpointWriterTest, CallsPublishedOnRankZeroWhenTheTargetIsThereAndReportsWhatItSays) {
  std::atomic<int> calls = 0;
  const std::vector<Status> statuses =
      RunWriters([this](int rank) -> Storage& { return OnDisk(rank); },
                 [&](CheckpointWriter& writer, HostGroup& world) -> Status {
                   WriteJob job = JobOf(world.rank(), 1);
                   job.published = [&]() -> Status {
                     ++calls;
                     EXPECT_TRUE(Exists(kTarget));
                     return Error(ErrorKind::kNoSpace, "no room for the tracker");
                   };
                   CKPT_RETURN_IF_ERROR(writer.Start(std::move(job)));
                   return writer.Finish();
                 });
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(statuses[0], FailsWith(ErrorKind::kNoSpace));
  EXPECT_THAT(statuses[1], FailsWith(ErrorKind::kCancelled));
}

TEST_F(CheckpointWriterTest, RefusesATargetThatMayNotBeReplaced) {
  for (const Status& status : SaveOnAll(1)) ASSERT_THAT(status, IsOk());
  const std::vector<Status> statuses =
      RunWriters([this](int rank) -> Storage& { return OnDisk(rank); },
                 [&](CheckpointWriter& writer, HostGroup& world) -> Status {
                   WriteJob job = JobOf(world.rank(), 2);
                   job.staging = {};
                   const Status status = writer.Start(std::move(job));
                   EXPECT_FALSE(writer.busy());
                   return status;
                 });
  EXPECT_THAT(statuses[0], FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(statuses[2], FailsWith(ErrorKind::kCancelled));
  EXPECT_THAT(ReadWhole(*storage_, kTarget), IsOkAndHolds(Expected(1)));
}

TEST_F(CheckpointWriterTest, PublishesNothingWhenItGoesBeforeAllHaveWritten) {
  RunWriters([this](int rank) -> Storage& { return OnDisk(rank); },
             [&](CheckpointWriter& writer, HostGroup& world) {
               return writer.Start(JobOf(world.rank(), 1));
             });
  EXPECT_FALSE(Exists(kTarget));
}

TEST_F(CheckpointWriterTest, EndsWithAnErrorWhenARankIsGone) {
  const std::vector<Status> statuses =
      RunWriters([this](int rank) -> Storage& { return OnDisk(rank); },
                 [&](CheckpointWriter& writer, HostGroup& world) -> Status {
                   CKPT_RETURN_IF_ERROR(writer.Start(JobOf(world.rank(), 1)));
                   if (world.rank() == 2) return OkStatus();  // leaves
                   return writer.Finish();
                 });
  EXPECT_THAT(statuses[0], FailsWith(ErrorKind::kCancelled));
  EXPECT_THAT(statuses[1], FailsWith(ErrorKind::kCancelled));
  EXPECT_FALSE(Exists(kTarget));
}

}  // namespace
}  // namespace ckpt::trainer
