#include "core/exec/internal/item_placement.h"

#include <gmock/gmock.h>

namespace ckpt {
namespace {

using ::testing::ElementsAre;

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
  for (const std::uint64_t size : {10U, 20U, 30U, 40U}) placement.Append(size);
  EXPECT_THAT(placement.extents(), ElementsAre(ItemExtent{100, 10}, ItemExtent{110, 20},
                                               ItemExtent{0, 30}, ItemExtent{130, 40}));
  EXPECT_EQ(placement.end_of_file(0), 170U);
  EXPECT_EQ(placement.end_of_file(1), 30U);
}

TEST(ItemPlacementTest, ContinuesOnlyWithWhatLiesRightBehind) {
  const WritePlan plan = TwoFiles();
  ItemPlacement placement(plan);
  placement.Append(10);
  const std::vector<ItemExtent> next = {{110, 20}, {0, 30}, {130, 40}};
  EXPECT_TRUE(placement.Continues(next));
  for (std::size_t i = 0; i < next.size(); ++i) {
    std::vector<ItemExtent> moved = next;
    ++moved[i].offset_bytes;
    EXPECT_FALSE(placement.Continues(moved)) << "item " << i;
  }
  std::vector<ItemExtent> too_many = next;
  too_many.push_back({170, 1});
  EXPECT_FALSE(placement.Continues(too_many));
}

}  // namespace
}  // namespace ckpt
