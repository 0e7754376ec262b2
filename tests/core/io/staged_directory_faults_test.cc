// Every change that a commit makes fails in turn: an error, and at the target the old directory or
// the new one, whole.
#include <functional>
#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "core/io/staged_directory.h"
#include "tests/testing/fault_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FaultStorage;
using testing::IsOk;
using testing::IsOkAndHolds;

const Path kTarget = "/runs/new/target";

// What a run leaves: two files, one of them in a directory of its own.
Status Commit(Storage& storage, const StagedDirectory::Options& options) {
  CKPT_ASSIGN_OR_RETURN(StagedDirectory staged, StagedDirectory::Open(storage, kTarget, options));
  if (!staged.resumed()) CKPT_RETURN_IF_ERROR(storage.MakeDirectories(staged.path() / "inner"));
  for (const char* name : {"a", "inner/b"}) {
    CKPT_RETURN_IF_ERROR(ReplaceSmallFile(storage, staged.path() / name, AsBytes("new")));
  }
  return staged.Publish();
}

// "old", "new", "nothing"; fails the test on anything in between.
std::string TargetContent(Storage& storage) {
  if (storage.Stat(kTarget)->type == FileType::kMissing) return "nothing";
  const auto a = ReadSmallFile(storage, kTarget / "a", 100);
  const auto b = ReadSmallFile(storage, kTarget / "inner/b", 100);
  EXPECT_THAT(a, IsOk());
  EXPECT_THAT(b, IsOk());
  EXPECT_EQ(*a, *b);
  return *a;
}

// Fails call after call until the commit comes through; `before` fills the storage.
void FailEveryCall(const StagedDirectory::Options& options,
                   const std::function<void(Storage&)>& before, const std::string& old) {
  for (const auto mode : {FaultStorage::Mode::kOnce, FaultStorage::Mode::kFromThenOn}) {
    int failed = 0;
    for (int call = 0;; ++call) {
      SCOPED_TRACE(call);
      const std::unique_ptr<Storage> memory = MakeMemoryStorage();
      before(*memory);
      FaultStorage storage(*memory, call, ErrorKind::kNoSpace, mode);
      const Status status = Commit(storage, options);
      const std::string content = TargetContent(*memory);
      if (status.ok()) {
        EXPECT_LE(storage.calls(), call) << "a failure was swallowed";
        EXPECT_EQ(content, "new");
        break;
      }
      ++failed;
      EXPECT_EQ(status.kind(), ErrorKind::kNoSpace);
      EXPECT_THAT(content, ::testing::AnyOf(old, "new"));
    }
    EXPECT_GT(failed, 8);
  }
}

void WriteOld(Storage& storage, const Path& directory) {
  EXPECT_THAT(storage.MakeDirectories(directory / "inner"), IsOk());
  EXPECT_THAT(WriteSmallFile(storage, directory / "a", AsBytes("old")), IsOk());
  EXPECT_THAT(WriteSmallFile(storage, directory / "inner/b", AsBytes("old")), IsOk());
}

TEST(StagedDirectoryFaultsTest, OfAFreshTargetLeaveNothingOrAll) {
  FailEveryCall(
      {}, [](Storage&) {}, "nothing");
}

TEST(StagedDirectoryFaultsTest, OfAReplacedTargetLeaveTheOldOneOrTheNewOne) {
  FailEveryCall(
      {.if_target_exists = StagedDirectory::IfTargetExists::kReplace},
      [](Storage& storage) { WriteOld(storage, kTarget); }, "old");
}

TEST(StagedDirectoryFaultsTest, OfLeftoversThatAreDiscardedLeaveNothingOrAll) {
  FailEveryCall(
      {}, [](Storage& storage) { WriteOld(storage, kTarget.string() + ".ckptkit-partial"); },
      "nothing");
}

TEST(StagedDirectoryFaultsTest, OfLeftoversThatAreKeptLeaveNothingOrAll) {
  FailEveryCall(
      {.if_staging_exists = StagedDirectory::IfStagingExists::kKeep},
      [](Storage& storage) { WriteOld(storage, kTarget.string() + ".ckptkit-partial"); },
      "nothing");
}

// What a killed run may have made: an empty directory whose own name is not durable.
TEST(StagedDirectoryFaultsTest, OfAnEmptyParentLeaveNothingOrAll) {
  FailEveryCall(
      {},
      [](Storage& storage) { EXPECT_THAT(storage.MakeDirectories(kTarget.parent_path()), IsOk()); },
      "nothing");
}

}  // namespace
}  // namespace ckpt
