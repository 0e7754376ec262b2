#include "core/checkpoint/read_manifest.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
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
    ASSERT_THAT(storage_->RemoveAll(kSidecar), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, kSidecar, AsBytes(text)), IsOk());
  }
  static Manifest Example() {
    Manifest manifest;
    manifest.tool = "ckptkit 0.1.0";
    manifest.files = {DescribeContent("a", AsBytes("bytes")),
                      DescribeContent("b", AsBytes("bytes"))};
    manifest.tensors = {{"w", std::string(32, '0')}};
    return manifest;
  }

  const Path kSidecar = Path("/d") / std::string(kManifestName);
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

}  // namespace
}  // namespace ckpt
