// Rotary embeddings where nothing else is done to a head in the same pass.
#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/cuda/rotation.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// The heads of all tokens, one after the other.
struct Heads {
  std::int32_t count = 0;     // over all tokens
  std::int32_t of_token = 0;  // N
  std::int32_t dim = 0;       // D
};

// A thread rotates two packs; nothing else of a head is touched.
template <bool kInverse, typename T>
__global__ void __launch_bounds__(kThreads) RopeKernel(Rotation rotation, Heads heads, T* x) {
  AwaitEarlier();
  const std::int32_t lanes = rotation.dim / kHeld;
  const auto at = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  const std::int32_t head = at / lanes;
  const std::int32_t lane = at % lanes;
  if (head >= heads.count) return;
  const Turn<kInverse> turn(rotation, head / heads.of_token, lane);
  if (!turn.is_rotated()) return;
  const std::int32_t packs_of_head = heads.dim / kPackWidth;
  const HeldPacks held(rotation, packs_of_head, lane);
  const std::int64_t begin = static_cast<std::int64_t>(head) * packs_of_head;
  float values[kHeld];
  Held<T>{LoadPack<kPackWidth>(x, begin + held.first), LoadPack<kPackWidth>(x, begin + held.second)}
      .To(values);
  turn.Apply(values);
  const Held<T> turned = HeldOf<T>(values);
  StorePack(x, begin + held.first, turned.first);
  StorePack(x, begin + held.second, turned.second);
}

// A thread rotates one pair: of any sizes, at any address.
template <typename T>
__global__ void RopePairsKernel(Rotation rotation, bool inverse, Heads heads, T* x) {
  AwaitEarlier();
  const std::int32_t half = rotation.dim / 2;
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto head = static_cast<std::int32_t>(at / half);
  const auto i = static_cast<std::int32_t>(at % half);
  if (head >= heads.count) return;
  const std::int32_t position = PositionOf(rotation, head / heads.of_token);
  if (position < 0) return;
  T* const first = x + static_cast<std::int64_t>(head) * heads.dim + rotation.first +
                   (rotation.interleaved ? 2 * i : i);
  T* const second = first + (rotation.interleaved ? 1 : half);
  const std::int64_t angle = static_cast<std::int64_t>(position) * half + i;
  const float cosine = rotation.cosine[angle];
  const float sine = inverse ? -rotation.sine[angle] : rotation.sine[angle];
  const float a = Load(*first);
  const float b = Load(*second);
  *first = Store<T>(a * cosine - b * sine);
  *second = Store<T>(b * cosine + a * sine);
}

}  // namespace
}  // namespace cuda

void CudaOps::Rope(Queue& queue, const RopeForm& form, const Tensor& cosine, const Tensor& sine,
                   const Tensor& x) {
  CKPT_CHECK(x.ndim == 3);
  const cuda::Rotation rotation = cuda::RotationOf(form, cosine, sine, x.dim(2));
  const std::int64_t count = x.dim(0) * x.dim(1);
  const std::int64_t pairs = count * form.dim / 2;
  if (pairs == 0) return;
  CKPT_CHECK(count <= std::numeric_limits<std::int32_t>::max());
  const cuda::Heads heads = {.count = static_cast<std::int32_t>(count),
                             .of_token = static_cast<std::int32_t>(x.dim(1)),
                             .dim = static_cast<std::int32_t>(x.dim(2))};
  const std::int64_t held = pairs / cuda::kPackWidth;  // by threads that rotate packs
  const bool fits = form.dim % cuda::kHeld == 0 && rotation.first % cuda::kPackWidth == 0 &&
                    held <= std::numeric_limits<std::int32_t>::max() - cuda::kThreads &&
                    cuda::FitsPacks(x.dim(2), {x.data, cosine.data, sine.data});
  RunOnCuda(queue, [&](CudaQueue& on) {
    cuda::Dispatch(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if (!fits) {
        return cuda::Launch(on.stream(), cuda::RopePairsKernel<T>,
                            {cuda::Blocks(pairs, cuda::kThreads), cuda::kThreads}, rotation,
                            form.inverse, heads, x.as<T>());
      }
      cuda::Launch(
          on.stream(), form.inverse ? cuda::RopeKernel<true, T> : cuda::RopeKernel<false, T>,
          {cuda::Blocks(held, cuda::kThreads), cuda::kThreads}, rotation, heads, x.as<T>());
    });
  });
}

}  // namespace ckpt::trainer
