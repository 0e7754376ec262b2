// Queries and keys out of a fused projection, normalised and rotated in one pass, and back.
//
// A head belongs to a group of 4, 8 or 16 threads. Each has two packs of it, whose elements rotate
// with each other, so threads exchange nothing for a rotation. Heads of other sizes go through the
// passes of attention_parts.cu.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/cuda/packs_ahead.cuh"
#include "trainer/ops/cuda/rotation.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// Twice as many blocks as run at a time: multiprocessors that get more from memory take more.
constexpr int kForwardThreads = 128;
constexpr int kForwardBlocks = 16 * kMultiprocessors;
// As many as run at a time: each leaves partial sums.
constexpr int kBackwardThreads = 256;
constexpr int kBackwardBlocksAtATime = 2;  // on a multiprocessor
constexpr int kBackwardBlocks = kBackwardBlocksAtATime * kMultiprocessors;

// The groups of heads that a kernel works on: queries, a key and a value each.
struct Groups {
  std::int32_t tokens = 0;
  std::int32_t of_token = 0;  // G
  std::int32_t queries = 0;   // of a group

  [[nodiscard]] __host__ __device__ std::int32_t count() const { return tokens * of_token; }
  // The first head of a group among those of all projections.
  [[nodiscard]] __device__ std::int32_t InProjection(std::int32_t group) const {
    return group * (queries + 2);
  }
};

// The place of this thread among those of a head.
template <int kLanes>
__device__ __forceinline__ std::int32_t LaneOf() {
  return static_cast<std::int32_t>(threadIdx.x % kLanes);
}

// The sum over the threads of a head; every thread of the warp calls it.
template <int kLanes>
__device__ __forceinline__ float HeadSum(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, distance);
  }
  return value;
}

// What this thread holds of each head.
template <int kLanes>
struct PacksOfLane : HeldPacks {
  __device__ explicit PacksOfLane(const Rotation& rotation)
      : HeldPacks(rotation, 2 * kLanes, LaneOf<kLanes>()) {}
};

// Products, rounded once.
template <typename T>
__device__ __forceinline__ Pack<T, kPackWidth> Products(const Pack<T, kPackWidth>& a,
                                                        const Pack<T, kPackWidth>& b) {
  Pack<T, kPackWidth> products;
  if constexpr (std::is_same_v<T, Bf16>) {
#pragma unroll
    for (int i = 0; i < kPackWidth; i += 2) {
      const __nv_bfloat162 pair =
          __hmul2({a.values[i], a.values[i + 1]}, {b.values[i], b.values[i + 1]});
      products.values[i] = pair.x;
      products.values[i + 1] = pair.y;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kPackWidth; ++i) products.values[i] = a.values[i] * b.values[i];
  }
  return products;
}

// The heads of one array, of kLanes · 2 packs each.
template <int kLanes, typename T>
__device__ __forceinline__ Held<T> LoadHead(const T* heads, std::int32_t head,
                                            const PacksOfLane<kLanes>& held) {
  const std::int64_t begin = static_cast<std::int64_t>(head) * (2 * kLanes);
  return {LoadPack<kPackWidth>(heads, begin + held.first),
          LoadPack<kPackWidth>(heads, begin + held.second)};
}
template <int kLanes, typename T>
__device__ __forceinline__ void StoreHead(T* heads, std::int32_t head,
                                          const PacksOfLane<kLanes>& held, const Held<T>& x) {
  const std::int64_t begin = static_cast<std::int64_t>(head) * (2 * kLanes);
  StorePack(heads, begin + held.first, x.first);
  StorePack(heads, begin + held.second, x.second);
}
template <int kLanes, typename T>
__device__ __forceinline__ void CopyHead(const T* from, std::int32_t from_head, T* to,
                                         std::int32_t to_head, const PacksOfLane<kLanes>& held) {
  StoreHead(to, to_head, held, LoadHead(from, from_head, held));
}

// Queries or keys: where they go, or come from, and their norm. Null: absent.
template <typename T, typename Statistic>
struct HeadArrays {
  T* heads = nullptr;
  const T* norm = nullptr;
  Statistic* rstd = nullptr;
};

// The heads that a group of threads works on: the queries and the key of its groups of heads, which
// are as far apart as the grid has groups of threads.
class HeadWalk {
 public:
  // Of this thread, of a block with room for `heads`; `lanes` work on a head. All threads of a
  // block make the same number of turns: those that have no group left take the first one again,
  // and store nothing.
  __device__ __forceinline__ HeadWalk(const Groups& groups, int lanes, int heads)
      : count_(groups.count()),
        queries_(groups.queries),
        block_(static_cast<std::int32_t>(blockIdx.x) * heads),
        mine_(static_cast<std::int32_t>(threadIdx.x) / lanes),
        stride_(static_cast<std::int32_t>(gridDim.x) * heads) {}

  [[nodiscard]] __device__ bool IsOver() const { return block_ >= count_; }
  [[nodiscard]] __device__ bool HasGroup() const { return block_ + mine_ < count_; }
  [[nodiscard]] __device__ std::int32_t group() const { return HasGroup() ? block_ + mine_ : 0; }
  [[nodiscard]] __device__ std::int32_t place() const { return place_; }  // within the group
  [[nodiscard]] __device__ bool IsKey() const { return place_ == queries_; }
  // Among the queries, or the keys, of all tokens.
  [[nodiscard]] __device__ std::int32_t head() const {
    return IsKey() ? group() : group() * queries_ + place_;
  }
  __device__ void NextInGroup() { ++place_; }
  __device__ void NextGroup() {
    place_ = 0;
    block_ += stride_;
  }
  __device__ void Next() {
    if (place_++ < queries_) return;
    NextGroup();
  }

 private:
  std::int32_t count_;
  std::int32_t queries_;
  std::int32_t block_;  // the first group of the block's turn
  std::int32_t mine_;
  std::int32_t stride_;
  std::int32_t place_ = 0;
};

// Heads of kArrays arrays on their way, and a statistic of each: those of the next kAheadOfTurn
// turns. One stage more than that: what is being computed is in none that is asked for.
template <int kAheadOfTurn, int kArrays, int kBlockThreads, typename T>
struct HeadsAhead {
  static constexpr int kAhead = kAheadOfTurn;
  static constexpr int kStages = kAhead + 1;
  static constexpr int kOfStage = 2 * kArrays;
  using Packs = PacksAhead<T, kPackWidth, kStages * kOfStage, kBlockThreads>;

  Packs packs;
  float* statistics;  // [kStages][kBlockThreads] of the block's shared memory

  __device__ __forceinline__ void AskStatistic(int stage, const float* from) {
    __pipeline_memcpy_async(statistics + stage * kBlockThreads + threadIdx.x, from, sizeof(float));
  }
  [[nodiscard]] __device__ __forceinline__ float Statistic(int stage) const {
    return statistics[stage * kBlockThreads + threadIdx.x];
  }
  template <int kLanes>
  __device__ __forceinline__ void Ask(int stage, int array, const T* heads, std::int32_t head,
                                      const PacksOfLane<kLanes>& held) {
    const std::int64_t begin = static_cast<std::int64_t>(head) * (2 * kLanes);
    const int slot = stage * kOfStage + 2 * array;
    packs.Ask(slot, heads, begin + held.first);
    packs.Ask(slot + 1, heads, begin + held.second);
  }
  [[nodiscard]] __device__ __forceinline__ Held<T> Get(int stage, int array) const {
    const int slot = stage * kOfStage + 2 * array;
    return {packs.Get(slot), packs.Get(slot + 1)};
  }
  [[nodiscard]] static __device__ int After(int stage) {
    return stage + 1 == kStages ? 0 : stage + 1;
  }
};

// Calls `compute(walk, stage)` for every head of the walk, after what `ask(walk, stage)` asked for
// it has come.
template <typename Ahead, typename Ask, typename Compute>
__device__ __forceinline__ void ForHeads(const HeadWalk& begin, Ahead& ahead, const Ask& ask,
                                         const Compute& compute) {
  HeadWalk asked = begin;
  int asked_stage = 0;
  const auto ask_next = [&] {
    if (!asked.IsOver()) ask(asked, asked_stage);
    ahead.packs.EndBatch();
    asked.Next();
    asked_stage = Ahead::After(asked_stage);
  };
#pragma unroll
  for (int i = 0; i < Ahead::kAhead; ++i) ask_next();
  int stage = 0;
  for (HeadWalk at = begin; !at.IsOver(); at.Next()) {
    ask_next();
    ahead.packs.template Await<Ahead::kAhead>();
    compute(at, stage);
    stage = Ahead::After(stage);
  }
  ahead.packs.template Await<0>();
}

// The same with code of their own for queries and for keys, and one head on its way: calls
// `compute(is_key, at, next, stage)`.
template <typename Ahead, typename Ask, typename Compute>
__device__ __forceinline__ void ForQueriesAndKeys(HeadWalk at, Ahead& ahead, const Ask& ask,
                                                  const Compute& compute) {
  static_assert(Ahead::kAhead == 1);
  if (at.IsOver()) return;
  int stage = 0;
  ask(at, stage);
  ahead.packs.EndBatch();
  const auto take = [&](auto is_key) {
    HeadWalk next = at;
    if constexpr (decltype(is_key)::value) {
      next.NextGroup();
      if (!next.IsOver()) ask(next, 1 - stage);
    } else {
      next.NextInGroup();
      ask(next, 1 - stage);
    }
    ahead.packs.EndBatch();
    ahead.packs.template Await<1>();
    compute(is_key, at, next, stage);
    at = next;
    stage = 1 - stage;
  };
  while (!at.IsOver()) {
    while (!at.IsKey()) take(std::false_type());
    take(std::true_type());
  }
}

// kNorm: with norms over the heads.
template <int kLanes, bool kNorm, typename T>
__global__ void __launch_bounds__(kForwardThreads)
    QkvKernel(Groups groups, Rotation rotation, float eps, const T* qkv, HeadArrays<T, float> query,
              HeadArrays<T, float> key, T* v) {
  AwaitEarlier();
  constexpr int kDim = kLanes * kHeld;
  using Ahead = HeadsAhead<sizeof(T) == 2 ? 2 : 1, 1, kForwardThreads, T>;
  __shared__ __align__(16) std::byte shared[Ahead::Packs::kBytes];
  Ahead ahead{typename Ahead::Packs(shared), nullptr};
  const PacksOfLane<kLanes> held(rotation);
  Turn<false> turn;
  const auto ask = [&](const HeadWalk& at, int stage) {
    ahead.Ask(stage, 0, qkv, groups.InProjection(at.group()) + at.place(), held);
  };
  const auto prepare = [&](const HeadArrays<T, float>& arrays, const HeadWalk& at, int stage) {
    float x[kHeld];
    ahead.Get(stage, 0).To(x);
    if constexpr (kNorm) {
      float squares = 0;
#pragma unroll
      for (float value : x) squares += value * value;
      const float rstd = rsqrtf(HeadSum<kLanes>(squares) / kDim + eps);
      if (at.HasGroup() && threadIdx.x % kLanes == 0) arrays.rstd[at.head()] = rstd;
      // Rounded also before the weight, and before the rotation, as RmsNorm does.
      const Held<T> weight = LoadHead(arrays.norm, 0, held);
#pragma unroll
      for (float& value : x) value *= rstd;
      const Held<T> normalized = HeldOf<T>(x);
      Held<T>{Products(normalized.first, weight.first), Products(normalized.second, weight.second)}
          .To(x);
    }
    turn.Apply(x);
    if (at.HasGroup()) StoreHead(arrays.heads, at.head(), held, HeldOf<T>(x));
  };
  const HeadWalk begin(groups, kLanes, kForwardThreads / kLanes);
  ForHeads(begin, ahead, ask, [&](const HeadWalk& at, int stage) {
    const std::int32_t group = at.group();
    if (at.place() == 0) {
      turn = Turn<false>(rotation, group / groups.of_token, LaneOf<kLanes>());
    }
    if (!at.IsKey()) return prepare(query, at, stage);
    prepare(key, at, stage);
    if (v == nullptr || !at.HasGroup()) return;
    CopyHead(qkv, groups.InProjection(group) + groups.queries + 1, v, group, held);
  });
}

// What the backward has in shared memory: heads on their way, later the sums of its groups of
// threads for the norms of queries and of keys.
template <int kLanes, bool kNorm, typename T>
struct BackwardShared {
  using Ahead = HeadsAhead<1, kNorm ? 2 : 1, kBackwardThreads, T>;
  using Sums = float[2][kBackwardThreads / kLanes][kLanes * kHeld];
  static constexpr std::size_t kBytes =
      std::max(Ahead::Packs::kBytes, kNorm ? sizeof(Sums) : std::size_t{0});
};

// partials [2, gridDim.x, D]: the sums of this block for the norms of queries and of keys.
template <int kLanes, bool kNorm, typename T>
__global__ void __launch_bounds__(kBackwardThreads, kBackwardBlocksAtATime)
    QkvBackwardKernel(Groups groups, Rotation rotation, HeadArrays<const T, const float> query,
                      HeadArrays<const T, const float> key, const T* dv, const T* qkv, T* dqkv,
                      float* partials) {
  AwaitEarlier();
  constexpr int kDim = kLanes * kHeld;
  using Shared = BackwardShared<kLanes, kNorm, T>;
  extern __shared__ __align__(16) std::byte shared[];
  __shared__ float statistics[kNorm ? Shared::Ahead::kStages * kBackwardThreads : 1];
  // Of the norms of queries and of keys; a thread reads four at once.
  __shared__ Pack<float, 4> weights[2][kHeld / 4][kLanes];
  const PacksOfLane<kLanes> held(rotation);
  if constexpr (kNorm) {
    if (threadIdx.x < 2 * kLanes) {
      const unsigned int which = threadIdx.x / kLanes;
      float weight[kHeld];
      LoadHead(which == 0 ? query.norm : key.norm, 0, held).To(weight);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        weights[which][i / 4][threadIdx.x % kLanes].values[i % 4] = weight[i];
      }
    }
    __syncthreads();
  }
  using Ahead = typename Shared::Ahead;
  Ahead ahead{typename Ahead::Packs(shared), statistics};
  float dnorms[2][kHeld] = {};  // of queries, of keys
  const HeadWalk begin(groups, kLanes, kBackwardThreads / kLanes);
  const auto turn_of = [&](const HeadWalk& at) {
    return Turn<true>(rotation, at.group() / groups.of_token, LaneOf<kLanes>());
  };
  Turn<true> turn = turn_of(begin);
  const auto ask = [&](const HeadWalk& at, int stage) {
    ahead.Ask(stage, 0, at.IsKey() ? key.heads : query.heads, at.head(), held);
    if constexpr (kNorm) {
      ahead.Ask(stage, 1, qkv, groups.InProjection(at.group()) + at.place(), held);
      ahead.AskStatistic(stage, (at.IsKey() ? key.rstd : query.rstd) + at.head());
    }
  };
  const auto undo = [&](auto is_key, const HeadWalk& at, const HeadWalk& next, int stage) {
    constexpr bool kIsKey = decltype(is_key)::value;
    float d[kHeld];
    ahead.Get(stage, 0).To(d);
    turn.Apply(d);
    if constexpr (kIsKey) turn = turn_of(next);
    Round<T>(d);
    if constexpr (kNorm) {
      float x[kHeld];
      float weight[kHeld];
      const float rstd = at.HasGroup() ? ahead.Statistic(stage) : 0;  // adds nothing
      ahead.Get(stage, 1).To(x);
#pragma unroll
      for (int i = 0; i < kHeld; i += 4) {
        Unpack(weights[kIsKey][i / 4][threadIdx.x % kLanes],
               *reinterpret_cast<float(*)[4]>(weight + i));
      }
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        d[i] *= rstd;
        dnorms[kIsKey][i] += d[i] * x[i];
        d[i] *= weight[i];
        sum += d[i] * x[i];
      }
      const float scale = rstd * rstd * (HeadSum<kLanes>(sum) / kDim);
#pragma unroll
      for (int i = 0; i < kHeld; ++i) d[i] -= scale * x[i];
    }
    if (!at.HasGroup()) return;
    const std::int32_t in_projection = groups.InProjection(at.group()) + at.place();
    StoreHead(dqkv, in_projection, held, HeldOf<T>(d));
    if (kIsKey && dv != nullptr) CopyHead(dv, at.group(), dqkv, in_projection + 1, held);
  };
  ForQueriesAndKeys(begin, ahead, ask, undo);
  if constexpr (kNorm) {
    __syncthreads();  // all have read what was there before
    auto& sums = *reinterpret_cast<typename Shared::Sums*>(shared);
#pragma unroll
    for (int which = 0; which < 2; ++which) {
      float* const mine = sums[which][threadIdx.x / kLanes];
#pragma unroll
      for (int i = 0; i < kPackWidth; ++i) {
        mine[held.first * kPackWidth + i] = dnorms[which][i];
        mine[held.second * kPackWidth + i] = dnorms[which][i + kPackWidth];
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < 2 * kDim; i += kBackwardThreads) {
      const int which = i / kDim;
      float total = 0;
#pragma unroll
      for (const auto& group : sums[which]) total += group[i % kDim];
      partials[(static_cast<std::int64_t>(which) * gridDim.x + blockIdx.x) * kDim + i % kDim] =
          total;
    }
  }
}

bool IsAligned(std::initializer_list<Tensor> tensors) {
  for (const Tensor& tensor : tensors) {
    if (reinterpret_cast<std::uintptr_t>(tensor.data) % 16 != 0) return false;
  }
  return true;
}

// Whether the heads are of a size that groups of threads hold, and so is what is rotated.
bool FitsGroups(const QkvForm& form, const Tensor& qkv, std::initializer_list<Tensor> operands) {
  const std::int64_t dim = form.shape.head_dim;
  if (dim != 64 && dim != 128 && dim != 256) return false;
  if (qkv.num_elems() / dim > std::numeric_limits<std::int32_t>::max()) return false;
  if (!IsAligned({qkv, form.q_norm, form.k_norm, form.cosine, form.sine})) return false;
  if (!IsAligned(operands)) return false;
  if (!form.cosine) return true;
  const RopeForm& rope = form.rope;
  return rope.dim <= dim && rope.dim % kHeld == 0;
}

Groups GroupsOf(const QkvShape& shape, const Tensor& qkv) {
  CKPT_CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0);
  const std::int64_t of_token = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  CKPT_CHECK(qkv.num_elems() % of_token == 0);
  return {.tokens = static_cast<std::int32_t>(qkv.num_elems() / of_token),
          .of_token = static_cast<std::int32_t>(shape.num_kv_heads),
          .queries = static_cast<std::int32_t>(shape.num_heads / shape.num_kv_heads)};
}

Rotation HeadRotation(const QkvForm& form) {
  if (!form.cosine) return {};
  CKPT_CHECK(!form.rope.inverse);
  return RotationOf(form.rope, form.cosine, form.sine, form.shape.head_dim);
}

// Calls `body(lanes, has_norm, type)` with tags of constants.
template <typename Body>
void DispatchHeads(const QkvForm& form, DType dtype, const Body& body) {
  const auto with_lanes = [&](auto lanes) {
    Dispatch(dtype, [&](auto type) {
      if (form.q_norm) return body(lanes, std::true_type{}, type);
      body(lanes, std::false_type{}, type);
    });
  };
  switch (form.shape.head_dim / kHeld) {
    case 4:
      return with_lanes(std::integral_constant<int, 4>{});
    case 8:
      return with_lanes(std::integral_constant<int, 8>{});
    default:
      return with_lanes(std::integral_constant<int, 16>{});
  }
}

// Checks queries or keys (`heads` of them), their norm and its statistics.
void CheckHeads(const QkvForm& form, std::int64_t heads, DType dtype, const Tensor& x,
                const Tensor& norm, const Tensor& rstd) {
  CKPT_CHECK(x.dtype == dtype && x.num_elems() == heads * form.shape.head_dim);
  CKPT_CHECK(static_cast<bool>(norm) == static_cast<bool>(form.q_norm));
  if (!norm) return;
  CKPT_CHECK(norm.dtype == dtype && norm.num_elems() == form.shape.head_dim);
  CKPT_CHECK(rstd.dtype == DType::kFloat32 && rstd.num_elems() == heads);
}

void CheckOperands(const QkvForm& form, const Groups& groups, DType dtype, const Tensor& q,
                   const Tensor& k, const Tensor& v, const Tensor& q_rstd, const Tensor& k_rstd) {
  const std::int64_t count = groups.count();
  CheckHeads(form, count * groups.queries, dtype, q, form.q_norm, q_rstd);
  CheckHeads(form, count, dtype, k, form.k_norm, k_rstd);
  CKPT_CHECK(!v || (v.dtype == dtype && v.num_elems() == count * form.shape.head_dim));
}

}  // namespace
}  // namespace cuda

void CudaOps::QkvPrepare(Queue& queue, const QkvForm& form, const Tensor& qkv, const Tensor& q,
                         const Tensor& k, const Tensor& v, const Tensor& q_rstd,
                         const Tensor& k_rstd) {
  if (!cuda::FitsGroups(form, qkv, {q, k, v})) {
    return PrepareInSteps(queue, form, qkv, q, k, v, q_rstd, k_rstd);
  }
  const cuda::Groups groups = cuda::GroupsOf(form.shape, qkv);
  cuda::CheckOperands(form, groups, qkv.dtype, q, k, v, q_rstd, k_rstd);
  if (groups.count() == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::DispatchHeads(form, qkv.dtype, [&](auto lanes, auto has_norm, auto type) {
      constexpr int kLanes = decltype(lanes)::value;
      using T = typename decltype(type)::type;
      cuda::Launch(
          on.stream(), cuda::QkvKernel<kLanes, decltype(has_norm)::value, T>,
          {std::min<unsigned int>(cuda::kForwardBlocks,
                                  cuda::Blocks(groups.count(), cuda::kForwardThreads / kLanes)),
           cuda::kForwardThreads},
          groups, cuda::HeadRotation(form), static_cast<float>(form.norm_eps), qkv.as<const T>(),
          {q.as<T>(), form.q_norm.as<const T>(), q_rstd.as<float>()},
          {k.as<T>(), form.k_norm.as<const T>(), k_rstd.as<float>()}, v.as<T>());
    });
  });
}

void CudaOps::QkvPrepareBackward(Queue& queue, const QkvForm& form, const Tensor& dq,
                                 const Tensor& dk, const Tensor& dv, const Tensor& qkv,
                                 const Tensor& q_rstd, const Tensor& k_rstd, const Tensor& dqkv,
                                 const Gradient& dq_norm, const Gradient& dk_norm) {
  if (!cuda::FitsGroups(form, dqkv, {dq, dk, dv, qkv})) {
    return PrepareBackwardInSteps(queue, form, dq, dk, dv, qkv, q_rstd, k_rstd, dqkv, dq_norm,
                                  dk_norm);
  }
  const cuda::Groups groups = cuda::GroupsOf(form.shape, dqkv);
  cuda::CheckOperands(form, groups, dqkv.dtype, dq, dk, dv, q_rstd, k_rstd);
  CKPT_CHECK(!form.q_norm || (qkv.dtype == dqkv.dtype && qkv.num_elems() == dqkv.num_elems()));
  const std::int64_t partial_elems = cuda::kBackwardBlocks * form.shape.head_dim;
  RunOnCuda(queue, [&](CudaQueue& on) {
    auto* const partials = reinterpret_cast<float*>(
        on.Scratch(static_cast<std::uint64_t>(2 * partial_elems) * sizeof(float)));
    if (partials == nullptr) return;
    cuda::DispatchHeads(form, dqkv.dtype, [&](auto lanes, auto has_norm, auto type) {
      constexpr int kLanes = decltype(lanes)::value;
      constexpr bool kNorm = decltype(has_norm)::value;
      using T = typename decltype(type)::type;
      cuda::Launch(on.stream(), cuda::QkvBackwardKernel<kLanes, kNorm, T>,
                   {cuda::kBackwardBlocks, cuda::kBackwardThreads,
                    cuda::BackwardShared<kLanes, kNorm, T>::kBytes},
                   groups, cuda::HeadRotation(form),
                   {dq.as<const T>(), form.q_norm.as<const T>(), q_rstd.as<const float>()},
                   {dk.as<const T>(), form.k_norm.as<const T>(), k_rstd.as<const float>()},
                   dv.as<const T>(), qkv.as<const T>(), dqkv.as<T>(), partials);
    });
    cuda::WriteColumnSums(on.stream(), partials, cuda::kBackwardBlocks, {dq_norm, dk_norm});
  });
}

}  // namespace ckpt::trainer
