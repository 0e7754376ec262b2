#include "core/manifest/read_manifest.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "core/manifest/manifest_text.h"
#include "tests/testing/manifest_file.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::DescribeContent;
using testing::FailsWith;
using ::testing::IsEmpty;
using ::testing::IsNull;
using testing::IsOk;
using testing::IsOkAndHolds;

class ReadManifestTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_THAT(storage_->MakeDirectories("/d"), IsOk());
    for (const char* name : {"/d/a", "/d/b", "/d/foreign"}) {
      ASSERT_THAT(WriteSmallFile(*storage_, name, AsBytes("bytes")), IsOk());
    }
  }
  void Put(const std::string& text) {
    ASSERT_THAT(storage_->RemoveAll(kManifestPath), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, kManifestPath, AsBytes(text)), IsOk());
  }
  void PutCopy(const std::string& text) {
    ASSERT_THAT(storage_->RemoveAll(kCopy), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, kCopy, AsBytes(text)), IsOk());
  }
  static Manifest WithCopy() {
    Manifest manifest = Example();
    manifest.has_copy = true;
    return manifest;
  }
  // Where the text was found whole, and what of it was lost; "" if nothing.
  void ExpectFound(ErrorKind kind, std::string_view lost) {
    const auto found = FindManifest(*storage_, "/d");
    ASSERT_THAT(found, IsOk());
    ASSERT_TRUE(found->has_value());
    EXPECT_EQ((*found)->text, SerializeManifest(WithCopy()));
    EXPECT_EQ((*found)->manifest, WithCopy());
    ASSERT_TRUE((*found)->lost.has_value());
    EXPECT_EQ((*found)->lost->kind, kind);
    EXPECT_EQ((*found)->lost->file, (Path("/d") / std::string(lost)).string());
    EXPECT_EQ((*found)->lost->hint, kRepairManifest);
  }
  static Manifest Example() {
    Manifest manifest;
    manifest.tool = "ckptkit 0.1.0";
    manifest.files = {DescribeContent("a", AsBytes("bytes")),
                      DescribeContent("b", AsBytes("bytes"))};
    manifest.tensors = {{"w", std::string(32, '0')}};
    return manifest;
  }

  const Path kManifestPath = Path("/d") / std::string(kManifestName);
  const Path kCopy = Path("/d") / std::string(kManifestCopyName);
  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(ReadManifestTest, IsNullWhereAnotherProgramWrote) {
  EXPECT_THAT(ReadManifest(*storage_, "/d"), IsOkAndHolds(IsNull()));
  EXPECT_THAT(ReadManifest(*storage_, "/d/a"), IsOkAndHolds(IsNull()));
}

TEST_F(ReadManifestTest, IsTheWholeOneOfADirectory) {
  Put(SerializeManifest(Example()));
  const auto manifest = ReadManifest(*storage_, "/d");
  ASSERT_THAT(manifest, IsOk());
  EXPECT_EQ(**manifest, Example());
  EXPECT_THAT(ManifestDirectory(*storage_, "/d"), IsOkAndHolds(Path("/d")));
}

TEST_F(ReadManifestTest, SaysOfAFileWhatTheOneBesideItSays) {
  Put(SerializeManifest(Example()));
  const auto manifest = ReadManifest(*storage_, "/d/b");
  ASSERT_THAT(manifest, IsOk());
  ASSERT_EQ((*manifest)->files.size(), 1U);
  EXPECT_EQ((*manifest)->files[0], Example().files[1]);
  EXPECT_THAT((*manifest)->tensors, IsEmpty());
  EXPECT_THAT(ManifestDirectory(*storage_, "/d/b"), IsOkAndHolds(Path("/d")));
}

TEST_F(ReadManifestTest, SaysNothingOfAFileThatItDoesNotName) {
  Put(SerializeManifest(Example()));
  EXPECT_THAT(ReadManifest(*storage_, "/d/foreign"), IsOkAndHolds(IsNull()));
}

TEST_F(ReadManifestTest, ADamagedOneIsAnErrorForEveryFileBesideIt) {
  std::string text = SerializeManifest(Example());
  text[text.find("0.1.0")] ^= 1;
  Put(text);
  for (const char* path : {"/d", "/d/a", "/d/foreign"}) {
    EXPECT_THAT(ReadManifest(*storage_, path), FailsWith(ErrorKind::kChecksum)) << path;
  }
}

TEST_F(ReadManifestTest, TheCopyServesWhereTheManifestIsLost) {
  const std::string text = SerializeManifest(WithCopy());
  PutCopy(text);
  ExpectFound(ErrorKind::kMissingFile, kManifestName);
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ (1 << (i % 8)));
    Put(damaged);
    const auto found = FindManifest(*storage_, "/d");
    ASSERT_THAT(found, IsOk()) << i;
    ASSERT_EQ((*found)->text, text) << i;
    ASSERT_EQ((*found)->lost->file, kManifestPath.string()) << i;
  }
  Put(text);
  const auto whole = FindManifest(*storage_, "/d");
  ASSERT_THAT(whole, IsOk());
  EXPECT_FALSE((*whole)->lost.has_value());
}

TEST_F(ReadManifestTest, TellsWhatBecameOfTheCopy) {
  const std::string text = SerializeManifest(WithCopy());
  Put(text);
  ExpectFound(ErrorKind::kMissingFile, kManifestCopyName);
  PutCopy(text.substr(0, text.size() - 1));
  ExpectFound(ErrorKind::kChecksum, kManifestCopyName);
  PutCopy(SerializeManifest(Example()));
  ExpectFound(ErrorKind::kValueMismatch, kManifestCopyName);
  // Readers have what they need.
  EXPECT_THAT(ReadManifest(*storage_, "/d"), IsOk());
}

// Else whoever deletes the manifest would be told that all is well.
TEST_F(ReadManifestTest, WhatIsLeftBesideAManifestIsNoCheckpointOfAnotherProgram) {
  PutCopy(SerializeManifest(WithCopy()));
  for (const char* path : {"/d", "/d/a"}) {
    const auto read = ReadManifest(*storage_, path);
    ASSERT_THAT(read, FailsWith(ErrorKind::kMissingFile)) << path;
    EXPECT_EQ(read.status().first().file, kManifestPath.string());
    EXPECT_EQ(read.status().first().hint, kRepairManifest);
  }
  ASSERT_THAT(storage_->RemoveAll(kCopy), IsOk());
  ASSERT_THAT(WriteSmallFile(*storage_, Path("/d") / ParityName(0), {}), IsOk());
  EXPECT_THAT(ReadManifest(*storage_, "/d"), FailsWith(ErrorKind::kMissingFile));
  EXPECT_THAT(FindManifest(*storage_, "/d"), FailsWith(ErrorKind::kMissingFile));
  PutCopy("neither");
  const auto both = FindManifest(*storage_, "/d");
  ASSERT_THAT(both, FailsWith(ErrorKind::kMissingFile));
  EXPECT_EQ(both.status().problems().size(), 2U);
}

TEST_F(ReadManifestTest, AManifestWithoutACopyIsAsBefore) {
  Put(SerializeManifest(Example()));
  const auto found = FindManifest(*storage_, "/d");
  ASSERT_THAT(found, IsOk());
  EXPECT_FALSE((*found)->lost.has_value());
}

}  // namespace
}  // namespace ckpt
