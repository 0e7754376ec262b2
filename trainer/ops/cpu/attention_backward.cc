// The backward of attention. It computes the scores of a block again, from their `lse`, and takes
// five matrix products and one pass over rows.
#include <algorithm>
#include <cstdint>
#include <utility>

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

struct BackwardOperands {
  Tensor d_o, q, k, v, o, lse, dq, dk, dv;
};

// dk and dv of a key/value head, as sums of what its query heads contribute.
template <typename R>
struct KeyValueSums {
  Head<R> dk;  // [seq, qk_dim]
  Head<R> dv;  // [seq, v_dim]

  static std::int64_t Elems(const AttentionShape& shape) {
    return shape.seq * (shape.qk_dim + shape.v_dim);
  }

  // Those in `memory`, which has Elems(shape).
  static KeyValueSums At(const AttentionShape& shape, R* memory) {
    return {.dk = {memory, shape.qk_dim, shape.qk_dim},
            .dv = {memory + shape.seq * shape.qk_dim, shape.v_dim, shape.v_dim}};
  }
  // The same, zero at first.
  static KeyValueSums In(const AttentionShape& shape, R* memory) {
    std::fill_n(memory, Elems(shape), R{0});
    return At(shape, memory);
  }

  void Add(const KeyValueSums& more, std::int64_t seq) const {
    WithWidestVectors([&] {
      for (const auto& [to, from] : {std::pair(dk, more.dk), std::pair(dv, more.dv)}) {
        for (std::int64_t i = 0; i < seq; ++i) {
          ForEach(0, to.dim, [x = to.row(i), y = from.row(i)](std::int64_t j) { x[j] += y[j]; });
        }
      }
    });
  }
};

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

// What the backward of one query head reads and writes, apart from its keys and values.
template <typename T>
struct QueryHead {
  Head<T> d_o;
  Head<T> q;
  Head<T> o;
  const Real<T>* lse = nullptr;  // [seq]
  Head<T> dq;
};

// Computes dq of one query head, and adds its contributions to those of its keys and values.
template <typename T>
void Backward(SumOrder order, const AttentionShape& shape, const QueryHead<T>& head,
              const Matrix<Real<T>>& k, const Matrix<Real<T>>& v,
              const KeyValueSums<Real<T>>& sums) {
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
             sums.dk.row(block.first_key), sums.dk.stride);
    Multiply(order, {keys, shape.v_dim, rows}, probabilities.Transposed(), block_do,
             /*accumulate=*/true, sums.dv.row(block.first_key), sums.dv.stride);
  });
}

// Computes dq of the query heads [begin, end) of those that share a key/value head, in ascending
// order, and adds their contributions to `sums`. `shape` is that of all examples.
template <typename T>
void BackwardOfQueries(SumOrder order, const AttentionShape& shape, const BackwardOperands& x,
                       const AttentionTask& task, std::int64_t kv_head, std::int64_t begin,
                       std::int64_t end, const KeyValueSums<Real<T>>& sums) {
  thread_local Scratch k_scratch;
  thread_local Scratch v_scratch;
  const std::int64_t at = task.example.begin;
  const std::int64_t length = task.example.length;
  const Matrix<Real<T>> keys = Read(KeysOf<T>(shape, x.k).at(at, kv_head), length, k_scratch);
  const Matrix<Real<T>> values = Read(ValuesOf<T>(shape, x.v).at(at, kv_head), length, v_scratch);
  const std::int64_t first = kv_head * (shape.num_heads / shape.num_kv_heads);
  for (std::int64_t head = first + begin; head < first + end; ++head) {
    const Head<T> dquery = QueriesOf<T>(shape, x.dq).at(at, head);
    Backward<T>(order, task.alone,
                {.d_o = ResultsOf<T>(shape, x.d_o).at(at, head),
                 .q = QueriesOf<T>(shape, x.q).at(at, head),
                 .o = ResultsOf<T>(shape, x.o).at(at, head),
                 .lse = x.lse.as<const Real<T>>() + LseAt(shape, at, head),
                 .dq = dquery},
                keys, values, sums);
    ClearPadding(task.example, dquery);
  }
}

// Writes dk and dv of a key/value head, after `add` has added all contributions to their sums.
template <typename T, typename Add>
void WriteKeyValue(const AttentionShape& shape, const BackwardOperands& x,
                   const AttentionTask& task, std::int64_t kv_head, const Add& add) {
  thread_local Scratch dk_scratch;
  thread_local Scratch dv_scratch;
  const Head<T> dkey = KeysOf<T>(shape, x.dk).at(task.example.begin, kv_head);
  const Head<T> dvalue = ValuesOf<T>(shape, x.dv).at(task.example.begin, kv_head);
  const HeadSum<T> dk(dkey, task.example.length, dk_scratch);
  const HeadSum<T> dv(dvalue, task.example.length, dv_scratch);
  add(KeyValueSums<Real<T>>{dk.sum(), dv.sum()});
  dk.Finish();
  dv.Finish();
  ClearPadding(task.example, dkey);
  ClearPadding(task.example, dvalue);
}

// A task is a key/value head of an example with its query heads. In fixed order, these add to one
// sum, one after the other. In any order, each half of them has a sum, and then the halves are
// added, so that two threads can share each of the tasks that remain when all threads have had
// equally many. Who computes a half makes no difference to the result.
template <typename T>
void BackwardOfTasks(SumOrder order, Parallel& parallel, const AttentionShape& shape,
                     const BackwardOperands& x) {
  using R = Real<T>;
  using Sums = KeyValueSums<R>;
  const std::int64_t group = shape.num_heads / shape.num_kv_heads;
  const std::int64_t half = order == SumOrder::kFixed ? group : (group + 1) / 2;
  const std::int64_t tasks = CountExamples(shape) * shape.num_kv_heads;
  const std::int64_t whole = half < group ? tasks - tasks % parallel.threads() : tasks;
  ForAttentionTasks(parallel, shape, shape.num_kv_heads, 0, whole, [&](const AttentionTask& task) {
    thread_local Scratch second_scratch;
    WriteKeyValue<T>(shape, x, task, task.head, [&](const Sums& sums) {
      BackwardOfQueries<T>(order, shape, x, task, task.head, 0, half, sums);
      if (half == group) return;
      const Sums second = Sums::In(task.alone, second_scratch.Get<R>(Sums::Elems(task.alone)));
      BackwardOfQueries<T>(order, shape, x, task, task.head, half, group, second);
      sums.Add(second, task.alone.seq);
    });
  });
  if (whole == tasks) return;

  thread_local Scratch halves_scratch;
  R* const halves = halves_scratch.Get<R>(2 * (tasks - whole) * Sums::Elems(shape));
  const auto memory_of = [&](std::int64_t index) {
    return halves + (index - 2 * whole) * Sums::Elems(shape);
  };
  ForAttentionTasks(parallel, shape, 2 * shape.num_kv_heads, 2 * whole, 2 * tasks,
                    [&](const AttentionTask& task) {
                      const bool is_second = task.head % 2 == 1;
                      BackwardOfQueries<T>(order, shape, x, task, task.head / 2,
                                           is_second ? half : 0, is_second ? group : half,
                                           Sums::In(task.alone, memory_of(task.index)));
                    });
  ForAttentionTasks(parallel, shape, shape.num_kv_heads, whole, tasks,
                    [&](const AttentionTask& task) {
                      WriteKeyValue<T>(shape, x, task, task.head, [&](const Sums& sums) {
                        for (const std::int64_t index : {2 * task.index, 2 * task.index + 1}) {
                          sums.Add(Sums::At(task.alone, memory_of(index)), task.alone.seq);
                        }
                      });
                    });
}

}  // namespace

void HostOps::AttentionBackward(Queue& queue, const AttentionShape& shape, const Tensor& d_o,
                                const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                                const Tensor& lse, const Tensor& dq, const Tensor& dk,
                                const Tensor& dv) {
  CheckAttention(shape, q, k, v, o, lse);
  CheckAttention(shape, dq, dk, dv, d_o, lse);
  CKPT_CHECK(q.dtype == dq.dtype);
  const SumOrder order = fixed_order_ ? SumOrder::kFixed : SumOrder::kAny;
  RunOn(queue, [=, this] {
    const BackwardOperands x{d_o, q, k, v, o, lse, dq, dk, dv};
    DispatchCompute(q.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      BackwardOfTasks<T>(order, parallel_, shape, x);
    });
  });
}

}  // namespace ckpt::trainer
