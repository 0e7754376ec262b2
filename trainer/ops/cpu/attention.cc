// Attention by blocks of query rows. The scores of one block and of every key it may see take two
// or three matrix products and one pass over rows. Only that part of the score matrix exists at a
// time, and the backward computes it again from `lse`.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "core/base/check.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/internal/exp.h"
#include "trainer/ops/cpu/internal/host_ops_impl.h"
#include "trainer/ops/cpu/internal/matrix.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/product.h"
#include "trainer/ops/cpu/internal/scratch.h"
#include "trainer/ops/cpu/internal/vector_loop.h"

namespace ckpt::trainer {
namespace {

// Query rows of a block. With fewer, the matrix products are too small. With more, many scores are
// computed for keys after the query, which it does not see.
constexpr std::int64_t kBlockRows = 128;

// One head of one example: [seq, dim], with rows `stride` elements apart.
template <typename T>
struct Head {
  T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t dim = 0;

  [[nodiscard]] T* row(std::int64_t i) const { return data + i * stride; }
};

// The heads of x [T, num_heads, dim], each `stride` elements after the one before.
template <typename T>
class Heads {
 public:
  Heads(const Tensor& x, std::int64_t num_heads, std::int64_t dim, std::int64_t stride)
      : data_(x.as<T>()), num_heads_(num_heads), dim_(dim), stride_(stride) {}

  // The head from `token` on.
  [[nodiscard]] Head<T> at(std::int64_t token, std::int64_t head) const {
    return {data_ + (token * num_heads_ + head) * stride_, num_heads_ * stride_, dim_};
  }

 private:
  T* data_;
  std::int64_t num_heads_;
  std::int64_t dim_;
  std::int64_t stride_;
};

// The heads of each operand.
template <typename T>
Heads<T> QueriesOf(const AttentionShape& shape, const Tensor& q) {
  return {q, shape.num_heads, shape.qk_dim, shape.qk_dim};
}
template <typename T>
Heads<T> KeysOf(const AttentionShape& shape, const Tensor& k) {
  return {k, shape.num_kv_heads, shape.qk_dim, shape.qk_dim};
}
template <typename T>
Heads<T> ValuesOf(const AttentionShape& shape, const Tensor& v) {
  return {v, shape.num_kv_heads, shape.v_dim, shape.v_stride == 0 ? shape.v_dim : shape.v_stride};
}
template <typename T>
Heads<T> ResultsOf(const AttentionShape& shape, const Tensor& o) {
  return {o, shape.num_heads, shape.v_dim, shape.v_dim};
}

// A head in the form that the products read: in place, or widened to the compute type.
template <typename T>
Matrix<Real<T>> Read(const Head<T>& head, std::int64_t seq, Scratch& scratch) {
  if constexpr (std::is_same_v<T, Real<T>>) {
    return {head.data, head.stride, 1};
  } else {
    Real<T>* const wide = scratch.Get<Real<T>>(seq * head.dim);
    WithWidestVectors([&] {
      for (std::int64_t i = 0; i < seq; ++i) {
        const T* const from = head.row(i);
        Real<T>* const to = wide + i * head.dim;
        ForEach(0, head.dim, [=](std::int64_t j) { to[j] = Load(from[j]); });
      }
    });
    return {wide, head.dim, 1};
  }
}

// The sum of the products that add up to a head: in place, or in the compute type until `Finish`
// rounds it once.
template <typename T>
class HeadSum {
 public:
  HeadSum(const Head<T>& head, std::int64_t seq, Scratch& scratch) : head_(head), seq_(seq) {
    if constexpr (std::is_same_v<T, Real<T>>) {
      sum_ = head.data;
      stride_ = head.stride;
    } else {
      sum_ = scratch.Get<Real<T>>(seq * head.dim);
      stride_ = head.dim;
    }
    for (std::int64_t i = 0; i < seq; ++i) std::fill_n(row(i), head.dim, Real<T>{0});
  }

  [[nodiscard]] Real<T>* row(std::int64_t i) const { return sum_ + i * stride_; }
  [[nodiscard]] std::int64_t stride() const { return stride_; }

  void Finish() const {
    if constexpr (!std::is_same_v<T, Real<T>>) {
      WithWidestVectors([&] {
        for (std::int64_t i = 0; i < seq_; ++i) {
          const Real<T>* const from = row(i);
          T* const to = head_.row(i);
          ForEach(0, head_.dim, [=](std::int64_t j) { to[j] = Store<T>(from[j]); });
        }
      });
    }
  }

 private:
  Head<T> head_;
  std::int64_t seq_;
  Real<T>* sum_ = nullptr;
  std::int64_t stride_ = 0;
};

// The tokens of an example, and the padding after it.
struct Example {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t padding = 0;
};

std::int64_t CountExamples(const AttentionShape& shape) {
  return shape.examples.cu_seqlens ? shape.examples.lengths.num_elems() : shape.batch;
}

Example ExampleAt(const AttentionShape& shape, std::int64_t index) {
  if (!shape.examples.cu_seqlens) return {.begin = index * shape.seq, .length = shape.seq};
  const auto* const begins = shape.examples.cu_seqlens.as<const std::int32_t>();
  const std::int64_t length = shape.examples.lengths.as<const std::int32_t>()[index];
  const std::int64_t begin = begins[index];
  const std::int64_t end = begins[index + 1];
  CKPT_CHECK(begin >= 0 && end >= begin && end <= shape.batch * shape.seq);
  CKPT_CHECK(length >= 0 && length <= end - begin);
  CKPT_CHECK(end - begin <= shape.seq - begin % shape.seq);  // within one sequence
  return {.begin = begin, .length = length, .padding = end - begin - length};
}

// The index in lse [B, N, S] of a head's entry for `token`; those of the next tokens follow.
std::int64_t LseAt(const AttentionShape& shape, std::int64_t token, std::int64_t head) {
  return (token / shape.seq * shape.num_heads + head) * shape.seq + token % shape.seq;
}

// Zeroes the head's rows of the padding after an example.
template <typename T>
void ClearPadding(const Example& example, const Head<T>& head) {
  for (std::int64_t i = example.length; i < example.length + example.padding; ++i) {
    std::fill_n(head.row(i), head.dim, T{});
  }
}

// Queries [begin, end) of an example, and the keys [first_key, end) that any of them sees.
struct Block {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t first_key = 0;

  [[nodiscard]] std::int64_t rows() const { return end - begin; }
  [[nodiscard]] std::int64_t keys() const { return end - first_key; }
};

std::int64_t FirstKey(const AttentionShape& shape, std::int64_t query) {
  return shape.window > 0 ? std::max<std::int64_t>(0, query - shape.window + 1) : 0;
}

template <typename Body>
void ForBlocks(const AttentionShape& shape, const Body& body) {
  for (std::int64_t begin = 0; begin < shape.seq; begin += kBlockRows) {
    body(Block{begin, std::min(begin + kBlockRows, shape.seq), FirstKey(shape, begin)});
  }
}

// The keys that one query of a block sees, as a range of columns of the block's scores.
struct Seen {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t count() const { return end - begin; }
};

Seen SeenBy(const AttentionShape& shape, const Block& block, std::int64_t row) {
  const std::int64_t query = block.begin + row;
  return {FirstKey(shape, query) - block.first_key, query + 1 - block.first_key};
}

// Zeroes the scores of keys that the row's query does not see.
template <typename R>
void ClearUnseen(const Seen& seen, std::int64_t keys, R* row) {
  std::fill(row, row + seen.begin, R{0});
  std::fill(row + seen.end, row + keys, R{0});
}

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

// In place: scores become the softmax p, computed from its lse, and dp becomes dscores = scale · p
// · (dp - delta).
template <typename R>
void SoftmaxBackward(const AttentionShape& shape, const Block& block, const R* lse, const R* delta,
                     R* scores, R* dp) {
  const auto scale = static_cast<R>(shape.scale);
  WithWidestVectors([&] {
    for (std::int64_t i = 0; i < block.rows(); ++i) {
      const std::int64_t at = i * block.keys();
      const Seen seen = SeenBy(shape, block, i);
      R* const x = scores + at + seen.begin;
      R* const dx = dp + at + seen.begin;
      ForEach(0, seen.count(), [&](std::int64_t j) {
        const R p = Exp(x[j] * scale - lse[i]);
        x[j] = p;
        dx[j] = p * (dx[j] - delta[i]) * scale;
      });
      ClearUnseen(seen, block.keys(), scores + at);
      ClearUnseen(seen, block.keys(), dp + at);
    }
  });
}

// delta[i] = Σ do·o over row `begin + i`, which the backward of the softmax subtracts.
template <typename T>
void Deltas(const Block& block, const Head<T>& d_o, const Head<T>& o, Real<T>* delta) {
  WithWidestVectors([&] {
    for (std::int64_t i = 0; i < block.rows(); ++i) {
      const T* const a = d_o.row(block.begin + i);
      const T* const b = o.row(block.begin + i);
      delta[i] = LaneSum<Real<T>>(o.dim, [&](std::int64_t j) { return Load(a[j]) * Load(b[j]); });
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

// What the backward of one query head reads and writes, apart from its keys and values.
template <typename T>
struct QueryHead {
  Head<T> d_o;
  Head<T> q;
  Head<T> o;
  const Real<T>* lse = nullptr;  // [seq]
  Head<T> dq;
};

// Computes dq of one query head, and adds its contributions to dk and dv.
template <typename T>
void Backward(SumOrder order, const AttentionShape& shape, const QueryHead<T>& head,
              const Matrix<Real<T>>& k, const Matrix<Real<T>>& v, const HeadSum<T>& dk,
              const HeadSum<T>& dv) {
  using R = Real<T>;
  thread_local Scratch q_scratch;
  thread_local Scratch do_scratch;
  thread_local Scratch score_scratch;
  const Matrix<R> q = Read(head.q, shape.seq, q_scratch);
  const Matrix<R> d_o = Read(head.d_o, shape.seq, do_scratch);
  ForBlocks(shape, [&](const Block& block) {
    const std::int64_t rows = block.rows();
    const std::int64_t keys = block.keys();
    R* const p = score_scratch.Get<R>(2 * rows * keys);
    R* const ds = p + rows * keys;
    const Matrix<R> block_q = q.From(block.begin, 0);
    const Matrix<R> block_do = d_o.From(block.begin, 0);
    const Matrix<R> block_k = k.From(block.first_key, 0);
    const Matrix<R> block_v = v.From(block.first_key, 0);
    Multiply(order, {rows, keys, shape.qk_dim}, block_q, block_k.Transposed(), /*accumulate=*/false,
             p, keys);
    Multiply(order, {rows, keys, shape.v_dim}, block_do, block_v.Transposed(), /*accumulate=*/false,
             ds, keys);
    R delta[kBlockRows];
    Deltas(block, head.d_o, head.o, delta);
    SoftmaxBackward(shape, block, head.lse + block.begin, delta, p, ds);
    const Matrix<R> probabilities{p, keys, 1};
    const Matrix<R> dscores{ds, keys, 1};
    MultiplyInto(order, {rows, shape.qk_dim, keys}, dscores, block_k, /*accumulate=*/false,
                 head.dq.row(block.begin), head.dq.stride);
    Multiply(order, {keys, shape.qk_dim, rows}, dscores.Transposed(), block_q, /*accumulate=*/true,
             dk.row(block.first_key), dk.stride());
    Multiply(order, {keys, shape.v_dim, rows}, probabilities.Transposed(), block_do,
             /*accumulate=*/true, dv.row(block.first_key), dv.stride());
  });
}

void CheckShape(const AttentionShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
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

// Calls `body(example, its shape, head)` for every example and each of `num_heads` heads.
template <typename Body>
void ForExamples(Parallel& parallel, const AttentionShape& shape, std::int64_t num_heads,
                 const Body& body) {
  const std::int64_t count = CountExamples(shape);
  if (shape.examples.cu_seqlens) {
    const auto* const begins = shape.examples.cu_seqlens.as<const std::int32_t>();
    CKPT_CHECK(begins[0] == 0 && begins[count] == shape.batch * shape.seq);
  }
  parallel.For(count * num_heads, 1, [&](std::int64_t begin, std::int64_t end) {
    AttentionShape alone = shape;
    for (std::int64_t i = begin; i < end; ++i) {
      const Example example = ExampleAt(shape, i / num_heads);
      if (example.length + example.padding == 0) continue;
      alone.seq = example.length;
      body(example, alone, i % num_heads);
    }
  });
}

}  // namespace

void HostOps::Attention(Queue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                        const Tensor& v, const Tensor& o, const Tensor& lse) {
  CheckShape(shape, q, k, v, o, lse);
  const SumOrder order = fixed_order_ ? SumOrder::kFixed : SumOrder::kAny;
  RunOn(queue, [=, this] {
    DispatchCompute(q.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const Heads<T> queries = QueriesOf<T>(shape, q);
      const Heads<T> keys = KeysOf<T>(shape, k);
      const Heads<T> values = ValuesOf<T>(shape, v);
      const Heads<T> results = ResultsOf<T>(shape, o);
      const std::int64_t group = shape.num_heads / shape.num_kv_heads;
      ForExamples(parallel_, shape, shape.num_heads,
                  [&](const Example& example, const AttentionShape& alone, std::int64_t head) {
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

void HostOps::AttentionBackward(Queue& queue, const AttentionShape& shape, const Tensor& d_o,
                                const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                                const Tensor& lse, const Tensor& dq, const Tensor& dk,
                                const Tensor& dv) {
  CheckShape(shape, q, k, v, o, lse);
  CheckShape(shape, dq, dk, dv, d_o, lse);
  CKPT_CHECK(q.dtype == dq.dtype);
  const SumOrder order = fixed_order_ ? SumOrder::kFixed : SumOrder::kAny;
  RunOn(queue, [=, this] {
    DispatchCompute(q.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::int64_t group = shape.num_heads / shape.num_kv_heads;
      // A task is one key/value head of an example with all its query heads. They run in ascending
      // order, because their contributions to dk and dv are added up.
      ForExamples(parallel_, shape, shape.num_kv_heads,
                  [&](const Example& example, const AttentionShape& alone, std::int64_t kv_head) {
                    thread_local Scratch k_scratch;
                    thread_local Scratch v_scratch;
                    thread_local Scratch dk_scratch;
                    thread_local Scratch dv_scratch;
                    const std::int64_t at = example.begin;
                    const std::int64_t length = example.length;
                    const Head<T> dkey = KeysOf<T>(shape, dk).at(at, kv_head);
                    const Head<T> dvalue = ValuesOf<T>(shape, dv).at(at, kv_head);
                    const Matrix<Real<T>> keys =
                        Read(KeysOf<T>(shape, k).at(at, kv_head), length, k_scratch);
                    const Matrix<Real<T>> values =
                        Read(ValuesOf<T>(shape, v).at(at, kv_head), length, v_scratch);
                    const HeadSum<T> dkeys(dkey, length, dk_scratch);
                    const HeadSum<T> dvalues(dvalue, length, dv_scratch);
                    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group;
                         ++head) {
                      const Head<T> dquery = QueriesOf<T>(shape, dq).at(at, head);
                      Backward<T>(order, alone,
                                  {.d_o = ResultsOf<T>(shape, d_o).at(at, head),
                                   .q = QueriesOf<T>(shape, q).at(at, head),
                                   .o = ResultsOf<T>(shape, o).at(at, head),
                                   .lse = lse.as<const Real<T>>() + LseAt(shape, at, head),
                                   .dq = dquery},
                                  keys, values, dkeys, dvalues);
                      ClearPadding(example, dquery);
                    }
                    dkeys.Finish();
                    dvalues.Finish();
                    ClearPadding(example, dkey);
                    ClearPadding(example, dvalue);
                  });
    });
  });
}

}  // namespace ckpt::trainer
