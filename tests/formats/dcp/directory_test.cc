#include "formats/dcp/internal/directory.h"

#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"

namespace ckpt::dcp {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;

class DirectoryTest : public ::testing::Test {
 protected:
  DirectoryTest() { EXPECT_THAT(storage_->MakeDirectories("/ck"), IsOk()); }

  void Write(std::string_view name, std::string_view content = "x") {
    ASSERT_THAT(WriteSmallFile(*storage_, Path("/ck") / std::string(name), AsBytes(content)),
                IsOk());
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(DirectoryTest, TheOneFileStandsBeforeThoseOfTheRanks) {
  Write("__0.metadata");
  Write("__0_0.distcp");
  Write(".metadata");
  EXPECT_THAT(FindMetadataFiles(*storage_, "/ck"), IsOkAndHolds(ElementsAre(".metadata")));
}

TEST_F(DirectoryTest, FilesOfRanksComeInOrderOfTheRank) {
  for (const char* name : {"__10.metadata", "__2.metadata", "__0.metadata"}) Write(name);
  EXPECT_THAT(FindMetadataFiles(*storage_, "/ck"),
              IsOkAndHolds(ElementsAre("__0.metadata", "__2.metadata", "__10.metadata")));
}

TEST_F(DirectoryTest, OtherNamesAreNoFilesOfRanks) {
  Write("__7.metadata");
  for (const char* name : {"__.metadata", "__x.metadata", "__1x.metadata", "_1.metadata",
                           "__1.metadata.bak", "__99999999999999999999.metadata"}) {
    Write(name);
  }
  EXPECT_THAT(FindMetadataFiles(*storage_, "/ck"), IsOkAndHolds(ElementsAre("__7.metadata")));
}

TEST_F(DirectoryTest, WhatIsNotThereIsSaidPrecisely) {
  const auto message = [&](const Path& directory, ErrorKind kind) {
    const auto found = FindMetadataFiles(*storage_, directory);
    EXPECT_THAT(found, FailsWith(kind));
    EXPECT_EQ(found.status().first().file, directory.string());
    return found.status().first().message;
  };
  EXPECT_EQ(message("/elsewhere", ErrorKind::kNotFound), "no such directory");
  Write("notes.txt");
  EXPECT_EQ(message("/ck/notes.txt", ErrorKind::kNotFound), "no such directory");
  EXPECT_EQ(message("/ck", ErrorKind::kNotFound), "no .metadata: not a distributed checkpoint");
  Write("__0_0.distcp");
  EXPECT_EQ(message("/ck", ErrorKind::kIncomplete),
            "no .metadata beside the data files: an interrupted save");
}

TEST_F(DirectoryTest, AnUnfinishedMetadataFileAloneIsAnInterruptedSave) {
  Write(".metadata.tmp");
  EXPECT_THAT(FindMetadataFiles(*storage_, "/ck"), FailsWith(ErrorKind::kIncomplete));
}

TEST_F(DirectoryTest, LeftoversAreDataThatNothingNames) {
  Write("__0_0.distcp");
  Write("__1_0.distcp");
  Write("__2_0.distcp", "");
  Write("notes.txt");
  const std::vector<std::string> named = {"__0_0.distcp"};
  const auto found = FindLeftovers(*storage_, "/ck", named);
  ASSERT_THAT(found, IsOk());
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().kind, ErrorKind::kLeftover);
  EXPECT_EQ(found->front().severity, Severity::kWarning);
  EXPECT_EQ(found->front().file, "/ck/__1_0.distcp");
}

TEST_F(DirectoryTest, AnUnfinishedMetadataFileIsALeftover) {
  Write(".metadata.tmp", "");
  const auto found = FindLeftovers(*storage_, "/ck", {});
  ASSERT_THAT(found, IsOk());
  ASSERT_EQ(found->size(), 1U);
  EXPECT_EQ(found->front().kind, ErrorKind::kIncomplete);
  EXPECT_EQ(found->front().file, "/ck/.metadata.tmp");
}

TEST_F(DirectoryTest, AFolderThatCannotBeListedIsAnError) {
  EXPECT_THAT(FindLeftovers(*storage_, "/elsewhere", {}), FailsWith(ErrorKind::kNotFound));
}

// What cannot be looked at may hold anything: here a link in a circle.
TEST(DirectoryOnDiskTest, ADataFileOfUnknownSizeIsAnError) {
  const testing::TempDir dir;
  boost::filesystem::create_symlink("__0_0.distcp", dir.path() / "__0_0.distcp");
  EXPECT_THAT(FindLeftovers(PosixStorage(), dir.path(), {}), FailsWith(ErrorKind::kIo));
}

}  // namespace
}  // namespace ckpt::dcp
