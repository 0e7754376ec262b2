#include "trainer/ledger/ledger.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json/json_writer.h"

namespace ckpt::trainer {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMs = 1'000'000;

TEST(LedgerTest, NamesLoseNamespacesTemplatesAndParameters) {
  EXPECT_EQ(
      ShortKernelName("void ckpt::trainer::cuda::(anonymous namespace)::NormKernel<false, 32, "
                      "8, __nv_bfloat16>(ckpt::A, float const*)"),
      "NormKernel");
  EXPECT_EQ(ShortKernelName("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT"),
            "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT");
  EXPECT_EQ(ShortKernelName("copy"), "copy");
}

// Two steps; the second kernel overlaps the first by a millisecond, then nothing runs for two.
TEST(LedgerTest, CountsWorkOnceWhereItOverlaps) {
  const std::vector<DeviceWork> work = {{"void b<1>(int)", 7 * kMs, 12 * kMs},
                                        {"void a(int)", 0, 4 * kMs},
                                        {"void b<2>(int)", 3 * kMs, 5 * kMs}};
  const Ledger ledger = MakeLedger(work, {}, 2, {});
  EXPECT_DOUBLE_EQ(ledger.step_ms, 6);
  EXPECT_DOUBLE_EQ(ledger.busy_ms, 5);
  EXPECT_DOUBLE_EQ(ledger.gaps_ms(), 1);
  ASSERT_EQ(ledger.lines.size(), 2U);
  EXPECT_EQ(ledger.lines[0].name, "b");
  EXPECT_FALSE(ledger.lines[0].is_operation);
  EXPECT_DOUBLE_EQ(ledger.lines[0].calls, 1);
  EXPECT_DOUBLE_EQ(ledger.lines[0].busy_ms, 3.5);
  EXPECT_DOUBLE_EQ(ledger.lines[0].gaps_ms, 1);
  EXPECT_DOUBLE_EQ(ledger.lines[1].busy_ms, 2);
  EXPECT_DOUBLE_EQ(ledger.lines[1].share, 2.0 / 6);
  EXPECT_THAT(LedgerText(ledger), HasSubstr("    1.000   16.7 %"));
}

// The second kernel is set up while the first runs, the third runs beside them.
TEST(LedgerTest, WhatIsSetUpEarlyWorksFromTheEndOfTheWorkBeforeIt) {
  const auto work_on = [](std::int64_t queue, std::string name, std::int64_t begin_ms,
                          std::int64_t end_ms) {
    return DeviceWork{.name = std::move(name),
                      .begin_ns = begin_ms * kMs,
                      .end_ns = end_ms * kMs,
                      .queue = queue};
  };
  const std::vector<DeviceWork> work = {work_on(7, "b", 1, 6), work_on(7, "a", 0, 4),
                                        work_on(8, "c", 1, 3)};
  const Ledger ledger = MakeLedger(work, {}, 1, {});
  EXPECT_DOUBLE_EQ(ledger.step_ms, 6);
  EXPECT_DOUBLE_EQ(ledger.busy_ms, 6);
  ASSERT_EQ(ledger.lines.size(), 3U);
  for (const auto& [name, busy_ms] : std::map<std::string, double>{{"a", 4}, {"b", 2}, {"c", 2}}) {
    const auto line = std::ranges::find(ledger.lines, name, &LedgerLine::name);
    ASSERT_NE(line, ledger.lines.end());
    EXPECT_DOUBLE_EQ(line->busy_ms, busy_ms) << name;
  }
}

// Two steps of a product that runs two kernels, of one whose memory bounds it, and of a copy.
TEST(LedgerTest, OperationsHaveTheirKernelsAndTheirShareOfTheRoofline) {
  const OpWork product = {
      .name = "GemmForward", .product = {4, 5, 6}, .num_products = 1, .bytes = 1e6, .flops = 3e9};
  const OpWork other = {
      .name = "GemmForward", .product = {4, 5, 7}, .num_products = 1, .bytes = 4e6, .flops = 1e9};
  const std::vector<OpWork> operations = {product, other, product};
  const std::vector<DeviceWork> work = {{"void split<1>(int)", 0, 2 * kMs, 0},
                                        {"add", 2 * kMs, 4 * kMs, 0},
                                        {"void split<2>(int)", 5 * kMs, 9 * kMs, 1},
                                        {"copy", 10 * kMs, 11 * kMs},
                                        {"void split<1>(int)", 11 * kMs, 15 * kMs, 2}};
  const Roofline roofline = {.flops = 1e12, .bytes = 2e9};  // 3 ms of arithmetic, 2 of memory
  const Ledger ledger = MakeLedger(work, operations, 2, roofline);
  ASSERT_EQ(ledger.lines.size(), 3U);
  const LedgerLine& line = ledger.lines[0];
  EXPECT_EQ(line.name, "GemmForward");
  EXPECT_THAT(line.product, ::testing::ElementsAre(4, 5, 6));
  EXPECT_DOUBLE_EQ(line.calls, 1);
  EXPECT_DOUBLE_EQ(line.busy_ms, 4);
  EXPECT_DOUBLE_EQ(line.bytes, 1e6);
  EXPECT_DOUBLE_EQ(line.flops, 3e9);
  EXPECT_DOUBLE_EQ(line.roofline(), 0.75);
  EXPECT_DOUBLE_EQ(line.gaps_ms, 0);
  ASSERT_EQ(line.kernels.size(), 2U);
  EXPECT_EQ(line.kernels[0].name, "split");
  EXPECT_DOUBLE_EQ(line.kernels[0].busy_ms, 3);
  EXPECT_DOUBLE_EQ(line.kernels[1].calls, 0.5);
  EXPECT_DOUBLE_EQ(ledger.lines[1].roofline(), 0.5);  // 2 ms of memory in 4
  EXPECT_DOUBLE_EQ(ledger.lines[1].gaps_ms, 0.5);
  EXPECT_EQ(ledger.lines[2].name, "copy");
  EXPECT_DOUBLE_EQ(ledger.gaps_ms(), 1);
  EXPECT_THAT(LedgerText(ledger), HasSubstr("75.0 %    0.000  GemmForward 4 x 5 x 6\n"));

  JsonWriter json;
  WriteLedger(ledger, json);
  const std::string text = json.Take();
  EXPECT_THAT(text, HasSubstr(R"("operation":"GemmForward","product":[4,5,6])"));
  EXPECT_THAT(text, HasSubstr(R"("kernel":"copy")"));
}

TEST(LedgerTest, WithoutPeaksThereIsNoShareOfThem) {
  const OpWork call = {.name = "Add", .bytes = 8};
  const Ledger ledger = MakeLedger({{{"", 0, kMs, 0}}}, {&call, 1}, 1, {.flops = 1});
  ASSERT_EQ(ledger.lines.size(), 1U);
  EXPECT_EQ(ledger.lines[0].least_ms, 0);
  EXPECT_TRUE(ledger.lines[0].kernels.empty());
  EXPECT_THAT(LedgerText(ledger), HasSubstr("       -    0.000  Add\n"));
}

TEST(LedgerTest, NothingRanIsNothing) {
  EXPECT_TRUE(MakeLedger({}, {}, 1, {}).lines.empty());
  EXPECT_DOUBLE_EQ(MakeLedger({}, {}, 1, {}).gaps_ms(), 0);
}

}  // namespace
}  // namespace ckpt::trainer
