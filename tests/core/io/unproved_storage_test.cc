#include "core/io/unproved_storage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/memory_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::IsOk;

TEST(UnprovedStorageTest, GivesTheSameBytesAndSaysThatTheyAreChecked) {
  const auto behind = MakeMemoryStorage();
  ASSERT_THAT(WriteSmallFile(*behind, "/file", AsBytes("content")), IsOk());
  const auto storage = MakeUnprovedStorage(*behind);
  const auto file = storage->Open("/file");
  ASSERT_THAT(file, IsOk());
  EXPECT_TRUE((*file)->is_checked());
  EXPECT_FALSE((*behind->Open("/file"))->is_checked());
  EXPECT_EQ((*file)->size_bytes(), 7U);
  Bytes bytes(4);
  ASSERT_THAT((*file)->ReadAt(3, bytes), IsOk());
  EXPECT_EQ(AsText(bytes), "tent");
  EXPECT_THAT(ReadSmallFile(*storage, "/file", 100), testing::IsOkAndHolds("content"));
}

}  // namespace
}  // namespace ckpt
