// Queries and keys out of a fused projection, normalised and rotated in one pass, and back.
//
// A head belongs to a group of 8, 16 or 32 threads, each of which has eight of its elements. Heads of
// other sizes go through the passes of attention_parts.cu.
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <type_traits>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

constexpr int kElems = kPackWidth;  // of a thread
constexpr int kBackwardBlocks = 3 * kSumBlocks;

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

// The pack of this thread in an array of heads.
template <int kLanes>
__device__ __forceinline__ std::int64_t PackOf(std::int32_t head) {
  return static_cast<std::int64_t>(head) * kLanes + threadIdx.x % kLanes;
}

struct Rotation {
  const float* cosine = nullptr;  // null: no rotation
  const float* sine = nullptr;
  const std::int32_t* positions = nullptr;
  std::int32_t seq = 0;
  std::int32_t dim = 0;
  std::int32_t first = 0;  // the first element that is rotated
  bool interleaved = false;
};

// What the elements of a thread are multiplied by in all heads of a token: x·cosine + other·sine,
// where `other` is the element of the same pair.
template <int kLanes, bool kInverse>
class Turn {
 public:
  __device__ Turn(const Rotation& rotation, std::int32_t token)
      : is_interleaved_(rotation.interleaved) {
    const int lane = static_cast<int>(threadIdx.x % kLanes);
    other_lane_ = lane;
    if (rotation.cosine == nullptr) return;
    const std::int32_t position =
        rotation.positions == nullptr ? token % rotation.seq : rotation.positions[token];
    if (position >= rotation.seq) __trap();
    const std::int32_t half = rotation.dim / 2;
    const std::int32_t element = lane * kElems - rotation.first;
    is_rotated_ = position >= 0 && element >= 0 && element < rotation.dim;
    if (!is_rotated_) return;
    const std::int64_t row = static_cast<std::int64_t>(position) * half;
    constexpr float kSign = kInverse ? -1 : 1;
    if (is_interleaved_) {
      const std::int64_t at = (row + element / 2) / (kElems / 2);
      const auto c = LoadPack<kElems / 2>(rotation.cosine, at);
      const auto s = LoadPack<kElems / 2>(rotation.sine, at);
#pragma unroll
      for (int i = 0; i < kElems; ++i) {
        cosine_[i] = c.values[i / 2];
        sine_[i] = (i % 2 == 0 ? -kSign : kSign) * s.values[i / 2];
      }
      return;
    }
    const bool is_first = element < half;
    other_lane_ += (is_first ? half : -half) / kElems;
    const std::int64_t at = (row + (is_first ? element : element - half)) / kElems;
    Unpack(LoadPack<kElems>(rotation.cosine, at), cosine_);
    Unpack(LoadPack<kElems>(rotation.sine, at), sine_);
#pragma unroll
    for (float& sine : sine_) sine *= is_first ? -kSign : kSign;
  }

  // Every thread of the warp calls it.
  __device__ __forceinline__ void Apply(float (&x)[kElems]) const {
    float other[kElems];
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
      const float of_lane = __shfl_sync(0xFFFFFFFFU, x[i], other_lane_, kLanes);
      other[i] = is_interleaved_ ? x[i ^ 1] : of_lane;
    }
    if (!is_rotated_) return;
#pragma unroll
    for (int i = 0; i < kElems; ++i) x[i] = x[i] * cosine_[i] + other[i] * sine_[i];
  }

 private:
  const bool is_interleaved_;
  bool is_rotated_ = false;
  int other_lane_ = 0;
  float cosine_[kElems] = {};
  float sine_[kElems] = {};
};

// The sum over the threads of a head; every thread of the warp calls it.
template <int kLanes>
__device__ __forceinline__ float HeadSum(float value) {
#pragma unroll
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xFFFFFFFFU, value, distance);
  }
  return value;
}

// Queries or keys: where they go, or come from, and their norm. Null: absent.
template <typename T, typename Statistic>
struct HeadArrays {
  T* heads = nullptr;
  const T* norm = nullptr;
  Statistic* rstd = nullptr;
};

// A group of threads works on a group of heads. kNorm: with norms over the heads.
template <int kLanes, bool kNorm, typename T>
__global__ void __launch_bounds__(kThreads)
    QkvKernel(Groups groups, Rotation rotation, float eps, const T* qkv, HeadArrays<T, float> query,
              HeadArrays<T, float> key, T* v) {
  constexpr int kDim = kLanes * kElems;
  const auto number = static_cast<std::int32_t>((blockIdx.x * kThreads + threadIdx.x) / kLanes);
  const bool is_one = number < groups.count();  // others keep the warp whole
  const std::int32_t group = is_one ? number : 0;
  const std::int32_t first = groups.InProjection(group);
  const auto load = [&](std::int32_t place) {
    return LoadPack<kElems>(qkv, PackOf<kLanes>(first + place));
  };
  auto next = load(0);
  const Turn<kLanes, false> turn(rotation, group / groups.of_token);
  const auto prepare = [&](const HeadArrays<T, float>& arrays, const Pack<T, kElems>& head,
                           std::int32_t to) {
    float x[kElems];
    Unpack(head, x);
    if constexpr (kNorm) {
      float squares = 0;
#pragma unroll
      for (float value : x) squares += value * value;
      const float rstd = 1 / sqrtf(HeadSum<kLanes>(squares) / kDim + eps);
      if (is_one && threadIdx.x % kLanes == 0) arrays.rstd[to] = rstd;
      // Rounded also before the weight, and before the rotation, as RmsNorm does.
      float weight[kElems];
      Unpack(LoadPack<kElems>(arrays.norm, threadIdx.x % kLanes), weight);
#pragma unroll
      for (float& value : x) value *= rstd;
      Round<T>(x);
#pragma unroll
      for (int i = 0; i < kElems; ++i) x[i] *= weight[i];
      Round<T>(x);
    }
    turn.Apply(x);
    if (is_one) StorePack(arrays.heads, PackOf<kLanes>(to), Packed<T>(x));
  };
  // The next head is on its way while one is computed.
  for (std::int32_t i = 0; i < groups.queries; ++i) {
    const auto head = next;
    next = load(i + 1);
    prepare(query, head, group * groups.queries + i);
  }
  prepare(key, next, group);
  if (v != nullptr && is_one) StorePack(v, PackOf<kLanes>(group), load(groups.queries + 1));
}

// partials [2, gridDim.x, D]: the sums of this block for the norms of queries and of keys.
template <int kLanes, bool kNorm, typename T>
__global__ void __launch_bounds__(kThreads)
    QkvBackwardKernel(Groups groups, Rotation rotation, HeadArrays<const T, const float> query,
                      HeadArrays<const T, const float> key, const T* dv, const T* qkv, T* dqkv,
                      float* partials) {
  constexpr int kDim = kLanes * kElems;
  constexpr int kGroups = kThreads / kLanes;
  const int lane = static_cast<int>(threadIdx.x % kLanes);
  const int mine = static_cast<int>(threadIdx.x / kLanes);
  float dnorms[2][kElems] = {};  // of queries, of keys
  // The threads of a warp make the same number of turns.
  for (std::int32_t start = static_cast<std::int32_t>(blockIdx.x) * kGroups; start < groups.count();
       start += static_cast<std::int32_t>(gridDim.x) * kGroups) {
    const bool is_one = start + mine < groups.count();
    const std::int32_t group = is_one ? start + mine : 0;
    const std::int32_t first = groups.InProjection(group);
    struct Loaded {
      Pack<T, kElems> d;
      Pack<T, kElems> x;  // before the norm
    };
    const auto load = [&](std::int32_t place) {
      Loaded loaded;
      loaded.d = place < groups.queries
                     ? LoadPack<kElems>(query.heads, PackOf<kLanes>(group * groups.queries + place))
                     : LoadPack<kElems>(key.heads, PackOf<kLanes>(group));
      if constexpr (kNorm) loaded.x = LoadPack<kElems>(qkv, PackOf<kLanes>(first + place));
      return loaded;
    };
    Loaded next = load(0);
    const Turn<kLanes, true> turn(rotation, group / groups.of_token);
    const auto undo = [&](const HeadArrays<const T, const float>& arrays, const Loaded& loaded,
                          std::int32_t from, std::int32_t place, float(&dnorm)[kElems]) {
      float d[kElems];
      Unpack(loaded.d, d);
      turn.Apply(d);
      Round<T>(d);
      if constexpr (kNorm) {
        float normalized[kElems];
        float weight[kElems];
        Unpack(loaded.x, normalized);
        Unpack(LoadPack<kElems>(arrays.norm, lane), weight);
        const float rstd = arrays.rstd[from];
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kElems; ++i) {
          normalized[i] *= rstd;
          sum += weight[i] * d[i] * normalized[i];
        }
        const float mean = HeadSum<kLanes>(sum) / kDim;
#pragma unroll
        for (int i = 0; i < kElems; ++i) {
          dnorm[i] += is_one ? d[i] * normalized[i] : 0;
          d[i] = rstd * (weight[i] * d[i] - normalized[i] * mean);
        }
      }
      if (is_one) StorePack(dqkv, PackOf<kLanes>(first + place), Packed<T>(d));
    };
    // The next head is on its way while one is computed.
    for (std::int32_t i = 0; i < groups.queries; ++i) {
      const Loaded head = next;
      next = load(i + 1);
      undo(query, head, group * groups.queries + i, i, dnorms[0]);
    }
    undo(key, next, group, groups.queries, dnorms[1]);
    if (dv == nullptr || !is_one) continue;
    StorePack(dqkv, PackOf<kLanes>(first + groups.queries + 1),
              LoadPack<kElems>(dv, PackOf<kLanes>(group)));
  }
  if constexpr (kNorm) {
    __shared__ float sums[kGroups][kDim];
#pragma unroll
    for (int which = 0; which < 2; ++which) {
#pragma unroll
      for (int i = 0; i < kElems; ++i) sums[mine][lane * kElems + i] = dnorms[which][i];
      __syncthreads();
      for (int column = static_cast<int>(threadIdx.x); column < kDim; column += kThreads) {
        float total = 0;
        for (const auto& of_group : sums) total += of_group[column];
        partials[(static_cast<std::int64_t>(which) * gridDim.x + blockIdx.x) * kDim + column] =
            total;
      }
      __syncthreads();
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
  if (rope.dim > dim || (dim - rope.dim) % kElems != 0) return false;
  return rope.interleaved ? rope.dim % kElems == 0 : rope.dim % (2 * kElems) == 0;
}

Groups GroupsOf(const QkvShape& shape, const Tensor& qkv) {
  CKPT_CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0);
  const std::int64_t of_token = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim;
  CKPT_CHECK(qkv.num_elems() % of_token == 0);
  return {.tokens = static_cast<std::int32_t>(qkv.num_elems() / of_token),
          .of_token = static_cast<std::int32_t>(shape.num_kv_heads),
          .queries = static_cast<std::int32_t>(shape.num_heads / shape.num_kv_heads)};
}

Rotation RotationOf(const QkvForm& form) {
  const RopeForm& rope = form.rope;
  if (!form.cosine) return {};
  CKPT_CHECK(!rope.inverse && rope.seq >= 1);
  CKPT_CHECK(form.cosine.dtype == DType::kFloat32 && form.sine.dtype == DType::kFloat32);
  CKPT_CHECK(form.cosine.num_elems() == rope.seq * rope.dim / 2 &&
             form.sine.num_elems() == form.cosine.num_elems());
  return {.cosine = form.cosine.as<const float>(),
          .sine = form.sine.as<const float>(),
          .positions = rope.positions.as<const std::int32_t>(),
          .seq = static_cast<std::int32_t>(rope.seq),
          .dim = static_cast<std::int32_t>(rope.dim),
          .first = static_cast<std::int32_t>(rope.at_front ? 0 : form.shape.head_dim - rope.dim),
          .interleaved = rope.interleaved};
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
  switch (form.shape.head_dim / kElems) {
    case 8:
      return with_lanes(std::integral_constant<int, 8>{});
    case 16:
      return with_lanes(std::integral_constant<int, 16>{});
    default:
      return with_lanes(std::integral_constant<int, 32>{});
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
      cuda::QkvKernel<kLanes, decltype(has_norm)::value, T>
          <<<cuda::Blocks(groups.count(), cuda::kThreads / kLanes), cuda::kThreads, 0,
             on.stream()>>>(groups, cuda::RotationOf(form), static_cast<float>(form.norm_eps),
                            qkv.as<const T>(),
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
      using T = typename decltype(type)::type;
      cuda::QkvBackwardKernel<decltype(lanes)::value, decltype(has_norm)::value, T>
          <<<cuda::kBackwardBlocks, cuda::kThreads, 0, on.stream()>>>(
              groups, cuda::RotationOf(form),
              {dq.as<const T>(), form.q_norm.as<const T>(), q_rstd.as<const float>()},
              {dk.as<const T>(), form.k_norm.as<const T>(), k_rstd.as<const float>()},
              dv.as<const T>(), qkv.as<const T>(), dqkv.as<T>(), partials);
    });
    if (dq_norm) {
      cuda::WriteColumnSums(on.stream(), partials, cuda::kBackwardBlocks, dq_norm);
    }
    if (dk_norm) {
      cuda::WriteColumnSums(on.stream(), partials + partial_elems, cuda::kBackwardBlocks, dk_norm);
    }
  });
}

}  // namespace ckpt::trainer
