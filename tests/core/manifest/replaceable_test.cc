#include "core/manifest/replaceable.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "core/manifest/manifest.h"
#include "core/manifest/manifest_text.h"
#include "tests/testing/manifest_file.h"
#include "tests/testing/matchers.h"
#include "tests/testing/run_root.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;
using testing::kRunRoot;

class ReplaceableTest : public ::testing::Test {
 protected:
  ReplaceableTest() : storage_(MakeMemoryStorage()) {
    EXPECT_THAT(storage_->MakeDirectories("/out"), IsOk());
  }
  void Write(const Path& path) {
    EXPECT_THAT(storage_->MakeDirectories(path.parent_path()), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, path, AsBytes("x")), IsOk());
  }
  void WriteManifest(const Path& directory, const std::vector<std::string>& names) {
    Manifest manifest;
    manifest.tool = "t";
    for (const std::string& name : names) {
      manifest.files.push_back(testing::DescribeContent(name, AsBytes("x")));
    }
    EXPECT_THAT(WriteSmallFile(*storage_, directory / std::string(kManifestName),
                               AsBytes(SerializeManifest(manifest))),
                IsOk());
  }
  Status Check() { return CheckReplaceable(*storage_, "/out", kRunRoot); }

  std::unique_ptr<Storage> storage_;
};

TEST_F(ReplaceableTest, AnEmptyDirectoryIs) { EXPECT_THAT(Check(), IsOk()); }

TEST_F(ReplaceableTest, WhatItsManifestNamesIs) {
  Write("/out/model.safetensors");
  WriteManifest("/out", {"model.safetensors"});
  EXPECT_THAT(Check(), IsOk());
}

TEST_F(ReplaceableTest, WhatTheCopyOfALostManifestNamesIs) {
  Write("/out/model.safetensors");
  WriteManifest("/out", {"model.safetensors"});
  EXPECT_THAT(storage_->Rename("/out/ckptkit.json", "/out/ckptkit-parity.json"), IsOk());
  EXPECT_THAT(Check(), IsOk());
  Write("/out/mine");
  EXPECT_THAT(Check(), FailsWith(ErrorKind::kAlreadyExists));
}

// A stray file of ours makes no directory ours.
TEST_F(ReplaceableTest, ParityFilesAloneMakeNothingReplaceable) {
  Write("/out/ckptkit-parity-000.xor");
  Write("/out/mine");
  EXPECT_THAT(Check(), FailsWith(ErrorKind::kAlreadyExists));
}

TEST_F(ReplaceableTest, AMegatronRootIsUntilTrainingSavesIntoIt) {
  Write("/out/latest_checkpointed_iteration.txt");
  Write("/out/release/.metadata");
  WriteManifest("/out/release", {"../latest_checkpointed_iteration.txt", ".metadata"});
  EXPECT_THAT(Check(), IsOk());
  Write("/out/iter_0000010/.metadata");
  const Status status = Check();
  ASSERT_THAT(status, FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_EQ(status.first().actual, "iter_0000010/.metadata");
}

// A model card beside the weights, the logs of a run beside its checkpoint.
TEST_F(ReplaceableTest, WhatSomebodyAddedIsNamed) {
  for (const char* directory : {"/out", "/out/release"}) {
    storage_ = MakeMemoryStorage();
    Write(Path(directory) / "weights");
    WriteManifest(directory, {"weights"});
    EXPECT_THAT(Check(), IsOk());
    Write("/out/tensorboard/events");
    Write("/out/README.md");
    const Status status = Check();
    ASSERT_THAT(status, FailsWith(ErrorKind::kAlreadyExists));
    EXPECT_EQ(status.first().actual, "README.md, tensorboard/events");
  }
}

// A run saves its damaged iteration anew.
TEST_F(ReplaceableTest, OfADamagedManifestThePlaceIsKnown) {
  Write("/out/weights");
  Write("/out/ckptkit.json");
  EXPECT_THAT(Check(), IsOk());
  Write("/out/iter_0000010/.metadata");
  EXPECT_THAT(Check(), FailsWith(ErrorKind::kAlreadyExists));
}

TEST_F(ReplaceableTest, ForeignFilesAreNotAndAreNamed) {
  for (const char name : {'a', 'b', 'c', 'd', 'e', 'f'}) Write(Path("/out") / std::string(1, name));
  const Status status = Check();
  ASSERT_THAT(status, FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_EQ(status.first().actual, "a, b, c, d, e, ...");
}

}  // namespace
}  // namespace ckpt
