#include "core/plan/cut_items.h"

#include <gmock/gmock.h>

#include "core/plan/plan_check.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;

// Two tensors behind a header of eight bytes, each in one item.
WritePlan TwoTensors() {
  WritePlan plan;
  plan.files = {{.name = "model", .size_bytes = 8 + 48 + 4}};
  plan.tensors = {{.key = "matrix", .dtype = DType::kFloat32, .shape = {4, 3}},
                  {.key = "scalar", .dtype = DType::kFloat32, .shape = {}}};
  plan.items = {{.tensor = 0,
                 .box = WholeBox(Dims{4, 3}),
                 .offset_bytes = 8,
                 .payload_offset = 8,
                 .payload_bytes = 48,
                 .size_bytes = 48},
                {.tensor = 1,
                 .box = WholeBox(Dims{}),
                 .offset_bytes = 56,
                 .payload_offset = 56,
                 .payload_bytes = 4,
                 .size_bytes = 4}};
  return plan;
}

const std::map<std::string, std::vector<RowsFromFile>> kRows = {
    {"matrix",
     {{.box = {.offsets = {0, 0}, .sizes = {1, 3}}, .file = 2},
      {.box = {.offsets = {1, 0}, .sizes = {3, 3}}, .file = 0}}},
    {"scalar", {{.box = WholeBox(Dims{}), .file = 1}}}};

TEST(CutItems, PutsEachBlockWhereItsRowsLay) {
  WritePlan plan = TwoTensors();
  ASSERT_THAT(CutItems(kRows, plan), IsOk());
  EXPECT_THAT(CheckWritePlan(plan), IsOk());
  ASSERT_EQ(plan.items.size(), 3U);
  EXPECT_EQ(plan.items[0].offset_bytes, 8U);
  EXPECT_EQ(plan.items[0].size_bytes, 12U);
  EXPECT_EQ(plan.items[1].offset_bytes, 20U);
  EXPECT_EQ(plan.items[1].size_bytes, 36U);
  EXPECT_EQ(plan.items[2].offset_bytes, 56U);
  EXPECT_EQ(plan.files[0].size_bytes, 60U);
}

TEST(CutItems, RefusesItemsWithMoreThanTheirPayload) {
  WritePlan framed = TwoTensors();
  framed.items[0].size_bytes += 4;
  EXPECT_THAT(CutItems(kRows, framed), FailsWith(ErrorKind::kUnsupported));
  WritePlan compressed = TwoTensors();
  compressed.compression.emplace();
  EXPECT_THAT(CutItems(kRows, compressed), FailsWith(ErrorKind::kUnsupported));
  WritePlan summed = TwoTensors();
  summed.late_bytes.emplace();
  EXPECT_THAT(CutItems(kRows, summed), FailsWith(ErrorKind::kUnsupported));
}

}  // namespace
}  // namespace ckpt
