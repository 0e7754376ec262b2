// One suite of promises, run by every Storage.
#include "core/io/storage.h"

#include <algorithm>
#include <memory>

#include <boost/filesystem/operations.hpp>
#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/io/checksummed_read.h"
#include "core/io/made_directories.h"
#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "core/io/staged_directory.h"
#include "tests/reliability/crash_storage.h"
#include "tests/testing/fault_storage.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;
using testing::TempDir;

enum class Kind : std::uint8_t { kPosix, kMemory, kCrash };
void PrintTo(Kind kind, std::ostream* os) {
  *os << (kind == Kind::kPosix ? "posix" : kind == Kind::kMemory ? "memory" : "crash");
}

class StorageTest : public ::testing::TestWithParam<Kind> {
 protected:
  StorageTest() {
    if (GetParam() == Kind::kMemory) memory_ = MakeMemoryStorage();
    if (GetParam() == Kind::kCrash) memory_ = std::make_unique<testing::CrashStorage>();
    EXPECT_THAT(storage().MakeDirectories(dir()), IsOk());
  }
  Storage& storage() { return GetParam() == Kind::kPosix ? PosixStorage() : *memory_; }
  const Path& dir() const { return temp_.path(); }

  void Write(const Path& path, std::string_view text) {
    EXPECT_THAT(WriteSmallFile(storage(), path, AsBytes(text)), IsOk());
  }
  Result<std::string> Read(const Path& path) { return ReadSmallFile(storage(), path, 1000); }
  FileType TypeOf(const Path& path) { return storage().Stat(path).value().type; }

 private:
  TempDir temp_;
  std::unique_ptr<Storage> memory_;  // null: the real one
};

INSTANTIATE_TEST_SUITE_P(All, StorageTest,
                         ::testing::Values(Kind::kPosix, Kind::kMemory, Kind::kCrash),
                         ::testing::PrintToStringParamName());

// Longer than the pieces that it is read in, and at no round number.
TEST_P(StorageTest, ReadsWithTheChecksumOfWhatWasRead) {
  Bytes written(300'001);
  for (std::size_t i = 0; i < written.size(); ++i) written[i] = static_cast<std::byte>(i * i >> 7);
  ASSERT_THAT(WriteSmallFile(storage(), dir() / "f", written), IsOk());
  const auto file = storage().Open(dir() / "f");
  ASSERT_THAT(file, IsOk());
  for (const std::size_t offset : {0U, 1U, 131'072U, 300'000U, 300'001U}) {
    Bytes read(written.size() - offset);
    EXPECT_THAT(ReadAtWithCrc32c(**file, offset, read),
                IsOkAndHolds(Crc32c(ByteSpan(written).subspan(offset))));
    EXPECT_TRUE(std::ranges::equal(read, ByteSpan(written).subspan(offset)));
  }
  Bytes too_long(written.size() + 1);
  EXPECT_THAT(ReadAtWithCrc32c(**file, 0, too_long), FailsWith(ErrorKind::kTruncated));
}

TEST_P(StorageTest, ShowsWhatItReadInOrderAndOnce) {
  Bytes written(5 << 20 | 3);
  for (std::size_t i = 0; i < written.size(); ++i) written[i] = static_cast<std::byte>(i * i >> 7);
  ASSERT_THAT(WriteSmallFile(storage(), dir() / "f", written), IsOk());
  const auto file = storage().Open(dir() / "f");
  ASSERT_THAT(file, IsOk());
  Bytes read(written.size() - 5);
  std::size_t shown = 0;
  ASSERT_THAT((*file)->ReadInPieces(5, read,
                                    [&](ByteSpan piece) {
                                      EXPECT_EQ(piece.data(), read.data() + shown);
                                      shown += piece.size();
                                      return OkStatus();
                                    }),
              IsOk());
  EXPECT_EQ(shown, read.size());
  EXPECT_TRUE(std::ranges::equal(read, ByteSpan(written).subspan(5)));
  // Who looks at it may end it.
  int pieces = 0;
  const auto refuse = [&](ByteSpan /*piece*/) {
    ++pieces;
    return Error(ErrorKind::kChecksum, "seen enough");
  };
  EXPECT_THAT((*file)->ReadInPieces(5, read, refuse), FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(pieces, 1);
  const auto accept = [](ByteSpan /*piece*/) { return OkStatus(); };
  EXPECT_THAT((*file)->ReadInPieces(6, read, accept), FailsWith(ErrorKind::kTruncated));
}

TEST_P(StorageTest, ReadsWhatWasWritten) {
  Write(dir() / "f", "hello");
  const auto file = storage().Open(dir() / "f");
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ((*file)->size_bytes(), 5U);
  Bytes part(3);
  ASSERT_THAT((*file)->ReadAt(1, part), IsOk());
  EXPECT_EQ(AsText(part), "ell");
  const auto view = (*file)->View();
  ASSERT_THAT(view, IsOk());
  EXPECT_EQ(AsText((*view)->bytes()), "hello");
}

TEST_P(StorageTest, FindsTheWayOutOfADirectory) {
  ASSERT_THAT(storage().MakeDirectories(dir() / "a" / "b"), IsOk());
  ASSERT_THAT(WriteSmallFile(storage(), dir() / "f", AsBytes("content")), IsOk());
  EXPECT_THAT(ReadSmallFile(storage(), dir() / "a" / "b" / ".." / ".." / "f", 100),
              IsOkAndHolds("content"));
}

TEST_P(StorageTest, ReadsNothingPastTheEnd) {
  Write(dir() / "f", "hello");
  const auto file = storage().Open(dir() / "f");
  ASSERT_THAT(file, IsOk());
  Bytes two(2);
  EXPECT_THAT((*file)->ReadAt(4, two), FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT((*file)->ReadAt(UINT64_MAX, two), FailsWith(ErrorKind::kTruncated));
}

TEST_P(StorageTest, CreatesOnlyNewFiles) {
  Write(dir() / "f", "old");
  EXPECT_THAT(storage().Create(dir() / "f"), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(storage().Create(dir() / "no/f"), FailsWith(ErrorKind::kNotFound));
  EXPECT_THAT(Read(dir() / "f"), IsOkAndHolds("old"));
}

TEST_P(StorageTest, OpensOnlyRegularFiles) {
  EXPECT_THAT(storage().Open(dir() / "absent"), FailsWith(ErrorKind::kNotFound));
  EXPECT_THAT(storage().Open(dir()), FailsWith(ErrorKind::kIo));
}

TEST_P(StorageTest, ResizeFillsWithZeros) {
  auto file = storage().Create(dir() / "f");
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->WriteAt(0, AsBytes("ab")), IsOk());
  ASSERT_THAT((*file)->Resize(4), IsOk());
  ASSERT_THAT((*file)->Sync(), IsOk());
  ASSERT_THAT((*file)->Close(), IsOk());
  EXPECT_THAT(Read(dir() / "f"), IsOkAndHolds(std::string("ab\0\0", 4)));
}

TEST_P(StorageTest, RenameReplacesNothing) {
  Write(dir() / "a", "1");
  Write(dir() / "b", "2");
  EXPECT_THAT(storage().Rename(dir() / "a", dir() / "b"), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(storage().Rename(dir() / "a", dir() / "c"), IsOk());
  EXPECT_EQ(TypeOf(dir() / "a"), FileType::kMissing);
  EXPECT_THAT(Read(dir() / "c"), IsOkAndHolds("1"));
}

TEST_P(StorageTest, WhatCannotMoveStays) {
  Write(dir() / "a", "1");
  EXPECT_THAT(storage().Rename(dir() / "a", dir() / "none/a"), FailsWith(ErrorKind::kNotFound));
  EXPECT_THAT(storage().Exchange(dir() / "a", dir() / "none"), FailsWith(ErrorKind::kNotFound));
  EXPECT_THAT(storage().Exchange(dir() / "none", dir() / "a"), FailsWith(ErrorKind::kNotFound));
  EXPECT_THAT(Read(dir() / "a"), IsOkAndHolds("1"));
}

TEST_P(StorageTest, ExchangeSwapsDirectories) {
  ASSERT_THAT(storage().MakeDirectories(dir() / "x"), IsOk());
  ASSERT_THAT(storage().MakeDirectories(dir() / "y"), IsOk());
  Write(dir() / "x/f", "from x");
  ASSERT_THAT(storage().Exchange(dir() / "x", dir() / "y"), IsOk());
  EXPECT_THAT(Read(dir() / "y/f"), IsOkAndHolds("from x"));
  EXPECT_EQ(TypeOf(dir() / "x/f"), FileType::kMissing);
}

TEST_P(StorageTest, ListsRecursivelyInByteOrder) {
  ASSERT_THAT(storage().MakeDirectories(dir() / "b/c"), IsOk());
  Write(dir() / "b/c/2", "");
  Write(dir() / "b.txt", "");
  Write(dir() / "a", "");
  EXPECT_THAT(ListRecursively(storage(), dir()),
              IsOkAndHolds(::testing::ElementsAre("a", "b.txt", "b/c/2")));
  EXPECT_THAT(ListRecursively(storage(), dir(), 2), FailsWith(ErrorKind::kResource));
}

TEST_P(StorageTest, RemovesWholeDirectoriesAndMissingPaths) {
  ASSERT_THAT(storage().MakeDirectories(dir() / "b/c"), IsOk());
  Write(dir() / "b/c/2", "");
  EXPECT_THAT(storage().RemoveAll(dir() / "b"), IsOk());
  EXPECT_THAT(storage().RemoveAll(dir() / "b"), IsOk());
  EXPECT_EQ(TypeOf(dir() / "b"), FileType::kMissing);
}

TEST_P(StorageTest, RemovesADirectoryOnlyIfItIsEmpty) {
  ASSERT_THAT(storage().MakeDirectories(dir() / "a" / "b"), IsOk());
  EXPECT_THAT(storage().RemoveEmptyDirectory(dir() / "a"), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_EQ(storage().Stat(dir() / "a" / "b")->type, FileType::kDirectory);
  EXPECT_THAT(storage().RemoveEmptyDirectory(dir() / "a" / "b"), IsOk());
  EXPECT_THAT(storage().RemoveEmptyDirectory(dir() / "a"), IsOk());
  EXPECT_EQ(storage().Stat(dir() / "a")->type, FileType::kMissing);
  EXPECT_THAT(storage().RemoveEmptyDirectory(dir() / "a"), FailsWith(ErrorKind::kNotFound));
}

TEST_P(StorageTest, AFileIsLockedToItsHolderUntilItIsClosed) {
  const Path path = dir() / "log";
  {
    const auto held = storage().Create(path);
    ASSERT_THAT(held, IsOk());
    ASSERT_THAT((*held)->Lock(), IsOk());
    const auto other = storage().OpenForUpdate(path);
    ASSERT_THAT(other, IsOk());
    EXPECT_THAT((*other)->Lock(), FailsWith(ErrorKind::kAlreadyExists));
    EXPECT_EQ((*other)->Lock().first().file, path.string());
    ASSERT_THAT((*held)->Close(), IsOk());
    EXPECT_THAT((*other)->Lock(), IsOk());
  }
  const auto next = storage().OpenForUpdate(path);
  ASSERT_THAT(next, IsOk());
  EXPECT_THAT((*next)->Lock(), IsOk());
}

TEST_P(StorageTest, AFileThatLostItsNameIsNotLocked) {
  const Path path = dir() / "log";
  const auto removed = storage().Create(path);
  ASSERT_THAT(removed, IsOk());
  ASSERT_THAT(storage().RemoveAll(path), IsOk());
  EXPECT_THAT((*removed)->Lock(), FailsWith(ErrorKind::kNotFound));
  const auto replaced = storage().Create(path);
  ASSERT_THAT(replaced, IsOk());
  EXPECT_THAT((*removed)->Lock(), FailsWith(ErrorKind::kNotFound)) << "another file has the name";
  Write(dir() / "other", "");
  ASSERT_THAT(storage().Exchange(path, dir() / "other"), IsOk());
  EXPECT_THAT((*replaced)->Lock(), FailsWith(ErrorKind::kNotFound));
  const auto named = storage().OpenForUpdate(path);
  ASSERT_THAT(named, IsOk());
  EXPECT_THAT((*named)->Lock(), IsOk());
}

class MadeDirectoriesTest : public StorageTest {};
INSTANTIATE_TEST_SUITE_P(All, MadeDirectoriesTest,
                         ::testing::Values(Kind::kPosix, Kind::kMemory, Kind::kCrash),
                         ::testing::PrintToStringParamName());

TEST_P(MadeDirectoriesTest, GoAgainIfOneOfThemCannotBeMade) {
  ASSERT_THAT(storage().MakeDirectories(dir() / "there"), IsOk());
  for (int fail_at = 0; fail_at < 4; ++fail_at) {
    testing::FaultStorage faulty(storage(), fail_at, ErrorKind::kIo,
                                 testing::FaultStorage::Mode::kOnce);
    EXPECT_FALSE(MadeDirectories::Make(faulty, dir() / "there" / "a" / "b").ok());
    const auto left = storage().List(dir() / "there");
    ASSERT_THAT(left, IsOk());
    EXPECT_TRUE(left->empty()) << "after failure " << fail_at;
  }
}

TEST_P(MadeDirectoriesTest, GoAgainUnlessSomethingIsInThem) {
  ASSERT_THAT(storage().MakeDirectories(dir() / "there"), IsOk());
  {
    const auto made = MadeDirectories::Make(storage(), dir() / "there" / "a" / "b");
    ASSERT_THAT(made, IsOk());
    EXPECT_EQ(storage().Stat(dir() / "there" / "a" / "b")->type, FileType::kDirectory);
  }
  EXPECT_EQ(storage().Stat(dir() / "there" / "a")->type, FileType::kMissing);
  EXPECT_EQ(storage().Stat(dir() / "there")->type, FileType::kDirectory) << "it was there before";
  {
    const auto made = MadeDirectories::Make(storage(), dir() / "there" / "a" / "b");
    ASSERT_THAT(made, IsOk());
    ASSERT_THAT(storage().Create(dir() / "there" / "a" / "file"), IsOk());
  }
  EXPECT_EQ(storage().Stat(dir() / "there" / "a" / "b")->type, FileType::kMissing);
  EXPECT_EQ(storage().Stat(dir() / "there" / "a" / "file")->type, FileType::kRegular);
}

TEST_P(StorageTest, SmallFilesHaveALimit) {
  Write(dir() / "f", "hello");
  EXPECT_THAT(ReadSmallFile(storage(), dir() / "f", 4), FailsWith(ErrorKind::kResource));
}

using StagedDirectoryTest = StorageTest;
INSTANTIATE_TEST_SUITE_P(All, StagedDirectoryTest,
                         ::testing::Values(Kind::kPosix, Kind::kMemory, Kind::kCrash),
                         ::testing::PrintToStringParamName());

TEST_P(StagedDirectoryTest, AppearsOnlyWhenPublished) {
  auto staged = StagedDirectory::Open(storage(), dir() / "out", {});
  ASSERT_THAT(staged, IsOk());
  Write(staged->path() / "f", "new");
  EXPECT_EQ(TypeOf(dir() / "out"), FileType::kMissing);
  ASSERT_THAT(staged->Publish(), IsOk());
  EXPECT_THAT(Read(dir() / "out/f"), IsOkAndHolds("new"));
  EXPECT_EQ(TypeOf(staged->path()), FileType::kMissing);
}

TEST_P(StagedDirectoryTest, RefusesAnExistingTarget) {
  ASSERT_THAT(storage().MakeDirectories(dir() / "out"), IsOk());
  EXPECT_THAT(StagedDirectory::Open(storage(), dir() / "out/", {}),
              FailsWith(ErrorKind::kAlreadyExists));
}

TEST_P(StagedDirectoryTest, ReplacesTheWholeTarget) {
  ASSERT_THAT(storage().MakeDirectories(dir() / "out"), IsOk());
  Write(dir() / "out/old", "old");
  auto staged = StagedDirectory::Open(
      storage(), dir() / "out", {.if_target_exists = StagedDirectory::IfTargetExists::kReplace});
  ASSERT_THAT(staged, IsOk());
  Write(staged->path() / "f", "new");
  EXPECT_THAT(Read(dir() / "out/old"), IsOkAndHolds("old"));
  ASSERT_THAT(staged->Publish(), IsOk());
  EXPECT_THAT(ListRecursively(storage(), dir()), IsOkAndHolds(::testing::ElementsAre("out/f")));
}

TEST_P(StagedDirectoryTest, DiscardsOrKeepsTheLeftoverOfAnEarlierRun) {
  ASSERT_THAT(storage().MakeDirectories(dir() / "out.ckptkit-partial"), IsOk());
  Write(dir() / "out.ckptkit-partial/f", "half");
  {
    const auto kept = StagedDirectory::Open(
        storage(), dir() / "out", {.if_staging_exists = StagedDirectory::IfStagingExists::kKeep});
    ASSERT_THAT(kept, IsOk());
    EXPECT_TRUE(kept->resumed());
    EXPECT_THAT(Read(kept->path() / "f"), IsOkAndHolds("half"));
  }
  auto fresh = StagedDirectory::Open(storage(), dir() / "out", {});
  ASSERT_THAT(fresh, IsOk());
  EXPECT_FALSE(fresh->resumed());
  EXPECT_EQ(TypeOf(fresh->path() / "f"), FileType::kMissing);
}

TEST_P(StagedDirectoryTest, EmptiesNoFolderOfTheUsers) {
  for (const char* name : {"out.partial", "out.bak", "out.tmp", ".out"}) {
    ASSERT_THAT(storage().MakeDirectories(dir() / name), IsOk());
    Write(dir() / name / "f", "mine");
  }
  auto staged = StagedDirectory::Open(storage(), dir() / "out", {});
  ASSERT_THAT(staged, IsOk());
  ASSERT_THAT(staged->Publish(), IsOk());
  for (const char* name : {"out.partial", "out.bak", "out.tmp", ".out"}) {
    EXPECT_THAT(Read(dir() / name / "f"), IsOkAndHolds("mine")) << name;
  }
}

TEST_P(StagedDirectoryTest, KeepsOtherRunsOut) {
  const StagedDirectory::Options replace = {.if_target_exists =
                                                StagedDirectory::IfTargetExists::kReplace};
  {
    auto first = StagedDirectory::Open(storage(), dir() / "out", {});
    ASSERT_THAT(first, IsOk());
    Write(first->path() / "f", "first");
    EXPECT_THAT(StagedDirectory::Open(storage(), dir() / "out", {}),
                FailsWith(ErrorKind::kAlreadyExists));
    EXPECT_THAT(Read(first->path() / "f"), IsOkAndHolds("first"));
    ASSERT_THAT(first->Publish(), IsOk());
  }
  EXPECT_THAT(Read(dir() / "out/f"), IsOkAndHolds("first"));
  EXPECT_THAT(StagedDirectory::Open(storage(), dir() / "out", replace), IsOk());
}

TEST_P(StagedDirectoryTest, ReplacesOnlyWhatMayGo) {
  ASSERT_THAT(storage().MakeDirectories(dir() / "out"), IsOk());
  Write(dir() / "out/precious", "1");
  const auto refuse_precious = [](Storage& at, const Path& target) -> Status {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, at.Stat(target / "precious"));
    if (stat.type == FileType::kMissing) return OkStatus();
    return Error(ErrorKind::kAlreadyExists, "precious");
  };
  const StagedDirectory::Options replace = {
      .if_target_exists = StagedDirectory::IfTargetExists::kReplace,
      .may_replace = refuse_precious};
  EXPECT_THAT(StagedDirectory::Open(storage(), dir() / "out", replace),
              FailsWith(ErrorKind::kAlreadyExists));
  ASSERT_THAT(storage().RemoveAll(dir() / "out/precious"), IsOk());
  auto staged = StagedDirectory::Open(storage(), dir() / "out", replace);
  ASSERT_THAT(staged, IsOk());
  Write(dir() / "out/precious", "came while the new one was written");
  EXPECT_THAT(staged->Publish(), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_EQ(TypeOf(dir() / "out/precious"), FileType::kRegular);
}

TEST_P(StagedDirectoryTest, RefusesTargetsThatNameNoDirectory) {
  for (const std::string bad : {"", ".", "..", "/", "a/..", "../..", "./"}) {
    EXPECT_THAT(StagedDirectory::Open(storage(), bad, {}), FailsWith(ErrorKind::kUsage)) << bad;
  }
}

TEST_P(StagedDirectoryTest, NeverTouchesAFileInItsPlace) {
  const StagedDirectory::Options replace = {.if_target_exists =
                                                StagedDirectory::IfTargetExists::kReplace};
  Write(dir() / "out.ckptkit-partial", "a file");
  EXPECT_THAT(StagedDirectory::Open(storage(), dir() / "out", {}),
              FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(Read(dir() / "out.ckptkit-partial"), IsOkAndHolds("a file"));
  Write(dir() / "other", "a file");
  EXPECT_THAT(StagedDirectory::Open(storage(), dir() / "other", replace),
              FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(Read(dir() / "other"), IsOkAndHolds("a file"));
}

class PosixLinksTest : public ::testing::Test {
 protected:
  PosixLinksTest() {
    boost::filesystem::create_directories(dir() / "elsewhere/sub");
    EXPECT_THAT(WriteSmallFile(PosixStorage(), dir() / "elsewhere/f", AsBytes("x")), IsOk());
  }
  const Path& dir() const { return temp_.path(); }

 private:
  TempDir temp_;
};

// ".." behind a link leads to where the link points, not to where it lies.
TEST_F(PosixLinksTest, StagedDirectoriesLieWhereTheSystemFindsThem) {
  boost::filesystem::create_directory_symlink(dir() / "elsewhere/sub", dir() / "link");
  boost::filesystem::create_directory(dir() / "out");
  EXPECT_THAT(WriteSmallFile(PosixStorage(), dir() / "out/precious", AsBytes("x")), IsOk());
  auto staged =
      StagedDirectory::Open(PosixStorage(), dir() / "link/../out",
                            {.if_target_exists = StagedDirectory::IfTargetExists::kReplace});
  ASSERT_THAT(staged, IsOk());
  ASSERT_THAT(staged->Publish(), IsOk());
  EXPECT_TRUE(boost::filesystem::exists(dir() / "out/precious"));
  EXPECT_TRUE(boost::filesystem::is_directory(dir() / "elsewhere/out"));
}

TEST_F(PosixLinksTest, AreRefusedAsStagingOrTarget) {
  boost::filesystem::create_directory_symlink(dir() / "elsewhere", dir() / "out.ckptkit-partial");
  boost::filesystem::create_directory_symlink(dir() / "absent", dir() / "dangling");
  for (const std::string name : {"out", "dangling"}) {
    EXPECT_THAT(
        StagedDirectory::Open(PosixStorage(), dir() / name,
                              {.if_target_exists = StagedDirectory::IfTargetExists::kReplace}),
        FailsWith(ErrorKind::kAlreadyExists));
  }
  EXPECT_TRUE(boost::filesystem::exists(dir() / "elsewhere/f"));
  EXPECT_FALSE(boost::filesystem::exists(dir() / "dangling.ckptkit-partial"));
}

TEST_F(PosixLinksTest, ToDirectoriesAreNotEnteredAndToFilesAreListed) {
  boost::filesystem::create_directories(dir() / "list");
  boost::filesystem::create_directory_symlink(dir() / "elsewhere", dir() / "list/directory");
  boost::filesystem::create_directory_symlink("..", dir() / "list/loop");
  boost::filesystem::create_symlink(dir() / "elsewhere/f", dir() / "list/file");
  EXPECT_THAT(ListRecursively(PosixStorage(), dir() / "list"),
              IsOkAndHolds(::testing::ElementsAre("file")));
}

TEST_F(PosixLinksTest, AreNotFollowedByPublishing) {
  auto staged = StagedDirectory::Open(PosixStorage(), dir() / "out", {});
  ASSERT_THAT(staged, IsOk());
  boost::filesystem::create_directory_symlink(".", staged->path() / "loop");
  EXPECT_THAT(staged->Publish(), IsOk());
  EXPECT_TRUE(boost::filesystem::exists(dir() / "out/loop"));
}

TEST_F(PosixLinksTest, HaveTheCanonicalPathOfTheirTarget) {
  boost::filesystem::create_directory_symlink(dir() / "elsewhere", dir() / "link");
  const Path canonical = CanonicalPath(dir() / "elsewhere");
  for (const char* name : {"elsewhere/", "elsewhere/.", "elsewhere/./", "link", "link/",
                           "elsewhere/sub/..", "link/sub/../."}) {
    EXPECT_EQ(CanonicalPath(dir() / name), canonical) << name;
  }
  for (const char* name : {"absent", "absent/", "absent/.", "link/../absent/"}) {
    EXPECT_EQ(CanonicalPath(dir() / name), canonical.parent_path() / "absent") << name;
  }
  EXPECT_EQ(CanonicalPath("/"), Path("/"));
}

TEST(JoinInside, KeepsNamesInsideTheirDirectory) {
  EXPECT_THAT(JoinInside("/d", "a/b.bin"), IsOkAndHolds(Path("/d/a/b.bin")));
  EXPECT_THAT(JoinInside("/d", "..a"), IsOk());
  EXPECT_THAT(JoinInside("/d", ".//a"), IsOk());
  for (const std::string& bad :
       {std::string(), std::string("/a"), std::string(".."), std::string("a/../../b"),
        std::string("."), std::string("./"), std::string(".//"), std::string("a\0b", 3)}) {
    EXPECT_THAT(JoinInside("/d", bad), FailsWith(ErrorKind::kUnsafePath)) << bad;
  }
}

TEST_P(StorageTest, ReplacesASmallFileOrMakesIt) {
  for (const char* content : {"first", "second, and longer", ""}) {
    ASSERT_THAT(ReplaceSmallFile(storage(), dir() / "f", AsBytes(content)), IsOk());
    EXPECT_THAT(Read(dir() / "f"), IsOkAndHolds(content));
  }
  EXPECT_THAT(storage().List(dir())->size(), 1U);
}

TEST_P(StorageTest, ReplacesASmallFileAfterAnInterruptedCall) {
  Write(dir() / "f", "old");
  Write(dir() / "f.ckptkit-partial", "left behind");
  ASSERT_THAT(ReplaceSmallFile(storage(), dir() / "f", AsBytes("new")), IsOk());
  EXPECT_THAT(Read(dir() / "f"), IsOkAndHolds("new"));
  EXPECT_EQ(TypeOf(dir() / "f.ckptkit-partial"), FileType::kMissing);
}

TEST_P(StorageTest, KeepsASmallFileOrReplacesItWhateverFails) {
  for (int call = 0;; ++call) {
    ASSERT_THAT(ReplaceSmallFile(storage(), dir() / "f", AsBytes("old")), IsOk());
    testing::FaultStorage broken(storage(), call);
    const Status status = ReplaceSmallFile(broken, dir() / "f", AsBytes("new"));
    const auto content = Read(dir() / "f");
    ASSERT_THAT(content, IsOk());
    if (broken.calls() <= call) {
      EXPECT_THAT(status, IsOk());
      EXPECT_EQ(*content, "new");
      EXPECT_GE(call, 5);
      break;
    }
    EXPECT_THAT(status, FailsWith(ErrorKind::kIo));
    EXPECT_TRUE(*content == "old" || *content == "new") << *content;
  }
}

}  // namespace
}  // namespace ckpt
