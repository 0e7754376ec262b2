// Which slots of the memo are read, and what was last put there.
#include "formats/pickle/internal/memo.h"

#include <string>

#include <gmock/gmock.h>

#include "core/base/bytes.h"

namespace ckpt::pickle {
namespace {

using namespace std::string_literals;

// Reads the slots 3, 70, 80, 256 and 600; long enough for slots of that size to be believed.
const std::string kPickle =
    "h\3h\x50j\0\1\0\0g70\ng600\ngx\ng99999\n"s + std::string(1000, 'N') + ".h\5";

TEST(PickleMemoTest, KnowsWhatIsRead) {
  Memo memo(AsBytes(kPickle), 0, nullptr);
  for (const std::uint64_t slot : {3U, 70U, 80U, 256U, 600U})
    EXPECT_TRUE(memo.IsRead(slot)) << slot;
  for (const std::uint64_t slot : {0U, 4U, 71U, 255U, 601U, 99999U}) {
    EXPECT_FALSE(memo.IsRead(slot)) << slot;
  }
  EXPECT_FALSE(memo.IsRead(5)) << "behind STOP";
}

TEST(PickleMemoTest, FindsTheNextReadForwardsAndBackwards) {
  Memo memo(AsBytes(kPickle), 0, nullptr);
  EXPECT_EQ(memo.NextRead(0), 3U);
  EXPECT_EQ(memo.NextRead(3), 3U);
  EXPECT_EQ(memo.NextRead(4), 70U);
  EXPECT_EQ(memo.NextRead(71), 80U);
  EXPECT_EQ(memo.NextRead(81), 256U);
  EXPECT_EQ(memo.NextRead(2), 3U);
  EXPECT_EQ(memo.NextRead(257), 600U);
  EXPECT_GT(memo.NextRead(601), 1U << 20);
}

TEST(PickleMemoTest, HoldsTheLastNodeOfEachSlot) {
  Memo memo(AsBytes(kPickle), 0, nullptr);
  EXPECT_EQ(memo.Get(70), kNoNode);
  memo.Set(70, 1000);
  memo.Set(70, 1001);
  memo.Set(600, 2000);
  EXPECT_EQ(memo.Get(70), 1001U);
  EXPECT_EQ(memo.Get(600), 2000U);
  EXPECT_EQ(memo.Get(88), kNoNode) << "shares a place of the cache with 600";
  EXPECT_EQ(memo.Get(600), 2000U);
}

}  // namespace
}  // namespace ckpt::pickle
