// What every Ops promises of attention. Instantiate AttentionOpsTest with backends.
#ifndef CKPT_TESTS_CONFORMANCE_ATTENTION_OPS_SUITE_H_
#define CKPT_TESTS_CONFORMANCE_ATTENTION_OPS_SUITE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/ops_fixture.h"
#include "tests/trainer/ops/finite_difference.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

// Attention by its definition, one query at a time.
struct ReferenceAttention {
  AttentionShape shape;
  std::vector<double> q, k, v;
  std::vector<double> o, lse;

  [[nodiscard]] std::int64_t FirstKey(std::int64_t query) const {
    return shape.window > 0 ? std::max<std::int64_t>(0, query - shape.window + 1) : 0;
  }
  [[nodiscard]] std::size_t QueryAt(std::int64_t b, std::int64_t s, std::int64_t n,
                                    std::int64_t dim) const {
    return static_cast<std::size_t>(((b * shape.seq + s) * shape.num_heads + n) * dim);
  }
  [[nodiscard]] std::size_t KeyAt(std::int64_t b, std::int64_t s, std::int64_t n,
                                  std::int64_t dim) const {
    const std::int64_t g = n / (shape.num_heads / shape.num_kv_heads);
    return static_cast<std::size_t>(((b * shape.seq + s) * shape.num_kv_heads + g) * dim);
  }

  // Calls `body(b, n, query, probabilities of the keys from FirstKey on, lse)`.
  template <typename Body>
  void ForQueries(const Body& body) const {
    for (std::int64_t b = 0; b < shape.batch; ++b) {
      for (std::int64_t n = 0; n < shape.num_heads; ++n) {
        for (std::int64_t i = 0; i < shape.seq; ++i) {
          std::vector<double> p;
          double sum = 0;
          for (std::int64_t j = FirstKey(i); j <= i; ++j) {
            double score = 0;
            for (std::size_t d = 0; d < static_cast<std::size_t>(shape.qk_dim); ++d) {
              score += q[QueryAt(b, i, n, shape.qk_dim) + d] * k[KeyAt(b, j, n, shape.qk_dim) + d];
            }
            p.push_back(std::exp(score * shape.scale));
            sum += p.back();
          }
          for (double& x : p) x /= sum;
          body(b, n, i, p, std::log(sum));
        }
      }
    }
  }

  void Run() {
    o.assign(static_cast<std::size_t>(shape.batch * shape.seq * shape.num_heads * shape.v_dim), 0);
    lse.clear();
    ForQueries([&](std::int64_t b, std::int64_t n, std::int64_t i, const std::vector<double>& p,
                   double log_sum) {
      lse.push_back(log_sum);
      for (std::size_t at = 0; at < p.size(); ++at) {
        const std::size_t value =
            KeyAt(b, FirstKey(i) + static_cast<std::int64_t>(at), n, shape.v_dim);
        for (std::size_t d = 0; d < static_cast<std::size_t>(shape.v_dim); ++d) {
          o[QueryAt(b, i, n, shape.v_dim) + d] += p[at] * v[value + d];
        }
      }
    });
  }

  // REQUIRES: Run() before.
  void RunBackward(const std::vector<double>& d_o, std::vector<double>& dq, std::vector<double>& dk,
                   std::vector<double>& dv) const {
    dq.assign(q.size(), 0);
    dk.assign(k.size(), 0);
    dv.assign(v.size(), 0);
    ForQueries(
        [&](std::int64_t b, std::int64_t n, std::int64_t i, const std::vector<double>& p, double) {
          const std::size_t result = QueryAt(b, i, n, shape.v_dim);
          const std::size_t query = QueryAt(b, i, n, shape.qk_dim);
          double delta = 0;
          for (std::size_t d = 0; d < static_cast<std::size_t>(shape.v_dim); ++d)
            delta += d_o[result + d] * o[result + d];
          for (std::size_t at = 0; at < p.size(); ++at) {
            const std::int64_t j = FirstKey(i) + static_cast<std::int64_t>(at);
            const std::size_t value = KeyAt(b, j, n, shape.v_dim);
            const std::size_t key = KeyAt(b, j, n, shape.qk_dim);
            double dp = 0;
            for (std::size_t d = 0; d < static_cast<std::size_t>(shape.v_dim); ++d) {
              dp += d_o[result + d] * v[value + d];
              dv[value + d] += p[at] * d_o[result + d];
            }
            const double ds = p[at] * (dp - delta) * shape.scale;
            for (std::size_t d = 0; d < static_cast<std::size_t>(shape.qk_dim); ++d) {
              dq[query + d] += ds * k[key + d];
              dk[key + d] += ds * q[query + d];
            }
          }
        });
  }
};

class AttentionOpsTest : public OpsTest {
 protected:
  struct Operands {
    Array q, k, v, o, lse, d_o, dq, dk, dv;
  };
  Operands MakeOperands(DType dtype, const AttentionShape& s) {
    const std::int64_t tokens = s.batch * s.seq;
    return {Random(dtype, {tokens, s.num_heads, s.qk_dim}),
            Random(dtype, {tokens, s.num_kv_heads, s.qk_dim}),
            Random(dtype, {tokens, s.num_kv_heads, s.v_dim}),
            Make(dtype, {tokens, s.num_heads, s.v_dim}),
            Make(StatisticsOf(dtype), {s.batch, s.num_heads, s.seq}),
            Random(dtype, {tokens, s.num_heads, s.v_dim}),
            Make(dtype, {tokens, s.num_heads, s.qk_dim}),
            Make(dtype, {tokens, s.num_kv_heads, s.qk_dim}),
            Make(dtype, {tokens, s.num_kv_heads, s.v_dim})};
  }
  void Run(const AttentionShape& shape, const Operands& x) {
    ops().Attention(queue(), shape, x.q, x.k, x.v, x.o, x.lse);
    ops().AttentionBackward(queue(), shape, x.d_o, x.q, x.k, x.v, x.o, x.lse, x.dq, x.dk, x.dv);
  }

  static AttentionShape Shape(std::int64_t batch, std::int64_t seq, std::int64_t heads,
                              std::int64_t kv_heads, std::int64_t qk_dim, std::int64_t v_dim,
                              std::int64_t window) {
    return {.batch = batch,
            .seq = seq,
            .num_heads = heads,
            .num_kv_heads = kv_heads,
            .qk_dim = qk_dim,
            .v_dim = v_dim,
            .scale = 1 / std::sqrt(static_cast<double>(qk_dim)),
            .window = window};
  }
};

TEST_P(AttentionOpsTest, AttentionAndItsBackwardAreTheDefinition) {
  for (const AttentionShape& shape :
       {Shape(1, 1, 1, 1, 4, 4, 0), Shape(2, 37, 4, 2, 16, 16, 0), Shape(1, 300, 2, 2, 24, 24, 0),
        Shape(2, 141, 3, 1, 12, 12, 50), Shape(1, 270, 2, 1, 20, 12, 131),
        Shape(1, 65, 6, 3, 8, 8, 1)}) {
    for (const DType dtype : kComputeDTypes) {
      SCOPED_TRACE(::testing::Message()
                   << "seq " << shape.seq << " window " << shape.window << " " << DTypeName(dtype));
      const Operands x = MakeOperands(dtype, shape);
      Run(shape, x);
      ReferenceAttention want{shape, x.q.Get(), x.k.Get(), x.v.Get(), {}, {}};
      want.Run();
      const double tolerance = ToleranceOf(dtype);
      EXPECT_TRUE(AllNear(x.o.Get(), want.o, tolerance));
      EXPECT_TRUE(AllNear(x.lse.Get(), want.lse, ToleranceOf(StatisticsOf(dtype))));
      std::vector<double> dq;
      std::vector<double> dk;
      std::vector<double> dv;
      want.RunBackward(x.d_o.Get(), dq, dk, dv);
      // In bfloat16 the backward reads results that were rounded before.
      const double backward_tolerance = dtype == DType::kBfloat16 ? 4 * tolerance : 2 * tolerance;
      EXPECT_TRUE(AllNear(x.dq.Get(), dq, backward_tolerance));
      EXPECT_TRUE(AllNear(x.dk.Get(), dk, backward_tolerance));
      EXPECT_TRUE(AllNear(x.dv.Get(), dv, backward_tolerance));
    }
  }
}

TEST_P(AttentionOpsTest, AttentionBackwardIsTheDerivative) {
  for (const AttentionShape& shape :
       {Shape(2, 6, 2, 2, 4, 4, 0), Shape(1, 7, 4, 2, 3, 3, 3), Shape(1, 5, 2, 2, 6, 4, 0)}) {
    const Operands x = MakeOperands(DType::kFloat64, shape);
    Run(shape, x);
    std::vector<double> q = x.q.Get();
    std::vector<double> k = x.k.Get();
    std::vector<double> v = x.v.Get();
    const std::vector<double> d_o = x.d_o.Get();
    const std::vector<double> dq = x.dq.Get();
    const std::vector<double> dk = x.dk.Get();
    const std::vector<double> dv = x.dv.Get();
    Operands at = MakeOperands(DType::kFloat64, shape);
    const auto loss = [&] {
      at.q.Set(q);
      at.k.Set(k);
      at.v.Set(v);
      ops().Attention(queue(), shape, at.q, at.k, at.v, at.o, at.lse);
      return SumOfProducts(at.o.Get(), d_o);
    };
    EXPECT_TRUE(IsGradientOf(dq, q, loss));
    EXPECT_TRUE(IsGradientOf(dk, k, loss));
    EXPECT_TRUE(IsGradientOf(dv, v, loss));
  }
}

TEST_P(AttentionOpsTest, AttentionTakesScoresThatOverflowTheExponential) {
  const AttentionShape shape = Shape(1, 40, 1, 1, 2, 2, 0);
  Operands x = MakeOperands(DType::kFloat32, shape);
  std::vector<double> q = x.q.Get();
  for (double& value : q) value *= 1000;
  x.q.Set(q);
  Run(shape, x);
  for (const Array* array : {&x.o, &x.lse, &x.dq, &x.dk, &x.dv}) {
    EXPECT_THAT(
        array->Get(),
        ::testing::Each(::testing::Truly([](double value) { return std::isfinite(value); })));
  }
}

TEST_P(AttentionOpsTest, AttentionSeesNoLaterTokenAndPassesNaNOn) {
  const AttentionShape shape = Shape(1, 30, 1, 1, 4, 4, 0);
  Operands x = MakeOperands(DType::kFloat32, shape);
  std::vector<double> q = x.q.Get();
  q[20 * 4] = std::nan("");
  x.q.Set(q);
  ops().Attention(queue(), shape, x.q, x.k, x.v, x.o, x.lse);
  const std::vector<double> o = x.o.Get();
  for (std::size_t i = 0; i < o.size(); ++i) EXPECT_EQ(std::isnan(o[i]), i / 4 == 20) << i;
}

// Examples in sequences of 300 tokens, and the padding behind each.
struct PackedExample {
  std::int64_t length = 0;
  std::int64_t padding = 0;
};

// Rows [begin, begin + count) of x [T, columns].
inline std::vector<double> RowsOf(const std::vector<double>& x, std::int64_t columns,
                                  std::int64_t begin, std::int64_t count) {
  const auto first = x.begin() + begin * columns;
  return {first, first + count * columns};
}

TEST_P(AttentionOpsTest, PackedExamplesHaveTheNumbersThatTheyHaveAlone) {
  constexpr std::int64_t kSeq = 300;
  const std::vector<PackedExample> kPacked[] = {
      // Odd lengths, one token, no token, and no padding.
      {{1}, {37}, {0}, {1}, {261}, {299}, {1}},
      // Ends at multiples of what a backend may take at once, and one beside them.
      {{128}, {128}, {0, 44}, {64}, {63}, {1}, {129, 43}},
      // A sequence that is padding alone, and one example that fills its sequence.
      {{0, 300}, {300}},
      {{300}, {7, 293}},
  };
  for (const auto& examples : kPacked) {
    for (const AttentionShape& unpacked :
         {Shape(2, kSeq, 4, 2, 16, 16, 0), Shape(2, kSeq, 3, 1, 12, 12, 50),
          Shape(2, kSeq, 2, 2, 20, 12, 131)}) {
      for (const DType dtype : kComputeDTypes) {
        SCOPED_TRACE(::testing::Message() << examples.size() << " examples, window "
                                          << unpacked.window << " " << DTypeName(dtype));
        std::vector<double> begins = {0};
        std::vector<double> lengths;
        for (const PackedExample& example : examples) {
          begins.push_back(begins.back() + static_cast<double>(example.length + example.padding));
          lengths.push_back(static_cast<double>(example.length));
        }
        const auto count = static_cast<std::int64_t>(examples.size());
        const Array cu_seqlens = Make(DType::kInt32, {count + 1}, begins);
        const Array of_each = Make(DType::kInt32, {count}, lengths);
        AttentionShape shape = unpacked;
        shape.examples = {.cu_seqlens = cu_seqlens, .lengths = of_each};
        const Operands x = MakeOperands(dtype, shape);
        Run(shape, x);

        for (std::size_t e = 0; e < examples.size(); ++e) {
          const auto begin = static_cast<std::int64_t>(begins[e]);
          const std::int64_t length = examples[e].length;
          AttentionShape alone = unpacked;
          alone.batch = 1;
          alone.seq = length;
          Operands own = MakeOperands(dtype, alone);
          const auto take = [&](const Array& from, std::int64_t columns, Array& to) {
            to.Set(RowsOf(from.Get(), columns, begin, length));
          };
          take(x.q, alone.num_heads * alone.qk_dim, own.q);
          take(x.k, alone.num_kv_heads * alone.qk_dim, own.k);
          take(x.v, alone.num_kv_heads * alone.v_dim, own.v);
          take(x.d_o, alone.num_heads * alone.v_dim, own.d_o);
          if (length > 0) Run(alone, own);
          // The example's rows, and those of its padding, which are 0.
          const auto expect_equal = [&](const Array& have, std::int64_t columns,
                                        const Array& want) {
            EXPECT_EQ(RowsOf(have.Get(), columns, begin, length), want.Get()) << "example " << e;
            EXPECT_THAT(RowsOf(have.Get(), columns, begin + length, examples[e].padding),
                        ::testing::Each(0.0))
                << "padding of example " << e;
          };
          expect_equal(x.o, alone.num_heads * alone.v_dim, own.o);
          expect_equal(x.dq, alone.num_heads * alone.qk_dim, own.dq);
          expect_equal(x.dk, alone.num_kv_heads * alone.qk_dim, own.dk);
          expect_equal(x.dv, alone.num_kv_heads * alone.v_dim, own.dv);
          const std::vector<double> lse = x.lse.Get();
          const std::vector<double> own_lse = own.lse.Get();
          for (std::int64_t head = 0; head < alone.num_heads; ++head) {
            const std::int64_t at = (begin / kSeq * alone.num_heads + head) * kSeq + begin % kSeq;
            EXPECT_EQ(RowsOf(lse, 1, at, length), RowsOf(own_lse, 1, head * length, length));
            EXPECT_THAT(RowsOf(lse, 1, at + length, examples[e].padding), ::testing::Each(0.0));
          }
        }
      }
    }
  }
}

TEST_P(AttentionOpsTest, ValuesMayStayInAProjection) {
  constexpr std::int64_t kStride = 13;  // of heads of 5 elements
  const AttentionShape packed = {.batch = 2,
                                 .seq = 9,
                                 .num_heads = 4,
                                 .num_kv_heads = 2,
                                 .qk_dim = 6,
                                 .v_dim = 5,
                                 .scale = 0.4};
  AttentionShape strided = packed;
  strided.v_stride = kStride;
  for (const DType dtype : kComputeDTypes) {
    const DType statistics = StatisticsOf(dtype);
    const Array q = Random(dtype, {18, 4, 6});
    const Array k = Random(dtype, {18, 2, 6});
    const Array v = Random(dtype, {18, 2, 5});
    const Array d_o = Random(dtype, {18, 4, 5});
    // The values are the last elements of each head's part.
    constexpr std::int64_t kFirst = kStride - 5;
    std::vector<double> spread(36 * kStride, std::nan(""));
    const std::vector<double> values = v.Get();
    for (std::size_t i = 0; i < values.size(); ++i) {
      spread[i / 5 * kStride + kFirst + i % 5] = values[i];
    }
    const Array projection = Make(dtype, {18, 2, kStride}, spread);
    const Array dprojection = Make(dtype, {18, 2, kStride});
    const auto in = [&](const Array& whole) {
      return Tensor(whole.tensor().bytes() + kFirst * ElementBytes(dtype), dtype, {18, 2, 5});
    };
    std::vector<std::vector<double>> results[2];
    for (const bool is_strided : {false, true}) {
      const AttentionShape& shape = is_strided ? strided : packed;
      const Array o = Make(dtype, {18, 4, 5});
      const Array lse = Make(statistics, {2, 4, 9});
      const Array dq = Make(dtype, {18, 4, 6});
      const Array dk = Make(dtype, {18, 2, 6});
      const Array dv = Make(dtype, {18, 2, 5});
      const Tensor from = is_strided ? in(projection) : v.tensor();
      ops().Attention(queue(), shape, q, k, from, o, lse);
      ops().AttentionBackward(queue(), shape, d_o, q, k, from, o, lse, dq, dk,
                              is_strided ? in(dprojection) : dv.tensor());
      std::vector<double> gradient = dv.Get();
      if (is_strided) {
        gradient.clear();
        const std::vector<double> all = dprojection.Get();
        for (std::size_t i = 0; i < all.size(); ++i) {
          const bool is_value = i % kStride >= kFirst;
          EXPECT_NE(std::isnan(all[i]), is_value) << i;
          if (is_value) gradient.push_back(all[i]);
        }
      }
      results[is_strided] = {o.Get(), lse.Get(), dq.Get(), dk.Get(), gradient};
    }
    EXPECT_EQ(results[0], results[1]);
  }
}

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_CONFORMANCE_ATTENTION_OPS_SUITE_H_
