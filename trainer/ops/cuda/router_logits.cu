// The backward of router logits: products of float32 gradients with operands of the compute dtype,
// by cuBLASLt.
//
// The matrix units take no mixed operands. So with bfloat16, a gradient is split into the three
// bfloat16 terms whose sum it is, and one product adds up those of the terms: products of terms are
// exact, and sums are float32 as they are without the split.
#include <cstdint>

#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/router_logits_shape.h"

namespace ckpt::trainer {
namespace cuda {
namespace {

constexpr int kTerms = 3;  // of 8 bits each, as many as a float32 has

// terms [T, kTerms, E] of dlogits [T, E]; repeated [kTerms, E, H] of weight [E, H].
__global__ void SplitKernel(const float* dlogits, const Bf16* weight, std::int64_t tokens,
                            std::int64_t experts, std::int64_t columns, Bf16* terms,
                            Bf16* repeated) {
  AwaitEarlier();
  std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at < tokens * experts) {
    float rest = dlogits[at];
    Bf16* const mine = terms + at / experts * kTerms * experts + at % experts;
#pragma unroll
    for (int term = 0; term < kTerms; ++term) {
      mine[term * experts] = Store<Bf16>(rest);
      rest -= Load(Store<Bf16>(rest));  // exact
    }
    return;
  }
  at -= tokens * experts;
  if (at >= experts * columns) return;
#pragma unroll
  for (int term = 0; term < kTerms; ++term) repeated[term * experts * columns + at] = weight[at];
}

template <typename G>
__global__ void AddPartsKernel(const float* parts, std::int64_t num_parts, std::int64_t elems,
                               G* gradient, bool adds) {
  AwaitEarlier();
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= elems) return;
  float sum = 0;
  for (std::int64_t part = 0; part < num_parts; ++part) sum += parts[part * elems + at];
  WriteGradient(gradient[at], sum, adds);
}

}  // namespace
}  // namespace cuda

void CudaOps::RouterLogitsBackward(Queue& queue, const Tensor& dlogits, const Tensor& x,
                                   const Tensor& weight, const Tensor& dx,
                                   const Gradient& dweight) {
  const RouterLogitsShape shape = RouterLogitsShapeOf(dlogits, x, weight, dx, dweight);
  const std::int64_t tokens = shape.tokens;
  const std::int64_t experts = shape.experts;
  const std::int64_t columns = shape.columns;
  RunOnCuda(queue, [&](CudaQueue& on) {
    const bool splits = x.dtype == DType::kBfloat16;
    const std::int64_t rows = splits ? cuda::kTerms * experts : experts;
    // In scratch memory, after the workspace of the products.
    Tensor terms(nullptr, x.dtype, {tokens, rows});
    Tensor repeated(nullptr, x.dtype, {rows, columns});
    Tensor parts(nullptr, DType::kFloat32, {rows, columns});
    std::uint64_t size_bytes = cuda::Products::kWorkspaceBytes;
    for (const Tensor* tensor : {&terms, &repeated, &parts}) {
      size_bytes += cuda::AlignedBytes(tensor->size_bytes());
    }
    std::byte* const workspace = on.Scratch(size_bytes);
    if (workspace == nullptr) return;
    std::byte* memory = workspace + cuda::Products::kWorkspaceBytes;
    for (Tensor* tensor : {&terms, &repeated, &parts}) {
      tensor->data = memory;
      memory += cuda::AlignedBytes(tensor->size_bytes());
    }
    if (splits) {
      cuda::Launch(on.stream(), cuda::SplitKernel,
                   {cuda::Blocks((tokens + columns) * experts, cuda::kThreads), cuda::kThreads},
                   dlogits.as<const float>(), weight.as<const cuda::Bf16>(), tokens, experts,
                   columns, terms.as<cuda::Bf16>(), repeated.as<cuda::Bf16>());
    } else {
      terms = dlogits;
      repeated = weight;
    }
    products_->Multiply(on, {.accumulate = true}, terms, repeated, dx, workspace);
    if (!dweight) return;
    products_->Multiply(on, {.transpose_a = true}, terms, x, parts, workspace);
    const std::int64_t elems = weight.num_elems();
    cuda::Dispatch(dweight.tensor.dtype, [&](auto gradient_tag) {
      using G = typename decltype(gradient_tag)::type;
      cuda::Launch(on.stream(), cuda::AddPartsKernel<G>,
                   {cuda::Blocks(elems, cuda::kThreads), cuda::kThreads}, parts.as<const float>(),
                   rows / experts, elems, dweight.tensor.as<G>(), dweight.adds());
    });
  });
}

}  // namespace ckpt::trainer
