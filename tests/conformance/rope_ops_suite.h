// What every Ops promises of rotations by position. Instantiate RopeOpsTest with backends.
#ifndef CKPT_TESTS_CONFORMANCE_ROPE_OPS_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_ROPE_OPS_SUITE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/ops_fixture.h"
#include "tests/trainer/ops/finite_difference.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

class RopeOpsTest : public OpsTest {};

TEST_P(RopeOpsTest, RopeTakesPositionsAndLeavesPaddingAsItIs) {
  constexpr std::int64_t kPositions = 5;
  constexpr std::int64_t kElems = 2 * 6;  // of a token
  const std::vector<double> position_of = {0, 1, 0, 4, 3, -1, -1, 2};
  const auto tokens = static_cast<std::int64_t>(position_of.size());
  for (const DType dtype : kComputeDTypes) {
    for (const bool inverse : {false, true}) {
      const RopeForm by_place{.seq = kPositions, .dim = 4, .inverse = inverse};
      const Array cosine = Random(StatisticsOf(dtype), {kPositions, 2});
      const Array sine = Random(StatisticsOf(dtype), {kPositions, 2});
      const Array x = Random(dtype, {tokens, 2, 6});
      const std::vector<double> before = x.Get();
      const Array positions = Make(DType::kInt32, {tokens}, position_of);
      RopeForm by_position = by_place;
      by_position.positions = positions;
      ops().Rope(queue(), by_position, cosine, sine, x);
      const std::vector<double> after = x.Get();
      for (std::int64_t t = 0; t < tokens; ++t) {
        // The same token where a sequence has that position.
        const auto position = static_cast<std::int64_t>(position_of[static_cast<std::size_t>(t)]);
        std::vector<double> want = RowsOf(before, kElems, t, 1);
        if (position >= 0) {
          std::vector<double> sequence(static_cast<std::size_t>(kPositions * kElems));
          std::ranges::copy(want, sequence.begin() + position * kElems);
          const Array alone = Make(dtype, {kPositions, 2, 6}, sequence);
          ops().Rope(queue(), by_place, cosine, sine, alone);
          want = RowsOf(alone.Get(), kElems, position, 1);
        }
        EXPECT_EQ(RowsOf(after, kElems, t, 1), want) << "token " << t;
      }
    }
  }
}

TEST_P(RopeOpsTest, RopeRotatesPairsByThePositionOfTheirToken) {
  constexpr std::int64_t kSeq = 5;
  constexpr std::int64_t kHeads = 3;
  constexpr std::int64_t kHeadDim = 10;
  constexpr std::int64_t kDim = 6;
  for (const DType dtype : kComputeDTypes) {
    for (const int bits : {0, 1, 2, 3, 4, 5, 6, 7}) {
      const RopeForm form{.seq = kSeq,
                          .dim = kDim,
                          .at_front = (bits & 1) != 0,
                          .interleaved = (bits & 2) != 0,
                          .inverse = (bits & 4) != 0};
      const Array x = Random(dtype, {2 * kSeq, kHeads, kHeadDim});
      std::vector<double> angles = RandomValues(kSeq * kDim / 2);
      std::vector<double> cosines;
      std::vector<double> sines;
      for (const double angle : angles) {
        cosines.push_back(std::cos(angle));
        sines.push_back(std::sin(angle));
      }
      const Array cosine = Make(StatisticsOf(dtype), {kSeq, kDim / 2}, cosines);
      const Array sine = Make(StatisticsOf(dtype), {kSeq, kDim / 2}, sines);
      std::vector<double> want = x.Get();
      for (std::int64_t t = 0; t < 2 * kSeq; ++t) {
        for (std::int64_t head = 0; head < kHeads; ++head) {
          for (std::int64_t i = 0; i < kDim / 2; ++i) {
            const std::int64_t first =
                (t * kHeads + head) * kHeadDim + (form.at_front ? 0 : kHeadDim - kDim);
            double& a = want[static_cast<std::size_t>(first + (form.interleaved ? 2 * i : i))];
            double& b = want[static_cast<std::size_t>(
                first + (form.interleaved ? 2 * i + 1 : i + kDim / 2))];
            const double angle =
                (form.inverse ? -1 : 1) * angles[static_cast<std::size_t>(t % kSeq * kDim / 2 + i)];
            const double rotated = a * std::cos(angle) - b * std::sin(angle);
            b = b * std::cos(angle) + a * std::sin(angle);
            a = rotated;
          }
        }
      }
      ops().Rope(queue(), form, cosine, sine, x);
      const std::vector<double> got = x.Get();
      for (std::size_t i = 0; i < got.size(); ++i) {
        // bfloat16 rounds once, to half a unit in the last place.
        const double tolerance = dtype == DType::kBfloat16 ? 1e-5 + std::abs(want[i]) * 0x1.01p-8
                                                           : 10 * ToleranceOf(dtype);
        ASSERT_NEAR(got[i], want[i], tolerance)
            << DTypeName(dtype) << " form " << bits << " element " << i;
      }
    }
  }
}

TEST_P(RopeOpsTest, TheInverseRotationIsTheBackwardOfRope) {
  for (const bool interleaved : {false, true}) {
    const RopeForm form{.seq = 4, .dim = 6, .at_front = false, .interleaved = interleaved};
    RopeForm inverse = form;
    inverse.inverse = true;
    std::vector<double> cosines;
    std::vector<double> sines;
    for (const double angle : RandomValues(12)) {
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
    const Array cosine = Make(DType::kFloat64, {4, 3}, cosines);
    const Array sine = Make(DType::kFloat64, {4, 3}, sines);
    std::vector<double> x = RandomValues(8 * 2 * 8);
    const std::vector<double> dy = RandomValues(8 * 2 * 8);
    const Array dx = Make(DType::kFloat64, {8, 2, 8}, dy);
    ops().Rope(queue(), inverse, cosine, sine, dx);
    const auto loss = [&] {
      const Array y = Make(DType::kFloat64, {8, 2, 8}, x);
      ops().Rope(queue(), form, cosine, sine, y);
      return SumOfProducts(y.Get(), dy);
    };
    EXPECT_TRUE(IsGradientOf(dx.Get(), x, loss));
  }
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_ROPE_OPS_SUITE_H_
