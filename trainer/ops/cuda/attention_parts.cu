// Parts of fused projections, moved to arrays of their own and back.
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

}  // namespace ckpt::trainer
