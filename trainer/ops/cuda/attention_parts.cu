// What stands before and after attention: the order of fused projections, and rotary embeddings.
#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// Rows of `whole` consist of parts, in their order, again and again: `repeats` times part 0, part
// 1, …. Each part of a row goes to, or comes from, an array of its own; null: it is left alone.
// Sizes are in units, which are 16 bytes or an element.
struct Parts {
  static constexpr int kMost = 3;
  void* arrays[kMost] = {};
  std::int64_t units[kMost] = {};  // of a part, each time
  int count = 0;
  std::int64_t repeats = 1;

  [[nodiscard]] __host__ __device__ std::int64_t UnitsOfOne() const {
    std::int64_t sum = 0;
    for (int i = 0; i < count; ++i) sum += units[i];
    return sum;
  }
};

// kSplit: from the whole to the parts; otherwise back.
template <bool kSplit, typename Unit>
__global__ void MovePartsKernel(Unit* whole, Parts parts, std::int64_t total_units) {
  AwaitEarlier();
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= total_units) return;
  const std::int64_t of_one = parts.UnitsOfOne();
  const std::int64_t repeat = at / of_one;  // over all rows
  std::int64_t unit = at % of_one;
  int part = 0;
  while (unit >= parts.units[part]) unit -= parts.units[part++];
  if (parts.arrays[part] == nullptr) return;
  Unit& other = static_cast<Unit*>(parts.arrays[part])[repeat * parts.units[part] + unit];
  if constexpr (kSplit) {
    other = whole[at];
  } else {
    whole[at] = other;
  }
}

struct Part {
  Tensor tensor;
  std::int64_t elems = 0;  // each time
};

template <bool kSplit>
void MoveParts(Queue& queue, const Tensor& whole, std::initializer_list<Part> list) {
  if (whole.num_elems() == 0) return;
  const auto elem_bytes = static_cast<std::int64_t>(ElementBytes(whole.dtype));
  std::int64_t unit_bytes = sizeof(uint4);
  std::int64_t of_one = 0;
  if (reinterpret_cast<std::uintptr_t>(whole.data) % sizeof(uint4) != 0) unit_bytes = elem_bytes;
  for (const Part& part : list) {
    CKPT_CHECK(!part.tensor || part.tensor.dtype == whole.dtype);
    of_one += part.elems;
    if (part.elems * elem_bytes % unit_bytes != 0 ||
        reinterpret_cast<std::uintptr_t>(part.tensor.data) % sizeof(uint4) != 0) {
      unit_bytes = elem_bytes;
    }
  }
  CKPT_CHECK(whole.num_elems() % of_one == 0);
  for (const Part& part : list) {
    CKPT_CHECK(!part.tensor || part.tensor.num_elems() == whole.num_elems() / of_one * part.elems);
  }
  Parts parts;
  for (const Part& part : list) {
    parts.arrays[parts.count] = part.tensor.data;
    parts.units[parts.count++] = part.elems * elem_bytes / unit_bytes;
  }
  RunOnCuda(queue, [&](CudaQueue& on) {
    const auto move = [&](auto unit) {
      using Unit = decltype(unit);
      const auto units = static_cast<std::int64_t>(whole.size_bytes() / sizeof(Unit));
      Launch(on.stream(), MovePartsKernel<kSplit, Unit>, {Blocks(units, kThreads), kThreads},
             whole.as<Unit>(), parts, units);
    };
    if (unit_bytes == sizeof(uint4)) return move(uint4{});
    if (unit_bytes == sizeof(float)) return move(float{});
    move(Bf16{});
  });
}

template <bool kSplit>
void MoveQkv(Queue& queue, const QkvShape& shape, const Tensor& qkv, const Tensor& q,
             const Tensor& k, const Tensor& v) {
  CKPT_CHECK(shape.num_kv_heads > 0 && shape.num_heads % shape.num_kv_heads == 0);
  MoveParts<kSplit>(queue, qkv,
                    {{q, shape.num_heads / shape.num_kv_heads * shape.head_dim},
                     {k, shape.head_dim},
                     {v, shape.head_dim}});
}

template <bool kSplit>
void MoveColumns(Queue& queue, const Tensor& whole, const Tensor& a, const Tensor& b) {
  const std::int64_t rows = whole.dim(0);
  CKPT_CHECK(a.dim(0) == rows && b.dim(0) == rows);
  if (rows == 0) return;
  MoveParts<kSplit>(queue, whole, {{a, a.num_elems() / rows}, {b, b.num_elems() / rows}});
}

// k and v from the latent's projection, where all heads share k_rope. A thread writes one element.
template <typename T>
__global__ void SplitMlaKernel(MlaShape shape, std::int64_t heads, const T* kv, const T* k_rope,
                               T* k, T* v) {
  AwaitEarlier();
  const std::int64_t k_dim = shape.nope_dim + shape.rope_dim;
  const std::int64_t of_head = k_dim + shape.v_dim;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t head = at / of_head;  // over all tokens
  const std::int64_t i = at % of_head;
  if (head >= heads) return;
  const T* const latent = kv + head * (shape.nope_dim + shape.v_dim);
  if (i < shape.nope_dim) {
    k[head * k_dim + i] = latent[i];
  } else if (i < k_dim) {
    k[head * k_dim + i] = k_rope[head / shape.num_heads * shape.rope_dim + i - shape.nope_dim];
  } else {
    v[head * shape.v_dim + i - k_dim] = latent[shape.nope_dim + i - k_dim];
  }
}

// A block for each token.
template <typename T>
__global__ void SplitMlaBackwardKernel(MlaShape shape, const T* dk, const T* dv, T* dkv,
                                       T* dk_rope) {
  AwaitEarlier();
  const std::int64_t token = blockIdx.x;
  const std::int64_t k_dim = shape.nope_dim + shape.rope_dim;
  const std::int64_t latent_dim = shape.nope_dim + shape.v_dim;
  dk += token * shape.num_heads * k_dim;
  dv += token * shape.num_heads * shape.v_dim;
  dkv += token * shape.num_heads * latent_dim;
  for (std::int64_t i = threadIdx.x; i < shape.num_heads * latent_dim; i += blockDim.x) {
    const std::int64_t head = i / latent_dim;
    const std::int64_t at = i % latent_dim;
    dkv[i] =
        at < shape.nope_dim ? dk[head * k_dim + at] : dv[head * shape.v_dim + at - shape.nope_dim];
  }
  for (std::int64_t i = threadIdx.x; i < shape.rope_dim; i += blockDim.x) {
    float sum = 0;
    for (std::int64_t head = 0; head < shape.num_heads; ++head) {
      sum += Load(dk[head * k_dim + shape.nope_dim + i]);
    }
    dk_rope[token * shape.rope_dim + i] = Store<T>(sum);
  }
}

// A thread rotates one pair.
template <typename T>
__global__ void RopeKernel(RopeForm form, const std::int32_t* positions, const float* cosine,
                           const float* sine, std::int64_t heads, std::int64_t head_dim,
                           std::int64_t pairs, T* x) {
  AwaitEarlier();
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= pairs) return;
  const std::int64_t half = form.dim / 2;
  const std::int64_t i = at % half;
  const std::int64_t head = at / half;  // over all tokens
  const std::int64_t token = head / heads;
  const std::int64_t position = positions == nullptr ? token % form.seq : positions[token];
  if (position < 0) return;  // padding
  if (position >= form.seq) __trap();
  T* const first = x + head * head_dim + (form.at_front ? 0 : head_dim - form.dim) +
                   (form.interleaved ? 2 * i : i);
  T* const second = first + (form.interleaved ? 1 : half);
  const float c = cosine[position * half + i];
  const float s = form.inverse ? -sine[position * half + i] : sine[position * half + i];
  const float a = Load(*first);
  const float b = Load(*second);
  *first = Store<T>(a * c - b * s);
  *second = Store<T>(b * c + a * s);
}

}  // namespace
}  // namespace cuda

void CudaOps::PrepareInSteps(Queue& queue, const QkvForm& form, const Tensor& qkv, const Tensor& q,
                             const Tensor& k, const Tensor& v, const Tensor& q_rstd,
                             const Tensor& k_rstd) {
  const bool has_norm = static_cast<bool>(form.q_norm);
  if (has_norm) {
    NormHeads(queue, form, /*is_key=*/false, qkv, q, q_rstd);
    NormHeads(queue, form, /*is_key=*/true, qkv, k, k_rstd);
  }
  if (!has_norm || v) {
    cuda::MoveQkv<true>(queue, form.shape, qkv, has_norm ? Tensor() : q, has_norm ? Tensor() : k,
                        v);
  }
  if (!form.cosine) return;
  Rope(queue, form.rope, form.cosine, form.sine, q);
  Rope(queue, form.rope, form.cosine, form.sine, k);
}

void CudaOps::PrepareBackwardInSteps(Queue& queue, const QkvForm& form, const Tensor& dq,
                                     const Tensor& dk, const Tensor& dv, const Tensor& qkv,
                                     const Tensor& q_rstd, const Tensor& k_rstd, const Tensor& dqkv,
                                     const Gradient& dq_norm, const Gradient& dk_norm) {
  if (form.cosine) {
    RopeForm inverse = form.rope;
    inverse.inverse = true;
    Rope(queue, inverse, form.cosine, form.sine, dq);
    Rope(queue, inverse, form.cosine, form.sine, dk);
  }
  const bool has_norm = static_cast<bool>(form.q_norm);
  if (has_norm) {
    NormHeadsBackward(queue, form, /*is_key=*/false, dq, qkv, q_rstd, dqkv, dq_norm);
    NormHeadsBackward(queue, form, /*is_key=*/true, dk, qkv, k_rstd, dqkv, dk_norm);
  }
  if (!has_norm || dv) {
    cuda::MoveQkv<false>(queue, form.shape, dqkv, has_norm ? Tensor() : dq,
                         has_norm ? Tensor() : dk, dv);
  }
}

void CudaOps::SplitColumns(Queue& queue, const Tensor& from, const Tensor& a, const Tensor& b) {
  cuda::MoveColumns<true>(queue, from, a, b);
}

void CudaOps::MergeColumns(Queue& queue, const Tensor& a, const Tensor& b, const Tensor& to) {
  cuda::MoveColumns<false>(queue, to, a, b);
}

void CudaOps::SplitMlaKv(Queue& queue, const MlaShape& shape, const Tensor& kv,
                         const Tensor& k_rope, const Tensor& k, const Tensor& v) {
  const std::int64_t heads = k_rope.num_elems() / shape.rope_dim * shape.num_heads;
  CKPT_CHECK(kv.num_elems() == heads * (shape.nope_dim + shape.v_dim));
  CKPT_CHECK(k.num_elems() == heads * (shape.nope_dim + shape.rope_dim));
  CKPT_CHECK(v.num_elems() == heads * shape.v_dim);
  if (heads == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(kv.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::Launch(on.stream(), cuda::SplitMlaKernel<T>,
                   {cuda::Blocks(k.num_elems() + v.num_elems(), cuda::kThreads), cuda::kThreads},
                   shape, heads, kv.as<const T>(), k_rope.as<const T>(), k.as<T>(), v.as<T>());
    });
  });
}

void CudaOps::SplitMlaKvBackward(Queue& queue, const MlaShape& shape, const Tensor& dk,
                                 const Tensor& dv, const Tensor& dkv, const Tensor& dk_rope) {
  const std::int64_t tokens = dk_rope.num_elems() / shape.rope_dim;
  CKPT_CHECK(dkv.num_elems() == tokens * shape.num_heads * (shape.nope_dim + shape.v_dim));
  if (tokens == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(dk.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::Launch(on.stream(), cuda::SplitMlaBackwardKernel<T>,
                   {static_cast<unsigned int>(tokens), cuda::kThreads}, shape, dk.as<const T>(),
                   dv.as<const T>(), dkv.as<T>(), dk_rope.as<T>());
    });
  });
}

void CudaOps::Rope(Queue& queue, const RopeForm& form, const Tensor& cosine, const Tensor& sine,
                   const Tensor& x) {
  CKPT_CHECK(x.ndim == 3 && form.dim % 2 == 0 && form.dim <= x.dim(2) && form.seq >= 1);
  CKPT_CHECK(cosine.dtype == DType::kFloat32 && sine.dtype == DType::kFloat32);
  CKPT_CHECK(cosine.num_elems() == form.seq * form.dim / 2 &&
             sine.num_elems() == cosine.num_elems());
  const std::int64_t pairs = x.dim(0) * x.dim(1) * form.dim / 2;
  if (pairs == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      cuda::Launch(on.stream(), cuda::RopeKernel<T>,
                   {cuda::Blocks(pairs, cuda::kThreads), cuda::kThreads}, form,
                   form.positions.as<const std::int32_t>(), cosine.as<const float>(),
                   sine.as<const float>(), x.dim(1), x.dim(2), pairs, x.as<T>());
    });
  });
}

}  // namespace ckpt::trainer
