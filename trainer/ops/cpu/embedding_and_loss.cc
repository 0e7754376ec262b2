// The first and the last operation of a model: embedding, and cross entropy of logits.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <vector>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/cpu/lane_sum.h"
#include "trainer/ops/cpu/internal/exp.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/row_blocks.h"
#include "trainer/ops/cpu/internal/vector_loop.h"

namespace ckpt::trainer {
namespace {

struct TableShape {
  std::int64_t tokens = 0;  // T
  std::int64_t vocab = 0;   // V
  std::int64_t hidden = 0;  // H
};

TableShape ShapeOf(const Tensor& tokens, const Tensor& table, const Tensor& y) {
  CKPT_CHECK(tokens.dtype == DType::kInt32 && table.ndim == 2);
  const TableShape shape{tokens.num_elems(), table.dim(0), table.dim(1)};
  CKPT_CHECK(y.num_elems() == shape.tokens * shape.hidden);
  return shape;
}

void CheckTokens(const std::int32_t* tokens, const TableShape& shape) {
  for (std::int64_t t = 0; t < shape.tokens; ++t) {
    CKPT_CHECK(tokens[t] >= 0 && tokens[t] < shape.vocab);
  }
}

// The positions of tokens: grouped by token, ascending within each group; and where the groups
// begin.
struct TokenGroups {
  std::vector<std::int32_t> positions;
  std::vector<std::int64_t> begins;  // one per group, then the end
};

TokenGroups GroupTokens(const std::int32_t* tokens, std::int64_t count) {
  TokenGroups groups;
  groups.positions.resize(static_cast<std::size_t>(count));
  std::iota(groups.positions.begin(), groups.positions.end(), 0);
  std::stable_sort(groups.positions.begin(), groups.positions.end(),
                   [=](std::int32_t a, std::int32_t b) { return tokens[a] < tokens[b]; });
  const auto token_at = [&](std::int64_t i) {
    return tokens[groups.positions[static_cast<std::size_t>(i)]];
  };
  for (std::int64_t i = 0; i < count; ++i) {
    if (i == 0 || token_at(i) != token_at(i - 1)) groups.begins.push_back(i);
  }
  groups.begins.push_back(count);
  return groups;
}

struct LogitsShape {
  std::int64_t tokens = 0;   // T
  std::int64_t columns = 0;  // V
};

LogitsShape ShapeOfLogits(const Tensor& logits, const Tensor& labels, const Tensor& lse) {
  CKPT_CHECK(logits.ndim == 2 && labels.dtype == DType::kInt32);
  const LogitsShape shape{logits.dim(0), logits.dim(1)};
  CKPT_CHECK(shape.columns > 0 && labels.num_elems() == shape.tokens);
  CKPT_CHECK(lse.dtype == StatisticsDType(logits.dtype) && lse.num_elems() == shape.tokens);
  return shape;
}

// log Σ exp(logits[0 … count)), summed in double, because the loss is the small difference between
// this logarithm and a logit.
template <typename T>
double LogSumExp(const T* logits, std::int64_t count) {
  using S = Real<T>;
  const S largest = LaneMax<S>(count, [=](std::int64_t i) { return Load(logits[i]); });
  const auto sum =
      LaneSum<double>(count, [=](std::int64_t i) { return Exp(Load(logits[i]) - largest); });
  return static_cast<double>(largest) + std::log(sum);
}

}  // namespace

void HostOps::Embedding(Queue& queue, const Tensor& tokens, const Tensor& table, const Tensor& y) {
  const TableShape shape = ShapeOf(tokens, table, y);
  CKPT_CHECK(table.dtype == y.dtype);
  RunOn(queue, [this, tokens, table, y, shape] {
    const auto* ids = tokens.as<const std::int32_t>();
    CheckTokens(ids, shape);
    const std::size_t row_bytes = static_cast<std::size_t>(shape.hidden) * ElementBytes(y.dtype);
    parallel_.For(shape.tokens, GrainRows(shape.hidden), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        std::memcpy(y.bytes() + static_cast<std::size_t>(t) * row_bytes,
                    table.bytes() + static_cast<std::size_t>(ids[t]) * row_bytes, row_bytes);
      }
    });
  });
}

void HostOps::EmbeddingBackward(Queue& queue, const Tensor& tokens, const Tensor& dy,
                                const Gradient& dtable) {
  if (!dtable) return;
  const TableShape shape = ShapeOf(tokens, dtable.tensor, dy);
  RunOn(queue, [this, tokens, dy, dtable, shape] {
    const auto* ids = tokens.as<const std::int32_t>();
    CheckTokens(ids, shape);
    // Each row of the table gets one contribution: its tokens are summed in their order and rounded
    // once.
    const TokenGroups groups = GroupTokens(ids, shape.tokens);
    const auto num_groups = static_cast<std::int64_t>(groups.begins.size()) - 1;
    DispatchCompute(dy.dtype, [&](auto tag) {
      DispatchGradient(dtable.tensor.dtype, [&](auto gradient_tag) {
        using T = typename decltype(tag)::type;
        using G = typename decltype(gradient_tag)::type;
        G* const rows = dtable.tensor.as<G>();
        if (!dtable.adds()) {
          parallel_.For(dtable.tensor.num_elems(), kGrainElems,
                        [&](std::int64_t begin, std::int64_t end) {
                          std::fill(rows + begin, rows + end, G{});
                        });
        }
        parallel_.For(
            num_groups, GrainRows(shape.hidden), [&](std::int64_t begin, std::int64_t end) {
              std::vector<Real<T>> sums(static_cast<std::size_t>(shape.hidden));
              for (std::int64_t group = begin; group < end; ++group) {
                const auto first =
                    static_cast<std::size_t>(groups.begins[static_cast<std::size_t>(group)]);
                const auto last =
                    static_cast<std::size_t>(groups.begins[static_cast<std::size_t>(group) + 1]);
                std::fill(sums.begin(), sums.end(), Real<T>{0});
                for (std::size_t i = first; i < last; ++i) {
                  const auto* row = dy.as<const T>() + groups.positions[i] * shape.hidden;
                  ForEach(0, shape.hidden,
                          [row, sum = sums.data()](std::int64_t h) { sum[h] += Load(row[h]); });
                }
                G* const to = rows + ids[groups.positions[first]] * shape.hidden;
                ForEach(0, shape.hidden,
                        [to, sum = sums.data()](std::int64_t h) { AccumulateInto(to[h], sum[h]); });
              }
            });
      });
    });
  });
}

void HostOps::CrossEntropy(Queue& queue, const Tensor& logits, const Tensor& labels,
                           const Tensor& losses, const Tensor& lse) {
  const LogitsShape shape = ShapeOfLogits(logits, labels, lse);
  CKPT_CHECK(losses.dtype == lse.dtype && losses.num_elems() == shape.tokens);
  RunOn(queue, [this, logits, labels, losses, lse, shape] {
    DispatchCompute(logits.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using S = Real<T>;
      parallel_.For(
          shape.tokens, GrainRows(shape.columns), [&](std::int64_t begin, std::int64_t end) {
            WithWidestVectors([&] {
              for (std::int64_t t = begin; t < end; ++t) {
                const auto* row = logits.as<const T>() + t * shape.columns;
                const std::int32_t label = labels.as<const std::int32_t>()[t];
                CKPT_CHECK(label < shape.columns);
                const double log_sum = LogSumExp(row, shape.columns);
                lse.as<S>()[t] = static_cast<S>(log_sum);
                losses.as<S>()[t] =
                    label < 0 ? S{0}
                              : static_cast<S>(log_sum - static_cast<double>(Load(row[label])));
              }
            });
          });
    });
  });
}

void HostOps::CrossEntropyBackward(Queue& queue, const Tensor& logits, const Tensor& labels,
                                   const Tensor& lse, const Tensor& token_weights,
                                   const Tensor& dlogits) {
  const LogitsShape shape = ShapeOfLogits(logits, labels, lse);
  CKPT_CHECK(token_weights.dtype == lse.dtype && token_weights.num_elems() == shape.tokens);
  CKPT_CHECK(dlogits.dtype == logits.dtype && dlogits.num_elems() == logits.num_elems());
  RunOn(queue, [this, logits, labels, lse, token_weights, dlogits, shape] {
    DispatchCompute(logits.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using S = Real<T>;
      parallel_.For(shape.tokens, GrainRows(shape.columns),
                    [&](std::int64_t begin, std::int64_t end) {
                      WithWidestVectors([&] {
                        for (std::int64_t t = begin; t < end; ++t) {
                          const auto* row = logits.as<const T>() + t * shape.columns;
                          auto* out = dlogits.as<T>() + t * shape.columns;
                          const std::int32_t label = labels.as<const std::int32_t>()[t];
                          CKPT_CHECK(label < shape.columns);
                          if (label < 0) {
                            std::fill(out, out + shape.columns, Store<T>(S{0}));
                            continue;
                          }
                          const S weight = token_weights.as<const S>()[t];
                          const S log_sum = lse.as<const S>()[t];
                          const S at_label = weight * (Exp(Load(row[label]) - log_sum) - S{1});
                          ForEach(0, shape.columns, [=](std::int64_t i) {
                            out[i] = Store<T>(weight * Exp(Load(row[i]) - log_sum));
                          });
                          out[label] = Store<T>(at_label);
                        }
                      });
                    });
    });
  });
}

}  // namespace ckpt::trainer
