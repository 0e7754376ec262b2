#include "core/checkpoint/replaceable.h"

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

class ReplaceableTest : public ::testing::Test {
 protected:
  ReplaceableTest() : storage_(MakeMemoryStorage()) {
    EXPECT_THAT(storage_->MakeDirectories("/out"), IsOk());
  }
  void Write(const Path& path) {
    EXPECT_THAT(storage_->MakeDirectories(path.parent_path()), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, path, AsBytes("x")), IsOk());
  }
  Status Check() { return CheckReplaceable(*storage_, "/out"); }

  std::unique_ptr<Storage> storage_;
};

TEST_F(ReplaceableTest, AnEmptyDirectoryIs) { EXPECT_THAT(Check(), IsOk()); }

TEST_F(ReplaceableTest, WhatHasASidecarIs) {
  Write("/out/model.safetensors");
  Write("/out/ckptkit.json");
  EXPECT_THAT(Check(), IsOk());
}

TEST_F(ReplaceableTest, AMegatronRootIsUntilTrainingSavesIntoIt) {
  Write("/out/latest_checkpointed_iteration.txt");
  Write("/out/release/ckptkit.json");
  EXPECT_THAT(Check(), IsOk());
  Write("/out/iter_0000010/.metadata");
  const Status status = Check();
  ASSERT_THAT(status, FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_EQ(status.first().actual, "iter_0000010");
}

TEST_F(ReplaceableTest, ForeignFilesAreNotAndAreNamed) {
  for (const char name : {'a', 'b', 'c', 'd', 'e', 'f'}) Write(Path("/out") / std::string(1, name));
  const Status status = Check();
  ASSERT_THAT(status, FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_EQ(status.first().actual, "a, b, c, d, e, ...");
}

}  // namespace
}  // namespace ckpt
