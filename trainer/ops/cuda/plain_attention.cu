// A warp computes one row of the result: of one query and head, or of one key and head. Its lanes
// share the dims of a head.
#include "trainer/ops/cuda/plain_attention.h"

#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer::cuda {
namespace {

constexpr int kMostDim = 512;
constexpr int kLaneDims = kMostDim / kWarp;

struct Sizes {
  std::int64_t tokens = 0;
  std::int64_t seq = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  int qk_dim = 0;
  int v_dim = 0;
  std::int64_t v_stride = 0;  // from one value head to the next
  float scale = 1;
  std::int64_t window = 0;
  const std::int32_t* cu_seqlens = nullptr;  // null: an example a sequence
  const std::int32_t* lengths = nullptr;
  std::int64_t num_examples = 0;
};

// The tokens of one example that are not padding.
struct Example {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

__device__ Example ExampleOf(const Sizes& sizes, std::int64_t token) {
  if (sizes.cu_seqlens == nullptr) {
    const std::int64_t begin = token / sizes.seq * sizes.seq;
    return {begin, begin + sizes.seq};
  }
  // The last example that begins at or before the token. Empty examples may begin there too.
  std::int64_t low = 0;
  std::int64_t high = sizes.num_examples;
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    if (sizes.cu_seqlens[middle] <= token) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return {sizes.cu_seqlens[low], sizes.cu_seqlens[low] + sizes.lengths[low]};
}

__device__ std::int64_t LseAt(const Sizes& sizes, std::int64_t token, std::int64_t head) {
  return (token / sizes.seq * sizes.heads + head) * sizes.seq + token % sizes.seq;
}

// A row of `dim` elements, shared by the lanes of a warp.
struct LaneRow {
  float values[kLaneDims] = {};

  template <typename T>
  __device__ void Load(const T* row, int dim) {
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i) {
      const int at = i * kWarp + static_cast<int>(threadIdx.x % kWarp);
      values[i] = at < dim ? cuda::Load(row[at]) : 0;
    }
  }
  template <typename T>
  __device__ void Store(T* row, int dim) const {
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i) {
      const int at = i * kWarp + static_cast<int>(threadIdx.x % kWarp);
      if (at < dim) row[at] = cuda::Store<T>(values[i]);
    }
  }
  __device__ void Add(float factor, const LaneRow& other) {
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i) values[i] += factor * other.values[i];
  }
  __device__ void Scale(float factor) {
#pragma unroll
    for (float& value : values) value *= factor;
  }
  // Every lane gets it.
  [[nodiscard]] __device__ float Dot(const LaneRow& other) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kLaneDims; ++i) sum += values[i] * other.values[i];
    return WarpSum(sum);
  }
};

__device__ std::int64_t WarpIndex() {
  return static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
}

// The keys that a query of an example sees: [first, query].
__device__ std::int64_t FirstKey(const Sizes& sizes, const Example& example, std::int64_t query) {
  if (sizes.window == 0) return example.begin;
  return max(example.begin, query - sizes.window + 1);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    ForwardKernel(Sizes sizes, const T* q, const T* k, const T* v, T* o, float* lse) {
  AwaitEarlier();
  const std::int64_t row = WarpIndex();
  if (row >= sizes.tokens * sizes.heads) return;
  const std::int64_t token = row / sizes.heads;
  const std::int64_t head = row % sizes.heads;
  const std::int64_t kv_head = head / (sizes.heads / sizes.kv_heads);
  const Example example = ExampleOf(sizes, token);

  LaneRow query;
  LaneRow sum;
  float largest = -INFINITY;
  float total = 0;
  query.Load(q + row * sizes.qk_dim, sizes.qk_dim);
  if (token < example.end) {
    for (std::int64_t at = FirstKey(sizes, example, token); at <= token; ++at) {
      LaneRow key;
      LaneRow value;
      key.Load(k + (at * sizes.kv_heads + kv_head) * sizes.qk_dim, sizes.qk_dim);
      value.Load(v + (at * sizes.kv_heads + kv_head) * sizes.v_stride, sizes.v_dim);
      const float score = query.Dot(key) * sizes.scale;
      const float next = fmaxf(largest, score);
      const float shrink = expf(largest - next);
      const float weight = expf(score - next);
      total = total * shrink + weight;
      sum.Scale(shrink);
      sum.Add(weight, value);
      largest = next;
    }
  }
  const bool is_padding = token >= example.end;
  sum.Scale(is_padding ? 0 : 1 / total);
  sum.Store(o + row * sizes.v_dim, sizes.v_dim);
  if (threadIdx.x % kWarp == 0) {
    lse[LseAt(sizes, token, head)] = is_padding ? 0 : largest + logf(total);
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    QueryGradientKernel(Sizes sizes, const T* d_o, const T* q, const T* k, const T* v, const T* o,
                        const float* lse, T* dq) {
  AwaitEarlier();
  const std::int64_t row = WarpIndex();
  if (row >= sizes.tokens * sizes.heads) return;
  const std::int64_t token = row / sizes.heads;
  const std::int64_t head = row % sizes.heads;
  const std::int64_t kv_head = head / (sizes.heads / sizes.kv_heads);
  const Example example = ExampleOf(sizes, token);

  LaneRow sum;
  if (token < example.end) {
    LaneRow query;
    LaneRow gradient;
    LaneRow result;
    query.Load(q + row * sizes.qk_dim, sizes.qk_dim);
    gradient.Load(d_o + row * sizes.v_dim, sizes.v_dim);
    result.Load(o + row * sizes.v_dim, sizes.v_dim);
    const float delta = gradient.Dot(result);
    const float log_sum = lse[LseAt(sizes, token, head)];
    for (std::int64_t at = FirstKey(sizes, example, token); at <= token; ++at) {
      LaneRow key;
      LaneRow value;
      key.Load(k + (at * sizes.kv_heads + kv_head) * sizes.qk_dim, sizes.qk_dim);
      value.Load(v + (at * sizes.kv_heads + kv_head) * sizes.v_stride, sizes.v_dim);
      const float weight = expf(query.Dot(key) * sizes.scale - log_sum);
      sum.Add(weight * (gradient.Dot(value) - delta) * sizes.scale, key);
    }
  }
  sum.Store(dq + row * sizes.qk_dim, sizes.qk_dim);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    KeyGradientKernel(Sizes sizes, const T* d_o, const T* q, const T* k, const T* v, const T* o,
                      const float* lse, T* dk, T* dv) {
  AwaitEarlier();
  const std::int64_t row = WarpIndex();
  if (row >= sizes.tokens * sizes.kv_heads) return;
  const std::int64_t token = row / sizes.kv_heads;
  const std::int64_t group = sizes.heads / sizes.kv_heads;
  const std::int64_t first_head = row % sizes.kv_heads * group;
  const Example example = ExampleOf(sizes, token);

  LaneRow key_sum;
  LaneRow value_sum;
  if (token < example.end) {
    LaneRow key;
    LaneRow value;
    key.Load(k + row * sizes.qk_dim, sizes.qk_dim);
    value.Load(v + row * sizes.v_stride, sizes.v_dim);
    const std::int64_t end =
        sizes.window == 0 ? example.end : min(example.end, token + sizes.window);
    for (std::int64_t head = first_head; head < first_head + group; ++head) {
      for (std::int64_t at = token; at < end; ++at) {
        const std::int64_t query_row = at * sizes.heads + head;
        LaneRow query;
        LaneRow gradient;
        LaneRow result;
        query.Load(q + query_row * sizes.qk_dim, sizes.qk_dim);
        gradient.Load(d_o + query_row * sizes.v_dim, sizes.v_dim);
        result.Load(o + query_row * sizes.v_dim, sizes.v_dim);
        const float weight = expf(query.Dot(key) * sizes.scale - lse[LseAt(sizes, at, head)]);
        const float delta = gradient.Dot(result);
        key_sum.Add(weight * (gradient.Dot(value) - delta) * sizes.scale, query);
        value_sum.Add(weight, gradient);
      }
    }
  }
  key_sum.Store(dk + row * sizes.qk_dim, sizes.qk_dim);
  value_sum.Store(dv + row * sizes.v_stride, sizes.v_dim);
}

Sizes SizesOf(const AttentionShape& shape) {
  CKPT_CHECK(shape.qk_dim <= kMostDim && shape.v_dim <= kMostDim);
  CKPT_CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0);
  return {
      .tokens = shape.batch * shape.seq,
      .seq = shape.seq,
      .heads = shape.num_heads,
      .kv_heads = shape.num_kv_heads,
      .qk_dim = static_cast<int>(shape.qk_dim),
      .v_dim = static_cast<int>(shape.v_dim),
      .v_stride = shape.v_stride == 0 ? shape.v_dim : shape.v_stride,
      .scale = static_cast<float>(shape.scale),
      .window = shape.window,
      .cu_seqlens = shape.examples.cu_seqlens.as<const std::int32_t>(),
      .lengths = shape.examples.lengths.as<const std::int32_t>(),
      .num_examples = shape.examples.cu_seqlens ? shape.examples.lengths.num_elems() : shape.batch};
}

unsigned int BlocksForWarps(std::int64_t warps) { return Blocks(warps, kThreads / kWarp); }

}  // namespace

void PlainAttention(CudaQueue& queue, const AttentionShape& shape, const Tensor& q, const Tensor& k,
                    const Tensor& v, const Tensor& o, const Tensor& lse) {
  const Sizes sizes = SizesOf(shape);
  if (sizes.tokens == 0) return;
  Dispatch(q.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    Launch(queue.stream(), ForwardKernel<T>, {BlocksForWarps(sizes.tokens * sizes.heads), kThreads},
           sizes, q.as<const T>(), k.as<const T>(), v.as<const T>(), o.as<T>(), lse.as<float>());
  });
}

void PlainAttentionBackward(CudaQueue& queue, const AttentionShape& shape, const Tensor& d_o,
                            const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& o,
                            const Tensor& lse, const Tensor& dq, const Tensor& dk,
                            const Tensor& dv) {
  const Sizes sizes = SizesOf(shape);
  if (sizes.tokens == 0) return;
  Dispatch(q.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    Launch(queue.stream(), QueryGradientKernel<T>,
           {BlocksForWarps(sizes.tokens * sizes.heads), kThreads}, sizes, d_o.as<const T>(),
           q.as<const T>(), k.as<const T>(), v.as<const T>(), o.as<const T>(),
           lse.as<const float>(), dq.as<T>());
    Launch(queue.stream(), KeyGradientKernel<T>,
           {BlocksForWarps(sizes.tokens * sizes.kv_heads), kThreads}, sizes, d_o.as<const T>(),
           q.as<const T>(), k.as<const T>(), v.as<const T>(), o.as<const T>(),
           lse.as<const float>(), dk.as<T>(), dv.as<T>());
  });
}

}  // namespace ckpt::trainer::cuda
