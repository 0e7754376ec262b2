// Attention by blocks of query rows. The scores of one block and of every key it may see take two
// matrix products and one pass over rows. Only that part of the score matrix exists at a time.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/device/cpu/lane_sum.h"
#include "trainer/ops/cpu/internal/attention_blocks.h"
#include "trainer/ops/cpu/internal/attention_heads.h"
#include "trainer/ops/cpu/internal/exp.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/matrix.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/product.h"
#include "trainer/ops/cpu/internal/scratch.h"
#include "trainer/ops/cpu/internal/vector_loop.h"

namespace ckpt::trainer {
namespace {

// Replaces one row of scores by softmax(scale · row). Returns the logarithm of the divisor.
template <typename R>
[[gnu::always_inline]] inline R SoftmaxRow(R scale, std::int64_t count, R* x) {
  const R shift = LaneMax<R>(count, [=](std::int64_t j) { return x[j]; }) * scale;
  ForEach(0, count, [=](std::int64_t j) { x[j] = Exp(x[j] * scale - shift); });
  const R sum = LaneSum<R>(count, [=](std::int64_t j) { return x[j]; });
  const R inverse = 1 / sum;
  ForEach(0, count, [=](std::int64_t j) { x[j] *= inverse; });
  return shift + std::log(sum);
}

// The same for every row of a block.
template <typename R>
void Softmax(const AttentionShape& shape, const Block& block, R* scores, R* lse) {
  WithWidestVectors([&] {
    for (std::int64_t i = 0; i < block.rows(); ++i) {
      R* const row = scores + i * block.keys();
      const Seen seen = SeenBy(shape, block, i);
      lse[i] = SoftmaxRow(static_cast<R>(shape.scale), seen.count(), row + seen.begin);
      ClearUnseen(seen, block.keys(), row);
    }
  });
}

// Computes the result of one query head and its lse [seq].
template <typename T>
void Forward(SumOrder order, const AttentionShape& shape, const Head<T>& query, const Head<T>& key,
             const Head<T>& value, const Head<T>& o, Real<T>* lse) {
  using R = Real<T>;
  thread_local Scratch q_scratch;
  thread_local Scratch k_scratch;
  thread_local Scratch v_scratch;
  thread_local Scratch score_scratch;
  const Matrix<R> q = Read(query, shape.seq, q_scratch);
  const Matrix<R> k = Read(key, shape.seq, k_scratch);
  const Matrix<R> v = Read(value, shape.seq, v_scratch);
  ForBlocks(shape, [&](const Block& block) {
    const std::int64_t rows = block.rows();
    const std::int64_t keys = block.keys();
    R* const p = score_scratch.Get<R>(rows * keys);
    Multiply(order, {rows, keys, shape.qk_dim}, q.From(block.begin, 0),
             k.From(block.first_key, 0).Transposed(),
             /*accumulate=*/false, p, keys);
    Softmax(shape, block, p, lse + block.begin);
    MultiplyInto(order, {rows, shape.v_dim, keys}, Matrix<R>{p, keys, 1},
                 v.From(block.first_key, 0),
                 /*accumulate=*/false, o.row(block.begin), o.stride);
  });
}

}  // namespace

void CheckAttention(const AttentionShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& o, const Tensor& lse) {
  CKPT_CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0);
  CKPT_CHECK(shape.window >= 0 && shape.scale > 0);
  CKPT_CHECK(shape.v_stride == 0 || shape.v_stride >= shape.v_dim);
  const std::int64_t tokens = shape.batch * shape.seq;
  CKPT_CHECK(q.num_elems() == tokens * shape.num_heads * shape.qk_dim);
  CKPT_CHECK(k.num_elems() == tokens * shape.num_kv_heads * shape.qk_dim);
  CKPT_CHECK(v.num_elems() == tokens * shape.num_kv_heads * shape.v_dim);
  CKPT_CHECK(o.num_elems() == tokens * shape.num_heads * shape.v_dim);
  CKPT_CHECK(lse.num_elems() == tokens * shape.num_heads && lse.dtype == StatisticsDType(q.dtype));
  CKPT_CHECK(q.dtype == k.dtype && q.dtype == v.dtype && q.dtype == o.dtype);
  const auto& [cu_seqlens, lengths] = shape.examples;
  if (!cu_seqlens) return;
  CKPT_CHECK(cu_seqlens.dtype == DType::kInt32 && lengths.dtype == DType::kInt32);
  CKPT_CHECK(cu_seqlens.num_elems() == lengths.num_elems() + 1);
}

void HostOps::Attention(Queue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& o, const Tensor& lse) {
  CheckAttention(shape, q, k, v, o, lse);
  const SumOrder order = fixed_order_ ? SumOrder::kFixed : SumOrder::kAny;
  RunOn(queue, [=, this] {
    DispatchCompute(q.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const Heads<T> queries = QueriesOf<T>(shape, q);
      const Heads<T> keys = KeysOf<T>(shape, k);
      const Heads<T> values = ValuesOf<T>(shape, v);
      const Heads<T> results = ResultsOf<T>(shape, o);
      const std::int64_t group = shape.num_heads / shape.num_kv_heads;
      ForAttentionTasks(parallel_, shape, shape.num_heads, 0,
                        CountExamples(shape) * shape.num_heads, [&](const AttentionTask& task) {
                          const auto& [index, example, alone, head] = task;
                          const std::int64_t at = example.begin;
                          const Head<T> result = results.at(at, head);
                          Real<T>* const head_lse = lse.as<Real<T>>() + LseAt(shape, at, head);
                          Forward(order, alone, queries.at(at, head), keys.at(at, head / group),
                                  values.at(at, head / group), result, head_lse);
                          ClearPadding(example, result);
                          std::fill_n(head_lse + example.length, example.padding, Real<T>{0});
                        });
    });
  });
}

}  // namespace ckpt::trainer
