// The operands of attention by example and head.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_ATTENTION_HEADS_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_ATTENTION_HEADS_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/base/check.h"
#include "trainer/device/tensor.h"
#include "trainer/ops/cpu/internal/matrix.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/parallel.h"
#include "trainer/ops/cpu/internal/scratch.h"
#include "trainer/ops/cpu/internal/vector_loop.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

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

// The sum of the products that add up to a head, zero at first: in place, or in the compute type
// until `Finish` rounds it once.
template <typename T>
class HeadSum {
 public:
  HeadSum(const Head<T>& head, std::int64_t seq, Scratch& scratch) : head_(head), seq_(seq) {
    if constexpr (std::is_same_v<T, Real<T>>) {
      sum_ = head;
    } else {
      sum_ = {scratch.Get<Real<T>>(seq * head.dim), head.dim, head.dim};
    }
    for (std::int64_t i = 0; i < seq; ++i) std::fill_n(sum_.row(i), head.dim, Real<T>{0});
  }

  [[nodiscard]] const Head<Real<T>>& sum() const { return sum_; }

  void Finish() const {
    if constexpr (!std::is_same_v<T, Real<T>>) {
      WithWidestVectors([&] {
        for (std::int64_t i = 0; i < seq_; ++i) {
          const Real<T>* const from = sum_.row(i);
          T* const to = head_.row(i);
          ForEach(0, head_.dim, [=](std::int64_t j) { to[j] = Store<T>(from[j]); });
        }
      });
    }
  }

 private:
  Head<T> head_;
  std::int64_t seq_;
  Head<Real<T>> sum_;
};

// The tokens of an example, and the padding after it.
struct Example {
  std::int64_t begin = 0;
  std::int64_t length = 0;
  std::int64_t padding = 0;
};

inline std::int64_t CountExamples(const AttentionShape& shape) {
  return shape.examples.cu_seqlens ? shape.examples.lengths.num_elems() : shape.batch;
}

inline Example ExampleAt(const AttentionShape& shape, std::int64_t index) {
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
inline std::int64_t LseAt(const AttentionShape& shape, std::int64_t token, std::int64_t head) {
  return (token / shape.seq * shape.num_heads + head) * shape.seq + token % shape.seq;
}

// Zeroes the head's rows of the padding after an example.
template <typename T>
void ClearPadding(const Example& example, const Head<T>& head) {
  for (std::int64_t i = example.length; i < example.length + example.padding; ++i) {
    std::fill_n(head.row(i), head.dim, T{});
  }
}

// A head of an example.
struct AttentionTask {
  std::int64_t index = 0;  // of all tasks
  Example example;
  AttentionShape alone;  // of the example without the others
  std::int64_t head = 0;
};

// Calls `body(task)` for the tasks [begin, end), of `num_heads` per example.
template <typename Body>
void ForAttentionTasks(Parallel& parallel, const AttentionShape& shape, std::int64_t num_heads,
                       std::int64_t begin, std::int64_t end, const Body& body) {
  if (shape.examples.cu_seqlens) {
    const auto* const begins = shape.examples.cu_seqlens.as<const std::int32_t>();
    CKPT_CHECK(begins[0] == 0 && begins[CountExamples(shape)] == shape.batch * shape.seq);
  }
  parallel.For(end - begin, 1, [&](std::int64_t first, std::int64_t last) {
    AttentionTask task{.example = {}, .alone = shape};
    for (task.index = begin + first; task.index < begin + last; ++task.index) {
      task.example = ExampleAt(shape, task.index / num_heads);
      if (task.example.length + task.example.padding == 0) continue;
      task.alone.seq = task.example.length;
      task.head = task.index % num_heads;
      body(task);
    }
  });
}

// Aborts unless the operands of attention, or their gradients, have the shapes and dtypes that
// `shape` says.
void CheckAttention(const AttentionShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& o, const Tensor& lse);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_ATTENTION_HEADS_H_
