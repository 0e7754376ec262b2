// What every Ops promises of the projections around attention: their division into heads, the norms
// of queries and keys, and the way back. Instantiate ProjectionOpsTest with backends.
#ifndef CKPT_TESTS_CONFORMANCE_PROJECTION_OPS_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_PROJECTION_OPS_SUITE_H_

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/ops_fixture.h"
#include "tests/trainer/ops/finite_difference.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

class ProjectionOpsTest : public OpsTest {};

// A projection of seven tokens in groups of three queries, a key and a value.
struct QkvCase {
  static constexpr std::int64_t kTokens = 7;
  static constexpr std::int64_t kHeadDim = 6;
  static constexpr std::int64_t kGroups = 2;
  static constexpr std::int64_t kWidth = 5 * kGroups * kHeadDim;
  static constexpr std::int64_t kPositions = 4;

  bool has_norm = false;
  bool has_rope = false;
};

TEST_P(ProjectionOpsTest, QkvPrepareIsItsStepsOneAfterAnother) {
  using C = QkvCase;
  for (const DType dtype : kComputeDTypes) {
    const DType statistics = StatisticsOf(dtype);
    for (const auto& [has_norm, has_rope] :
         {QkvCase{}, QkvCase{true, false}, QkvCase{false, true}, QkvCase{true, true}}) {
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(dtype) << " norm " << has_norm << " rope " << has_rope);
      const Array qkv = Random(dtype, {C::kTokens, C::kWidth});
      const Array q_norm = Random(dtype, {C::kHeadDim});
      const Array k_norm = Random(dtype, {C::kHeadDim});
      const Array cosine = Random(statistics, {C::kPositions, 2});
      const Array sine = Random(statistics, {C::kPositions, 2});
      const Array positions = Make(DType::kInt32, {C::kTokens}, {0, 1, 2, -1, 0, 3, -1});
      QkvForm form = {.shape = {.num_heads = 6, .num_kv_heads = 2, .head_dim = C::kHeadDim},
                      .norm_eps = 1e-5,
                      .rope = {.seq = C::kPositions, .positions = positions, .dim = 4}};
      if (has_norm) form.q_norm = q_norm;
      if (has_norm) form.k_norm = k_norm;
      if (has_rope) form.cosine = cosine;
      if (has_rope) form.sine = sine;
      const Array q = Make(dtype, {C::kTokens, 6, C::kHeadDim});
      const Array k = Make(dtype, {C::kTokens, 2, C::kHeadDim});
      const Array v = Make(dtype, {C::kTokens, 2, C::kHeadDim});
      const Array q_rstd = Make(statistics, {C::kTokens * 6});
      const Array k_rstd = Make(statistics, {C::kTokens * 2});
      ops().QkvPrepare(queue(), form, qkv, q, k, v, q_rstd, k_rstd);

      const std::vector<double> all = qkv.Get();
      std::vector<double> parts[3];
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::size_t head = i / C::kHeadDim % 5;
        parts[head < 3 ? 0 : head - 2].push_back(all[i]);
      }
      const auto steps = [&](const std::vector<double>& values, std::int64_t heads,
                             const Array& norm) {
        const Array projected = Make(dtype, {C::kTokens * heads, C::kHeadDim}, values);
        const Array normed = Make(dtype, {C::kTokens * heads, C::kHeadDim}, values);
        const Array rstd = Make(statistics, {C::kTokens * heads});
        if (has_norm) ops().RmsNorm(queue(), projected, norm, form.norm_eps, normed, rstd);
        if (has_rope) {
          ops().Rope(queue(), form.rope, cosine, sine,
                     normed.tensor().Reshape({C::kTokens, heads, C::kHeadDim}));
        }
        return normed.Get();
      };
      EXPECT_EQ(q.Get(), steps(parts[0], 6, q_norm));
      EXPECT_EQ(k.Get(), steps(parts[1], 2, k_norm));
      EXPECT_EQ(v.Get(), parts[2]);
      // Values that stay where they are.
      const Array again = Make(dtype, {C::kTokens, 6, C::kHeadDim});
      ops().QkvPrepare(queue(), form, qkv, again, k, {}, q_rstd, k_rstd);
      EXPECT_EQ(again.Get(), q.Get());
    }
  }
}

TEST_P(ProjectionOpsTest, QkvPrepareBackwardIsTheDerivative) {
  using C = QkvCase;
  for (const bool has_norm : {false, true}) {
    std::vector<double> x = RandomValues(C::kTokens * C::kWidth);
    std::vector<double> norms = RandomValues(2 * C::kHeadDim);
    const std::vector<double> dq_values = RandomValues(C::kTokens * 6 * C::kHeadDim);
    const std::vector<double> dk_values = RandomValues(C::kTokens * 2 * C::kHeadDim);
    const std::vector<double> dv_values = RandomValues(C::kTokens * 2 * C::kHeadDim);
    const Array cosine = Random(DType::kFloat64, {C::kTokens, 2});
    const Array sine = Random(DType::kFloat64, {C::kTokens, 2});
    const Array norm_weights = Make(DType::kFloat64, {2 * C::kHeadDim}, norms);
    QkvForm form = {.shape = {.num_heads = 6, .num_kv_heads = 2, .head_dim = C::kHeadDim},
                    .norm_eps = 1e-5,
                    .rope = {.seq = C::kTokens, .dim = 4},
                    .cosine = cosine,
                    .sine = sine};
    if (has_norm) form.q_norm = norm_weights.tensor().Rows(0, C::kHeadDim);
    if (has_norm) form.k_norm = norm_weights.tensor().Rows(C::kHeadDim, C::kHeadDim);
    const Array q_rstd = Make(DType::kFloat64, {C::kTokens * 6});
    const Array k_rstd = Make(DType::kFloat64, {C::kTokens * 2});
    const auto loss = [&] {
      Array weights = Make(DType::kFloat64, {2 * C::kHeadDim}, norms);
      QkvForm moved = form;
      if (has_norm) moved.q_norm = weights.tensor().Rows(0, C::kHeadDim);
      if (has_norm) moved.k_norm = weights.tensor().Rows(C::kHeadDim, C::kHeadDim);
      const Array q = Make(DType::kFloat64, {C::kTokens, 6, C::kHeadDim});
      const Array k = Make(DType::kFloat64, {C::kTokens, 2, C::kHeadDim});
      const Array v = Make(DType::kFloat64, {C::kTokens, 2, C::kHeadDim});
      ops().QkvPrepare(queue(), moved, Make(DType::kFloat64, {C::kTokens, C::kWidth}, x), q, k, v,
                       q_rstd, k_rstd);
      return SumOfProducts(q.Get(), dq_values) + SumOfProducts(k.Get(), dk_values) +
             SumOfProducts(v.Get(), dv_values);
    };
    (void)loss();  // sets the statistics
    const Array qkv = Make(DType::kFloat64, {C::kTokens, C::kWidth}, x);
    const Array dqkv = Make(DType::kFloat64, {C::kTokens, C::kWidth});
    const Array dnorms = Make(DType::kFloat64, {2 * C::kHeadDim});
    const auto run = [&](const Tensor& dv) {
      const Array dq = Make(DType::kFloat64, {C::kTokens, 6, C::kHeadDim}, dq_values);
      const Array dk = Make(DType::kFloat64, {C::kTokens, 2, C::kHeadDim}, dk_values);
      Gradient dq_norm;
      Gradient dk_norm;
      if (has_norm) dq_norm = Stored(dnorms.tensor().Rows(0, C::kHeadDim));
      if (has_norm) dk_norm = Stored(dnorms.tensor().Rows(C::kHeadDim, C::kHeadDim));
      ops().QkvPrepareBackward(queue(), form, dq, dk, dv, qkv, q_rstd, k_rstd, dqkv, dq_norm,
                               dk_norm);
    };
    const Array dv = Make(DType::kFloat64, {C::kTokens, 2, C::kHeadDim}, dv_values);
    run(dv);
    const std::vector<double> whole = dqkv.Get();
    EXPECT_TRUE(IsGradientOf(whole, x, loss));
    if (has_norm) {
      EXPECT_TRUE(IsGradientOf(dnorms.Get(), norms, loss));
    }
    run({});  // dv is in its place
    EXPECT_EQ(dqkv.Get(), whole);
  }
}

TEST_P(ProjectionOpsTest, SplitMlaKvSharesTheRotatedKeyAndItsBackwardSumsOverHeads) {
  const MlaShape shape{.num_heads = 3, .nope_dim = 4, .rope_dim = 2, .v_dim = 5};
  for (const DType dtype : kComputeDTypes) {
    const Array kv = Random(dtype, {6, 3, 9});
    const Array k_rope = Random(dtype, {6, 2});
    const Array k = Make(dtype, {6, 3, 6});
    const Array v = Make(dtype, {6, 3, 5});
    ops().SplitMlaKv(queue(), shape, kv, k_rope, k, v);
    const std::vector<double> latent = kv.Get();
    const std::vector<double> rope = k_rope.Get();
    std::vector<double> want_k;
    std::vector<double> want_v;
    for (std::size_t head = 0; head < 18; ++head) {
      for (std::size_t i = 0; i < 4; ++i) want_k.push_back(latent[head * 9 + i]);
      for (std::size_t i = 0; i < 2; ++i) want_k.push_back(rope[head / 3 * 2 + i]);
      for (std::size_t i = 4; i < 9; ++i) want_v.push_back(latent[head * 9 + i]);
    }
    EXPECT_EQ(k.Get(), want_k);
    EXPECT_EQ(v.Get(), want_v);

    const Array dk = Random(dtype, {6, 3, 6});
    const Array dv = Random(dtype, {6, 3, 5});
    const Array dkv = Make(dtype, {6, 3, 9});
    const Array dk_rope = Make(dtype, {6, 2});
    ops().SplitMlaKvBackward(queue(), shape, dk, dv, dkv, dk_rope);
    const std::vector<double> dk_values = dk.Get();
    const std::vector<double> dv_values = dv.Get();
    std::vector<double> want_dkv;
    std::vector<double> want_dk_rope(12);
    for (std::size_t head = 0; head < 18; ++head) {
      for (std::size_t i = 0; i < 4; ++i) want_dkv.push_back(dk_values[head * 6 + i]);
      for (std::size_t i = 0; i < 5; ++i) want_dkv.push_back(dv_values[head * 5 + i]);
      for (std::size_t i = 0; i < 2; ++i)
        want_dk_rope[head / 3 * 2 + i] += dk_values[head * 6 + 4 + i];
    }
    EXPECT_EQ(dkv.Get(), want_dkv);
    EXPECT_TRUE(AllNear(dk_rope.Get(), want_dk_rope, ToleranceOf(dtype)));
    // The backward of a linear map is its adjoint.
    if (dtype == DType::kFloat64) {
      EXPECT_NEAR(SumOfProducts(want_k, dk_values) + SumOfProducts(want_v, dv_values),
                  SumOfProducts(latent, dkv.Get()) + SumOfProducts(rope, dk_rope.Get()), 1e-12);
    }
  }
}

TEST_P(ProjectionOpsTest, SplitColumnsCutsEveryRowAndMergeJoinsIt) {
  for (const DType dtype : kComputeDTypes) {
    const Array from = Random(dtype, {9, 11});
    const Array a = Make(dtype, {9, 4});
    const Array b = Make(dtype, {9, 7});
    ops().SplitColumns(queue(), from, a, b);
    const std::vector<double> all = from.Get();
    std::vector<double> want_a;
    std::vector<double> want_b;
    for (std::size_t i = 0; i < all.size(); ++i) (i % 11 < 4 ? want_a : want_b).push_back(all[i]);
    EXPECT_EQ(a.Get(), want_a);
    EXPECT_EQ(b.Get(), want_b);
    const Array merged = Make(dtype, {9, 11});
    ops().MergeColumns(queue(), a, b, merged);
    EXPECT_EQ(merged.Bytes(), from.Bytes());
  }
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_PROJECTION_OPS_SUITE_H_
