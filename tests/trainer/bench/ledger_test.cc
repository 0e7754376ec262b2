#include "trainer/bench/ledger.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::train {
namespace {

using trainer::DeviceWork;

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
  constexpr std::int64_t kMs = 1'000'000;
  const std::vector<DeviceWork> work = {{"void b<1>(int)", 7 * kMs, 12 * kMs},
                                        {"void a(int)", 0, 4 * kMs},
                                        {"void b<2>(int)", 3 * kMs, 5 * kMs}};
  const Ledger ledger = MakeLedger(work, 2);
  EXPECT_DOUBLE_EQ(ledger.step_ms, 6);
  EXPECT_DOUBLE_EQ(ledger.busy_ms, 5);
  EXPECT_DOUBLE_EQ(ledger.gaps_ms(), 1);
  ASSERT_EQ(ledger.lines.size(), 2U);
  EXPECT_EQ(ledger.lines[0].kernel, "b");
  EXPECT_DOUBLE_EQ(ledger.lines[0].calls, 1);
  EXPECT_DOUBLE_EQ(ledger.lines[0].busy_ms, 3.5);
  EXPECT_DOUBLE_EQ(ledger.lines[1].busy_ms, 2);
  EXPECT_DOUBLE_EQ(ledger.lines[1].share, 2.0 / 6);
  EXPECT_THAT(LedgerText(ledger), ::testing::HasSubstr("1.000   16.7 %            gaps"));
}

TEST(LedgerTest, NothingRanIsNothing) {
  EXPECT_TRUE(MakeLedger({}, 1).lines.empty());
  EXPECT_DOUBLE_EQ(MakeLedger({}, 1).gaps_ms(), 0);
}

}  // namespace
}  // namespace ckpt::train
