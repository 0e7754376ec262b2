// Every operation of the GPU against the CPU's, at sizes of real models and at odd ones.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/trainer/ops/cuda/twins.h"

namespace ckpt::trainer {
namespace {

constexpr DType kComputeDTypes[] = {DType::kFloat32, DType::kBfloat16};

Gradient Stored(const Tensor& tensor) { return {.tensor = tensor, .write = GradWrite::kStore}; }
Gradient Added(const Tensor& tensor) { return {.tensor = tensor, .write = GradWrite::kAdd}; }

using CudaOpsTest = Twins;

TEST_F(CudaOpsTest, ElementwiseOperationsAgree) {
  for (const DType dtype : kComputeDTypes) {
    for (const std::int64_t count : {1, 13, 4096, 100003}) {
      const auto a = Random(dtype, {count});
      const auto b = Random(dtype, {count});
      const auto sum = Poisoned(dtype, {count});
      const auto filled = Poisoned(dtype, {count});
      const auto wide = Poisoned(DType::kFloat32, {count});
      const auto narrow = Poisoned(DType::kBfloat16, {count});
      const auto added = Random(DType::kFloat32, {count});
      OnBoth([&](Ops& ops, Queue& queue) {
        ops.Add(queue, a, b, sum);
        ops.Fill(queue, filled, 0.3);
        ops.Cast(queue, a, wide);
        ops.Cast(queue, a, narrow);
        ops.Accumulate(queue, a, added);
      });
      for (const auto* result : {&sum, &filled, &wide, &narrow, &added}) {
        ExpectEqual(*result);
      }
    }
  }
}

TEST_F(CudaOpsTest, BiasesAgree) {
  for (const DType dtype : kComputeDTypes) {
    for (const std::int64_t columns : {1, 37, 1024, 4097}) {
      for (const std::int64_t rows : {1, 131, 2000}) {
        const auto x = Random(dtype, {rows, columns});
        const auto bias = Random(dtype, {columns});
        const auto stored = Poisoned(DType::kFloat32, {columns});
        const auto added = Random(DType::kBfloat16, {columns});
        OnBoth([&](Ops& ops, Queue& queue) {
          ops.BiasBackward(queue, x, Stored(stored));
          ops.BiasBackward(queue, x, Added(added));
          ops.AddBias(queue, x, bias);
        });
        ExpectEqual(x);
        ExpectNear(stored, 1e-5);
        ExpectNear(added, BoundOf(DType::kBfloat16));
      }
    }
  }
}

TEST_F(CudaOpsTest, NormsAgree) {
  for (const DType dtype : kComputeDTypes) {
    for (const std::int64_t columns : {5, 37, 128, 1024, 1536, 5120}) {
      for (const std::int64_t rows : {1, 131, 3000}) {
        SCOPED_TRACE(columns);
        const auto x = Random(dtype, {rows, columns});
        const auto dy = Random(dtype, {rows, columns});
        const auto weight = Random(dtype, {columns});
        const auto bias = Random(dtype, {columns});
        const auto y = Poisoned(dtype, {rows, columns});
        const auto rstd = Poisoned(DType::kFloat32, {rows});
        const auto dx = Poisoned(dtype, {rows, columns});
        const auto dx_added = Random(dtype, {rows, columns});
        const auto dweight = Poisoned(DType::kFloat32, {columns});
        const auto centered = Poisoned(dtype, {rows, columns});
        const auto statistics = Poisoned(DType::kFloat32, {rows, 2});
        const auto centered_dx = Poisoned(dtype, {rows, columns});
        const auto centered_dweight = Poisoned(DType::kFloat32, {columns});
        const auto dbias = Random(DType::kFloat32, {columns});
        OnBoth([&](Ops& ops, Queue& queue) {
          ops.RmsNorm(queue, x, weight, 1e-5, y, rstd);
          ops.RmsNormBackward(queue, dy, x, weight, rstd, false, dx, Stored(dweight));
          ops.RmsNormBackward(queue, dy, x, weight, rstd, true, dx_added, {});
          ops.LayerNorm(queue, x, weight, bias, 1e-5, centered, statistics);
          ops.LayerNormBackward(queue, dy, x, weight, statistics, false, centered_dx,
                                Stored(centered_dweight), Added(dbias));
        });
        for (const auto* result : {&y, &dx, &dx_added, &centered, &centered_dx}) {
          ExpectNear(*result, BoundOf(dtype));
        }
        for (const auto* result : {&rstd, &statistics}) ExpectNear(*result, 1e-6);
        for (const auto* result : {&dweight, &centered_dweight, &dbias}) ExpectNear(*result, 1e-5);
      }
    }
  }
}

TEST_F(CudaOpsTest, NormsOfSumsAgree) {
  for (const DType dtype : kComputeDTypes) {
    for (const std::int64_t columns : {5, 37, 128, 1024, 1536, 5120}) {
      for (const std::int64_t rows : {1, 131, 3000}) {
        SCOPED_TRACE(columns);
        const auto x = Random(dtype, {rows, columns});
        const auto delta = Random(dtype, {rows, columns});
        const auto weight = Random(dtype, {columns});
        const auto sum = Poisoned(dtype, {rows, columns});
        const auto y = Poisoned(dtype, {rows, columns});
        const auto rstd = Poisoned(DType::kFloat32, {rows});
        const auto y_in_place = Random(dtype, {rows, columns});
        const auto sum_in_place = Random(dtype, {rows, columns});
        OnBoth([&](Ops& ops, Queue& queue) {
          ops.AddRmsNorm(queue, x, delta, weight, 1e-5, sum, y, rstd);
          ops.AddRmsNorm(queue, sum_in_place, y_in_place, weight, 1e-5, sum_in_place, y_in_place,
                         rstd);
        });
        ExpectEqual(sum);
        ExpectEqual(sum_in_place);
        for (const auto* result : {&y, &y_in_place}) ExpectNear(*result, BoundOf(dtype));
        ExpectNear(rstd, 1e-6);
      }
    }
  }
}

TEST_F(CudaOpsTest, QueriesAndKeysAreNormalisedAndRotatedAlike) {
  struct Case {
    QkvShape shape;
    std::int64_t tokens;
  };
  // With thousands of tokens, threads of the backward have heads of several.
  for (const DType dtype : kComputeDTypes) {
    for (const auto& [shape, tokens] : {Case{{16, 8, 128}, 65}, Case{{16, 4, 128}, 6145},
                                        Case{{4, 4, 64}, 9001}, Case{{6, 2, 6}, 65}}) {
      for (const bool has_rope : {false, true}) {
        const std::int64_t width = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
        const auto qkv = Random(dtype, {tokens, width});
        const auto q_norm = Random(dtype, {shape.head_dim});
        const auto k_norm = Random(dtype, {shape.head_dim});
        const auto cosine = Random(DType::kFloat32, {tokens, shape.head_dim / 2});
        const auto sine = Random(DType::kFloat32, {tokens, shape.head_dim / 2});
        const auto q = Poisoned(dtype, {tokens, shape.num_heads, shape.head_dim});
        const auto k = Poisoned(dtype, {tokens, shape.num_kv_heads, shape.head_dim});
        const auto v = Poisoned(dtype, {tokens, shape.num_kv_heads, shape.head_dim});
        const auto q_rstd = Poisoned(DType::kFloat32, {tokens * shape.num_heads});
        const auto k_rstd = Poisoned(DType::kFloat32, {tokens * shape.num_kv_heads});
        const auto dq = Random(dtype, {tokens, shape.num_heads, shape.head_dim});
        const auto dk = Random(dtype, {tokens, shape.num_kv_heads, shape.head_dim});
        const auto dqkv = Random(dtype, {tokens, width});  // with dv in its place
        const auto dq_norm = Random(DType::kFloat32, {shape.head_dim});
        const auto dk_norm = Random(DType::kFloat32, {shape.head_dim});
        OnBoth([&](Ops& ops, Queue& queue) {
          QkvForm form = {.shape = shape, .q_norm = q_norm, .k_norm = k_norm, .norm_eps = 1e-6};
          if (has_rope) {
            form.rope = {.seq = tokens, .dim = shape.head_dim};
            form.cosine = cosine;
            form.sine = sine;
          }
          ops.QkvPrepare(queue, form, qkv, q, k, v, q_rstd, k_rstd);
          ops.QkvPrepare(queue, form, qkv, q, k, {}, q_rstd, k_rstd);
          ops.QkvPrepareBackward(queue, form, dq, dk, {}, qkv, q_rstd, k_rstd, dqkv,
                                 {.tensor = dq_norm},
                                 {.tensor = dk_norm, .write = GradWrite::kAdd});
        });
        ExpectEqual(v);
        for (const auto* result : {&q, &k, &dqkv}) ExpectNear(*result, 4 * BoundOf(dtype));
        for (const auto* result : {&q_rstd, &k_rstd}) ExpectNear(*result, 1e-5);
        // Sums over all heads, in another order.
        const double roundings = std::sqrt(static_cast<double>(tokens * shape.num_heads));
        for (const auto* result : {&dq_norm, &dk_norm}) {
          ExpectNear(*result, 4 * BoundOf(dtype) + 6e-8 * roundings);
        }
      }
    }
  }
}

TEST_F(CudaOpsTest, ActivationsAgree) {
  for (const DType dtype : kComputeDTypes) {
    for (const std::int64_t columns : {3, 640, 3072}) {
      for (const bool weighted : {false, true}) {
        constexpr std::int64_t kRows = 257;
        const auto x = Random(dtype, {kRows, 2 * columns});
        const auto single = Random(dtype, {kRows, columns});
        const auto dy = Random(dtype, {kRows, columns});
        const auto p = Random(DType::kFloat32, {kRows});
        const auto y = Poisoned(dtype, {kRows, columns});
        const auto dx = Poisoned(dtype, {kRows, 2 * columns});
        const auto dp = Poisoned(DType::kFloat32, {kRows});
        const auto gelu = Poisoned(dtype, {kRows, columns});
        const auto gelu_dx = Poisoned(dtype, {kRows, columns});
        const auto gelu_dp = Poisoned(DType::kFloat32, {kRows});
        const auto again = Poisoned(dtype, {kRows, columns});
        const auto gelu_again = Poisoned(dtype, {kRows, columns});
        OnBoth([&](Ops& ops, Queue& queue) {
          const Tensor weights = weighted ? Tensor(p) : Tensor();
          ops.SwiGlu(queue, x, {.weights = weights}, y);
          ops.SwiGluBackward(queue, dy, x, {.weights = weights}, dx,
                             weighted ? Tensor(dp) : Tensor(), again);
          ops.Gelu(queue, single, {.weights = weights}, gelu);
          ops.GeluBackward(queue, dy, single, {.weights = weights}, gelu_dx,
                           weighted ? Tensor(gelu_dp) : Tensor(), gelu_again);
        });
        for (const auto* result : {&y, &dx, &again, &gelu, &gelu_dx, &gelu_again}) {
          ExpectNear(*result, BoundOf(dtype));
        }
        if (!weighted) continue;
        ExpectNear(dp, 1e-5);
        ExpectNear(gelu_dp, 1e-5);
      }
    }
  }
}

TEST_F(CudaOpsTest, PartsOfProjectionsMoveTheSameWay) {
  for (const DType dtype : kComputeDTypes) {
    for (const QkvShape shape : {QkvShape{16, 8, 128}, QkvShape{6, 2, 5}, QkvShape{4, 4, 64}}) {
      constexpr std::int64_t kTokens = 33;
      const std::int64_t q_dim = shape.num_heads * shape.head_dim;
      const std::int64_t kv_dim = shape.num_kv_heads * shape.head_dim;
      const auto qkv = Random(dtype, {kTokens, q_dim + 2 * kv_dim});
      const auto q = Poisoned(dtype, {kTokens, q_dim});
      const auto k = Poisoned(dtype, {kTokens, kv_dim});
      const auto v = Poisoned(dtype, {kTokens, kv_dim});
      const auto merged = Poisoned(dtype, {kTokens, q_dim + 2 * kv_dim});
      const auto left = Poisoned(dtype, {kTokens, q_dim});
      const auto right = Poisoned(dtype, {kTokens, 2 * kv_dim});
      const auto joined = Poisoned(dtype, {kTokens, q_dim + 2 * kv_dim});
      OnBoth([&](Ops& ops, Queue& queue) {
        ops.QkvPrepare(queue, {.shape = shape}, qkv, q, k, v, {}, {});
        ops.QkvPrepareBackward(queue, {.shape = shape}, q, k, v, {}, {}, {}, merged, {}, {});
        ops.SplitColumns(queue, qkv, left, right);
        ops.MergeColumns(queue, left, right, joined);
      });
      for (const auto* result : {&q, &k, &v, &merged, &left, &right, &joined}) ExpectEqual(*result);
    }
    for (const MlaShape shape :
         {MlaShape{16, 128, 64, 128}, MlaShape{128, 128, 64, 128}, MlaShape{3, 8, 16, 24},
          MlaShape{3, 5, 2, 7}, MlaShape{2, 3, 300, 5}}) {
      constexpr std::int64_t kTokens = 21;
      const auto kv = Random(dtype, {kTokens, shape.num_heads, shape.nope_dim + shape.v_dim});
      const auto rope = Random(dtype, {kTokens, shape.rope_dim});
      const auto k = Poisoned(dtype, {kTokens, shape.num_heads, shape.nope_dim + shape.rope_dim});
      const auto v = Poisoned(dtype, {kTokens, shape.num_heads, shape.v_dim});
      const auto dkv = Poisoned(dtype, {kTokens, shape.num_heads, shape.nope_dim + shape.v_dim});
      const auto drope = Poisoned(dtype, {kTokens, shape.rope_dim});
      OnBoth([&](Ops& ops, Queue& queue) {
        ops.SplitMlaKv(queue, shape, kv, rope, k, v);
        ops.SplitMlaKvBackward(queue, shape, k, v, dkv, drope);
      });
      for (const auto* result : {&k, &v, &dkv}) ExpectEqual(*result);
      ExpectNear(drope, BoundOf(dtype));
    }
  }
}

TEST_F(CudaOpsTest, RotationsAgree) {
  constexpr std::int64_t kSeq = 17;
  constexpr std::int64_t kTokens = 3 * kSeq;
  struct Sizes {
    std::int64_t heads;
    std::int64_t head_dim;
    std::int64_t rotated;
  };
  // Packs of a head, and heads that have none.
  for (const Sizes& sizes : {Sizes{4, 24, 16}, Sizes{1, 64, 64}, Sizes{5, 192, 64},
                             Sizes{3, 40, 24}, Sizes{3, 20, 16}, Sizes{2, 10, 6}}) {
    for (const DType dtype : kComputeDTypes) {
      for (const bool interleaved : {false, true}) {
        for (const bool at_front : {false, true}) {
          const auto x = Random(dtype, {kTokens, sizes.heads, sizes.head_dim});
          const auto cosine = Random(DType::kFloat32, {kSeq, sizes.rotated / 2});
          const auto sine = Random(DType::kFloat32, {kSeq, sizes.rotated / 2});
          const auto positions = Indices({kTokens}, kSeq);
          OnBoth([&](Ops& ops, Queue& queue) {
            RopeForm form = {.seq = kSeq,
                             .dim = sizes.rotated,
                             .at_front = at_front,
                             .interleaved = interleaved};
            ops.Rope(queue, form, cosine, sine, x);
            form.positions = positions;
            form.inverse = true;
            ops.Rope(queue, form, cosine, sine, x);
          });
          ExpectNear(x, BoundOf(dtype));
        }
      }
    }
  }
}

class CudaAttentionTest : public Twins {
 protected:
  void ExpectAgreement(AttentionShape shape, DType dtype, const Operand* cu_seqlens = nullptr,
                       const Operand* lengths = nullptr) {
    SCOPED_TRACE(std::to_string(shape.seq) + " x " + std::to_string(shape.qk_dim) + " " +
                 std::string(DTypeName(dtype)));
    const std::int64_t tokens = shape.batch * shape.seq;
    const auto q = Random(dtype, {tokens, shape.num_heads, shape.qk_dim});
    const auto k = Random(dtype, {tokens, shape.num_kv_heads, shape.qk_dim});
    const std::int64_t stride = shape.v_stride == 0 ? shape.v_dim : shape.v_stride;
    const auto v = Random(dtype, {tokens, shape.num_kv_heads, stride});
    const auto d_o = Random(dtype, {tokens, shape.num_heads, shape.v_dim});
    const auto o = Poisoned(dtype, {tokens, shape.num_heads, shape.v_dim});
    const auto lse = Poisoned(DType::kFloat32, {shape.batch, shape.num_heads, shape.seq});
    const auto dq = Poisoned(dtype, {tokens, shape.num_heads, shape.qk_dim});
    const auto dk = Poisoned(dtype, {tokens, shape.num_kv_heads, shape.qk_dim});
    // What is between values stays as it is.
    const auto dv = Random(dtype, {tokens, shape.num_kv_heads, stride});
    const auto values_in = [&](const Operand& whole) {
      Tensor values = whole;
      values.dims[2] = shape.v_dim;
      return values;
    };
    OnBoth([&](Ops& ops, Queue& queue) {
      AttentionShape here = shape;
      if (cu_seqlens != nullptr) here.examples = {.cu_seqlens = *cu_seqlens, .lengths = *lengths};
      ops.Attention(queue, here, q, k, values_in(v), o, lse);
      ops.AttentionBackward(queue, here, d_o, q, k, values_in(v), o, lse, dq, dk, values_in(dv));
    });
    const double bound = dtype == DType::kBfloat16 ? 8e-3 : 5e-6;
    for (const auto* result : {&o, &dq, &dk, &dv}) ExpectNear(*result, bound);
    ExpectNear(lse, dtype == DType::kBfloat16 ? 1e-4 : 1e-6);
  }

  static AttentionShape Shape(std::int64_t batch, std::int64_t seq, std::int64_t heads,
                              std::int64_t kv_heads, std::int64_t qk_dim, std::int64_t v_dim) {
    return {.batch = batch,
            .seq = seq,
            .num_heads = heads,
            .num_kv_heads = kv_heads,
            .qk_dim = qk_dim,
            .v_dim = v_dim,
            .scale = 1 / std::sqrt(static_cast<double>(qk_dim))};
  }
};

TEST_F(CudaAttentionTest, AgreesOnHeadsOfEverySize) {
  for (const DType dtype : kComputeDTypes) {
    ExpectAgreement(Shape(2, 33, 4, 2, 16, 16), dtype);
    ExpectAgreement(Shape(1, 1, 2, 1, 64, 64), dtype);
    ExpectAgreement(Shape(2, 256, 8, 2, 64, 64), dtype);
    ExpectAgreement(Shape(1, 384, 4, 4, 128, 128), dtype);
    ExpectAgreement(Shape(1, 100, 2, 2, 192, 128), dtype);
    ExpectAgreement(Shape(2, 384, 4, 4, 192, 128), dtype);
    ExpectAgreement(Shape(1, 65, 3, 1, 7, 5), dtype);
  }
}

// Of the benchmark's sequences, and with the backward that adds in any order.
TEST_F(CudaAttentionTest, AgreesOnLongSequences) {
  for (const bool deterministic : {true, false}) {
    UseGpuOps({.deterministic = deterministic});
    ExpectAgreement(Shape(1, 4096, 2, 1, 128, 128), DType::kBfloat16);
    ExpectAgreement(Shape(1, 2000, 2, 2, 192, 128), DType::kBfloat16);
  }
}

TEST_F(CudaAttentionTest, AgreesOnValuesThatStayInAProjection) {
  for (const DType dtype : kComputeDTypes) {
    AttentionShape shape = Shape(2, 256, 8, 2, 64, 64);
    shape.v_stride = 6 * 64;
    ExpectAgreement(shape, dtype);
    shape = Shape(1, 65, 3, 1, 7, 5);
    shape.v_stride = 17;
    ExpectAgreement(shape, dtype);
  }
}

TEST_F(CudaAttentionTest, AgreesOnWindows) {
  for (const DType dtype : kComputeDTypes) {
    for (const std::int64_t window : {1, 2, 17, 300}) {
      AttentionShape shape = Shape(1, 200, 4, 2, 64, 64);
      shape.window = window;
      ExpectAgreement(shape, dtype);
    }
  }
}

TEST_F(CudaAttentionTest, AgreesOnExamplesThatShareASequence) {
  const auto cu_seqlens = Values(DType::kInt32, {6}, {0, 10, 10, 31, 40, 80});
  const auto lengths = Values(DType::kInt32, {5}, {10, 0, 17, 9, 33});
  for (const DType dtype : kComputeDTypes) {
    ExpectAgreement(Shape(2, 40, 4, 2, 64, 64), dtype, &cu_seqlens, &lengths);
  }
}

TEST_F(CudaOpsTest, EmbeddingsAgree) {
  for (const DType dtype : kComputeDTypes) {
    for (const auto& [vocab, hidden] : {std::pair{50, 3}, {50, 64}, {50, 1024}, {151936, 40}}) {
      constexpr std::int64_t kTokens = 1000;
      const auto tokens = Indices({kTokens}, vocab);
      const auto table = Random(dtype, {vocab, hidden});
      const auto dy = Random(dtype, {kTokens, hidden});
      const auto y = Poisoned(dtype, {kTokens, hidden});
      const auto stored = Poisoned(DType::kFloat32, {vocab, hidden});
      const auto added = Random(DType::kBfloat16, {vocab, hidden});
      OnBoth([&](Ops& ops, Queue& queue) {
        ops.Embedding(queue, tokens, table, y);
        ops.EmbeddingBackward(queue, tokens, dy, Stored(stored));
        ops.EmbeddingBackward(queue, tokens, dy, Added(added));
      });
      ExpectEqual(y);
      ExpectEqual(stored);
      ExpectEqual(added);
    }
  }
}

TEST_F(CudaOpsTest, CrossEntropiesAgree) {
  for (const DType dtype : kComputeDTypes) {
    for (const std::int64_t columns : {7, 1024, 9001, 32768, 151669, 151936}) {
      constexpr std::int64_t kTokens = 19;
      const auto logits = Random(dtype, {kTokens, columns}, 3);
      std::vector<double> label_values(kTokens);
      for (std::size_t t = 0; t < label_values.size(); ++t) {
        label_values[t] =
            t % 5 == 4 ? -1 : static_cast<double>(t * 7919 % static_cast<std::size_t>(columns));
      }
      const auto labels = Values(DType::kInt32, {kTokens}, label_values);
      const auto weights = Random(DType::kFloat32, {kTokens});
      const auto losses = Poisoned(DType::kFloat32, {kTokens});
      const auto lse = Poisoned(DType::kFloat32, {kTokens});
      const auto dlogits = Poisoned(dtype, {kTokens, columns});
      OnBoth([&](Ops& ops, Queue& queue) {
        ops.CrossEntropy(queue, logits, labels, losses, lse);
        ops.CrossEntropyBackward(queue, logits, labels, lse, weights, dlogits);
      });
      ExpectNear(losses, 1e-6);
      ExpectNear(lse, 1e-6);
      ExpectNear(dlogits, dtype == DType::kBfloat16 ? 2e-3 : 5e-6);
    }
  }
}

TEST_F(CudaOpsTest, UpdatesGiveTheSameBits) {
  struct {
    DType dtype;
    bool has_two_terms;
  } constexpr kGradients[] = {
      {DType::kFloat32, false}, {DType::kBfloat16, false}, {DType::kBfloat16, true}};
  for (const auto& [gradient_dtype, has_two_terms] : kGradients) {
    for (const std::int64_t count : {1, 1023, 65536}) {
      const auto first = Random(gradient_dtype, {count});
      const auto second = Random(gradient_dtype, {count});
      const auto main = Random(DType::kFloat32, {count});
      const auto average = Random(DType::kFloat32, {count}, 0.1);
      const auto square = Values(DType::kFloat32, {count},
                                 std::vector<double>(static_cast<std::size_t>(count), 0.01));
      const auto compute = Poisoned(DType::kBfloat16, {count});
      const auto of_other = Poisoned(DType::kBfloat16, {count});
      const auto sgd_main = Random(DType::kFloat32, {count});
      const auto momentum = Random(DType::kFloat32, {count});
      const auto sums = Poisoned(DType::kFloat64, {count});
      const auto sum = Poisoned(DType::kFloat64, {1});
      // The words of UpdateScalars.
      const auto update = Values(DType::kFloat64, {6}, {1e-3, 0.19, 0.17, 0.25, 0.7, 0});
      const auto skip = Values(DType::kFloat64, {6}, {1e-3, 0.19, 0.17, 0.25, 0.7, 1});
      OnBoth([&](Ops& ops, Queue& queue) {
        const GradientSum gradient = has_two_terms ? GradientSum(first, second) : Tensor(first);
        for (int step = 1; step <= 3; ++step) {
          ops.AdamW(queue, {.weight_decay = 0.1, .decoupled = step != 2}, update, gradient, main,
                    average, square, {compute, of_other});
          ops.Sgd(queue, {.momentum = 0.9, .weight_decay = 0.01}, update, gradient, sgd_main,
                  momentum, {});
          ops.AdamW(queue, {}, skip, gradient, main, average, square, {compute, of_other});
          ops.Sgd(queue, {.momentum = 0.9}, skip, gradient, sgd_main, momentum, {});
        }
        const RowSquares rows[] = {{gradient, sums}, {gradient.Reshape({1, count}), sum}};
        ops.SumSquares(queue, rows);
      });
      for (const auto* result :
           {&main, &average, &square, &compute, &of_other, &sgd_main, &momentum, &sums}) {
        ExpectEqual(*result);
      }
      ExpectNear(sum, 1e-14);
    }
  }
}

TEST_F(CudaOpsTest, SquaresOfRowsAgree) {
  for (const DType dtype : kComputeDTypes) {
    for (const auto& [rows, columns] : {std::pair{1, 3}, {7, 640}, {131, 1021}, {4098, 2048}}) {
      const auto x = Random(dtype, {rows, columns});
      const auto second = Random(dtype, {rows, columns});
      const auto sums = Poisoned(DType::kFloat64, {rows});
      const auto of_terms = Poisoned(DType::kFloat64, {rows});
      const auto again = Poisoned(DType::kFloat64, {rows});
      OnBoth([&](Ops& ops, Queue& queue) {
        const GradientSum terms =
            dtype == DType::kBfloat16 ? GradientSum(x, second) : GradientSum(Tensor(x));
        const RowSquares all[] = {{Tensor(x), sums}, {terms, of_terms}, {Tensor(x), again}};
        ops.SumSquares(queue, all);
      });
      for (const auto* result : {&sums, &of_terms, &again}) ExpectNear(*result, 1e-14);
    }
  }
}

// Operands of the structs of a step are float64 here, and int64 where operations take them.
Tensor AsWords(Tensor scalars) {
  scalars.dtype = DType::kInt64;
  return scalars;
}

TEST_F(CudaOpsTest, AStepIsDecidedAlike) {
  constexpr std::int64_t kRows = 100'003;
  for (const bool has_nan : {false, true}) {
    for (const bool per_token : {false, true}) {
      const StepRule rule = {.clip_grad = 1, .per_token_loss = per_token, .num_batches = 2};
      const auto losses = Random(DType::kFloat32, {4097});
      const auto aux = Random(DType::kFloat32, {1});
      std::vector<double> values(kRows, 0.5);
      if (has_nan) values[70'001] = std::nan("");
      const auto rows = Values(DType::kFloat64, {kRows}, values);
      // Of one rank.
      const auto sums = Values(DType::kFloat64, {kWordsOf<StepSums> + 1},
                               std::vector<double>(kWordsOf<StepSums> + 1));
      const auto update = Values(DType::kFloat64, {6}, {1e-3, 1, 1, 0.25, 1, 0});
      const auto means = Poisoned(DType::kFloat64, {2});
      const auto outcome = Values(DType::kFloat64, {kWordsOf<StepOutcome>},
                                  std::vector<double>(kWordsOf<StepOutcome>));
      const auto failed = Values(DType::kFloat64, {1}, {0});
      OnBoth([&](Ops& ops, Queue& queue) {
        for (const std::int64_t batch : {0, 1}) {
          ops.AddLosses(queue, rule, 4000, losses, aux, AsWords(sums),
                        Tensor(means).Rows(batch, 1));
        }
        ops.AverageOverTokens(queue, AsWords(sums), AsWords(update));
        ops.AddSquares(queue, rows, AsWords(update), AsWords(sums), AsWords(outcome));
        ops.DecideStep(queue, rule, AsWords(sums), AsWords(failed), AsWords(update),
                       AsWords(outcome));
      });
      ExpectNear(means, 1e-12);
      for (const auto* result : {&update, &failed}) ExpectEqual(*result);
      const std::vector<double> cpu = outcome.Read(0);
      const std::vector<double> gpu = outcome.Read(1);
      for (std::size_t i = 0; i < cpu.size(); ++i) {
        const bool is_no_number = std::isnan(cpu[i]);  // a norm, or the words of -1
        EXPECT_EQ(std::isnan(gpu[i]), is_no_number) << "word " << i;
        if (is_no_number) continue;
        EXPECT_NEAR(gpu[i], cpu[i], 1e-12 * std::abs(cpu[i])) << "word " << i;
      }
    }
  }
}

TEST_F(CudaOpsTest, PhasesOfAQueueAddUpToItsTime) {
  constexpr std::size_t kSince = offsetof(PhaseTimes, since_ns) / sizeof(std::int64_t);
  constexpr std::size_t kFirstPhase = offsetof(PhaseTimes, ns) / sizeof(std::int64_t);
  constexpr double kRoundingNs = 2000;  // of dates in nanoseconds as float64
  const auto times = Values(DType::kInt64, {kWordsOf<PhaseTimes>},
                            std::vector<double>(static_cast<std::size_t>(kWordsOf<PhaseTimes>)));
  const auto enter = [&](StepPhase phase) {
    OnBoth([&](Ops& ops, Queue& queue) { ops.EnterPhase(queue, phase, times); });
    return std::pair(times.Read(0), times.Read(1));
  };
  const auto first = enter(StepPhase::kForward);
  enter(StepPhase::kUpdate);
  const auto last = enter(StepPhase::kIdle);
  for (const auto& [begin, end] :
       {std::pair(first.first, last.first), {first.second, last.second}}) {
    const double forward = end[kFirstPhase + static_cast<std::size_t>(StepPhase::kForward)];
    const double update = end[kFirstPhase + static_cast<std::size_t>(StepPhase::kUpdate)];
    EXPECT_GT(begin[kSince], 0);
    EXPECT_GT(forward, 0);
    EXPECT_GT(update, 0);
    EXPECT_NEAR(forward + update, end[kSince] - begin[kSince], kRoundingNs);
  }
}

TEST_F(CudaOpsTest, AFailedQueueSkipsWorkAndKeepsItsError) {
  Result<std::unique_ptr<Device>> device = MakeCudaDevice(0);
  ASSERT_THAT(device.status(), testing::IsOk());
  const std::unique_ptr<Queue> first = (*device)->MakeQueue("first");
  const std::unique_ptr<Queue> second = (*device)->MakeQueue("second");
  first->Fail(Error(ErrorKind::kCancelled, "given up"));
  second->Wait(first->Record());
  EXPECT_EQ(second->Synchronize().kind(), ErrorKind::kCancelled);
}

}  // namespace
}  // namespace ckpt::trainer
