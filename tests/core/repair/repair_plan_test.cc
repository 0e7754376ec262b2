#include "core/repair/repair_plan.h"

#include <gmock/gmock.h>

#include "tests/core/repair/specimen.h"

namespace ckpt {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Files a, b, c and their parity p, two blocks each; d is in no group. Positions are alphabetical.
Manifest ThreeInAGroup() {
  Manifest manifest;
  for (const char* name : {"a", "b", "c", "d", "p"}) {
    manifest.files.push_back({.name = name,
                              .size_bytes = 2 * kManifestBlockBytes,
                              .block_crc32c = {1, 2},
                              .block_crc32 = {3, 4}});
  }
  manifest.parity = {{.parity_file = "p", .members = {"c", "a", "b"}}};
  return manifest;
}

constexpr FlippedBit kSomeBit{.offset_bytes = 5, .bit = 1};

DamagedBlock Garbage(std::size_t file, std::uint64_t block) {
  return {.file = file, .block = block, .crc32c = 77};
}
DamagedBlock Flipped(std::size_t file, std::uint64_t block) {
  return {.file = file, .block = block, .crc32c = 77, .flip = kSomeBit};
}

RepairPlan Plan(std::vector<DamagedBlock> blocks, std::vector<DamagedFile> files = {}) {
  return PlanRepair(ThreeInAGroup(), {.files = std::move(files), .blocks = std::move(blocks)});
}

TEST(PlanRepair, HasNothingToDoForWholeFiles) {
  const RepairPlan plan = Plan({});
  EXPECT_THAT(plan.blocks, IsEmpty());
  EXPECT_THAT(plan.sizes, IsEmpty());
  EXPECT_THAT(plan.beyond_repair, IsEmpty());
}

TEST(PlanRepair, FlipsBitsBack) {
  const RepairPlan plan = Plan({Flipped(0, 0), Flipped(3, 0)});
  EXPECT_THAT(plan.blocks, ElementsAre(BlockRepair{.file = 0, .block = 0, .flip = kSomeBit},
                                       BlockRepair{.file = 3, .block = 0, .flip = kSomeBit}));
  EXPECT_THAT(plan.beyond_repair, IsEmpty());
}

TEST(PlanRepair, RebuildsBlocksAtDifferentPlacesOfOneGroup) {
  const RepairPlan plan = Plan({Garbage(0, 0), Garbage(1, 1)});
  EXPECT_THAT(plan.blocks, ElementsAre(BlockRepair{.file = 0, .block = 0, .group = 0},
                                       BlockRepair{.file = 1, .block = 1, .group = 0}));
  EXPECT_THAT(plan.beyond_repair, IsEmpty());
}

TEST(PlanRepair, RebuildsFromBlocksThatABitRepairs) {
  const RepairPlan plan = Plan({Garbage(0, 0), Flipped(1, 0), Flipped(4, 0)});
  EXPECT_THAT(plan.blocks, ElementsAre(BlockRepair{.file = 0, .block = 0, .group = 0},
                                       BlockRepair{.file = 1, .block = 0, .flip = kSomeBit},
                                       BlockRepair{.file = 4, .block = 0, .flip = kSomeBit}));
  EXPECT_THAT(plan.beyond_repair, IsEmpty());
}

TEST(PlanRepair, NamesBothFilesThatLackTheSameBlock) {
  const RepairPlan plan = Plan({Garbage(0, 1), Garbage(2, 1)});
  ASSERT_EQ(plan.beyond_repair.size(), 2U);
  EXPECT_EQ(plan.beyond_repair[0].file, "a [1048576, +1048576)");
  EXPECT_THAT(plan.beyond_repair[0].actual, HasSubstr("c damaged"));
  EXPECT_EQ(plan.beyond_repair[1].file, "c [1048576, +1048576)");
  EXPECT_THAT(plan.beyond_repair[1].actual, HasSubstr("a damaged"));
}

// Of a group that was lost, as many problems as files: none of them lists all files.
TEST(PlanRepair, NamesAFewOfManyDamagedFiles) {
  Manifest manifest;
  std::vector<DamagedBlock> blocks;
  std::vector<std::string> members;
  for (std::size_t file = 0; file < 6; ++file) {
    members.push_back("f" + std::to_string(file));
    manifest.files.push_back({.name = members.back(), .size_bytes = 1, .block_crc32c = {1}});
    blocks.push_back({.file = file});
  }
  manifest.files.push_back({.name = "p", .size_bytes = 1, .block_crc32c = {1}});
  manifest.parity = {{.parity_file = "p", .members = members}};
  const RepairPlan plan = PlanRepair(manifest, {.blocks = blocks});
  ASSERT_EQ(plan.beyond_repair.size(), 6U);
  EXPECT_EQ(plan.beyond_repair[1].actual, "f0, f2, f3 and 2 more damaged, too");
}

TEST(PlanRepair, CountsParityItselfAsAFileOfTheGroup) {
  EXPECT_THAT(Plan({Garbage(4, 0)}).beyond_repair, IsEmpty());
  EXPECT_EQ(Plan({Garbage(1, 0), Garbage(4, 0)}).beyond_repair.size(), 2U);
}

TEST(PlanRepair, NeedsParityForMoreThanABit) {
  const RepairPlan plan = Plan({Garbage(3, 0), Garbage(3, 1)});
  ASSERT_EQ(plan.beyond_repair.size(), 1U);  // each file once
  EXPECT_THAT(plan.beyond_repair[0].hint, HasSubstr("with parity"));
}

TEST(PlanRepair, CutsWhatIsTooLong) {
  const DamagedFile grown{.file = 3, .size_bytes = 3 * kManifestBlockBytes};
  EXPECT_THAT(Plan({}, {grown}).sizes, ElementsAre(grown));
  // That a file was cut off shows in its blocks.
  const DamagedFile cut{.file = 0, .size_bytes = kManifestBlockBytes};
  EXPECT_THAT(Plan({{.file = 0, .block = 1}}, {cut}).sizes, IsEmpty());
}

}  // namespace
}  // namespace ckpt
