#include "core/exec/internal/item_placement.h"

#include <span>
#include <vector>

#include <gmock/gmock.h>

namespace ckpt {
namespace {

// Four items in two files; the first one begins with 100 bytes of literals.
WritePlan TwoFiles() {
  WritePlan plan;
  plan.files = {{.name = "a", .size_bytes = 100}, {.name = "b"}};
  for (const std::uint32_t file : {0U, 0U, 1U, 0U}) {
    plan.items.emplace_back().file = file;
  }
  return plan;
}

TEST(ItemPlacementTest, PutsEachItemBehindTheOneBeforeItInItsFile) {
  const WritePlan plan = TwoFiles();
  ItemPlacement placement(plan);
  // Those of different files in any order.
  EXPECT_EQ(placement.Place(2, 30), (ItemExtent{0, 30}));
  EXPECT_EQ(placement.Place(0, 10), (ItemExtent{100, 10}));
  EXPECT_EQ(placement.Place(1, 20), (ItemExtent{110, 20}));
  EXPECT_EQ(placement.Place(3, 40), (ItemExtent{130, 40}));
  EXPECT_EQ(placement.end_of_file(0), 170U);
  EXPECT_EQ(placement.end_of_file(1), 30U);
}

TEST(ItemPlacementTest, ContinuesOnlyWithWhatLiesRightBehind) {
  const WritePlan plan = TwoFiles();
  ItemPlacement placement(plan);
  placement.Place(0, 10);
  const std::vector<ItemExtent> next = {{110, 20}, {0, 30}, {130, 40}};
  EXPECT_TRUE(placement.Continues(1, next));
  EXPECT_TRUE(placement.Continues(2, std::span(next).subspan(1, 1))) << "another file";
  EXPECT_FALSE(placement.Continues(3, std::span(next).subspan(2))) << "item 1 is missing";
  for (std::size_t i = 0; i < next.size(); ++i) {
    std::vector<ItemExtent> moved = next;
    ++moved[i].offset_bytes;
    EXPECT_FALSE(placement.Continues(1, moved)) << "item " << i;
  }
  std::vector<ItemExtent> too_many = next;
  too_many.push_back({170, 1});
  EXPECT_FALSE(placement.Continues(1, too_many));
}

}  // namespace
}  // namespace ckpt
