#include "core/io/disk_space.h"

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

TEST(DiskSpaceTest, SaysHowMuchRoomATargetLacks) {
  EXPECT_THAT(CheckRoom("/out", 4096, 4096), IsOk());
  const Status status = CheckRoom("/out", 4096, 4095);
  ASSERT_THAT(status, FailsWith(ErrorKind::kNoSpace));
  EXPECT_EQ(status.first().file, "/out");
  EXPECT_EQ(status.first().expected, "4.0 KiB (4096 bytes) free");
  EXPECT_EQ(status.first().actual, "4.0 KiB (4095 bytes)");
}

}  // namespace
}  // namespace ckpt
