#include "core/base/counted.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace ckpt {
namespace {

TEST(CountedTest, OneIsNoPlural) {
  EXPECT_EQ(Counted(0, "file"), "0 files");
  EXPECT_EQ(Counted(1, "file"), "1 file");
  EXPECT_EQ(Counted(std::uint64_t{2}, "file"), "2 files");
  EXPECT_EQ(Counted(1, "entry", "entries"), "1 entry");
  EXPECT_EQ(Counted(3, "entry", "entries"), "3 entries");
}

}  // namespace
}  // namespace ckpt
