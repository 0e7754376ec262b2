// Exact weights of which a checkpoint has the lower halves alone are not taken for weights.
#include "formats/torch_dist/internal/main_weights.h"

#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "core/checkpoint/memory_source.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_dist {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;

const std::vector<float> kWeights = {0.1F, -0.2F, 3.25F, 0.003F, 1.0F, -7.7F};

enum class Kept : std::uint8_t { kExact, kLowerHalf };

// A weight in bfloat16, its upper half, and what the optimizer keeps of it.
Status Check(const std::vector<float>& weights, Kept kept) {
  MemoryTensor weight{.key = "w", .dtype = DType::kBfloat16, .shape = {2, 3}, .values = {}};
  MemoryTensor main{
      .key = "optimizer.state.param.w", .dtype = DType::kFloat32, .shape = {2, 3}, .values = {}};
  for (const float exact : weights) {
    // Rounded up where the lower half is a negative number.
    const auto bits = std::bit_cast<std::uint32_t>(exact);
    const auto lower = static_cast<std::int16_t>(bits & 0xffffU);
    const auto upper = static_cast<std::uint16_t>((bits >> 16) + (lower < 0 ? 1 : 0));
    AppendLe(upper, weight.values);
    AppendLe(kept == Kept::kExact ? exact : static_cast<float>(lower), main.values);
  }
  std::vector<MemoryTensor> tensors;
  tensors.push_back(std::move(weight));
  tensors.push_back(std::move(main));
  const auto source = MakeMemorySource(std::move(tensors));
  EXPECT_THAT(source, IsOk());
  return CheckAreExact(**source, {{"optimizer.state.param.w", "w"}});
}

TEST(MainWeightsTest, AreWhatRoundsToTheWeights) {
  EXPECT_THAT(Check(kWeights, Kept::kExact), IsOk());
  EXPECT_THAT(Check({0, 0, 0, 0, 0, 0}, Kept::kExact), IsOk());
  EXPECT_THAT(Check({1, 1, 1, 2, -3, 1}, Kept::kExact), IsOk());
}

TEST(MainWeightsTest, LowerHalvesAreRefusedByName) {
  const Status refused = Check(kWeights, Kept::kLowerHalf);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(refused.first().tensor, "optimizer.state.param.w");
  EXPECT_THAT(Check({1, 1, 1, 1, 1, 1}, Kept::kLowerHalf), FailsWith(ErrorKind::kUnsupported));
}

}  // namespace
}  // namespace ckpt::torch_dist
