// Feed-forward activations, optionally multiplied by a routing weight per row. A block works on as
// many rows as it has threads for in the forward, on one in the backward, if they are in use.
#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

__device__ __forceinline__ float Sigmoid(float x) { return __fdividef(1, 1 + __expf(-x)); }

// A block has as many threads as let it pass over its row's packs with the fewest of them idle.
inline unsigned int ThreadsOf(std::int64_t packs) {
  const std::int64_t passes = (packs + kThreads - 1) / kThreads;
  return Blocks((packs + passes - 1) / passes, kWarp) * kWarp;
}

// The sum over the block, for its first thread.
__device__ float BlockSum(float value) {
  __shared__ float sums[kThreads / kWarp];
  value = WarpSum(value);
  if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = value;
  __syncthreads();
  value = 0;
  for (unsigned int warp = 0; warp < blockDim.x / kWarp; ++warp) value += sums[warp];
  return value;
}

// An activation is a type with
//   kInputs           how many values of a row of x an output takes: gate and up, or one
//   Value(x, u)       the output
//   Slopes(x, u, …)   its derivatives by x and u
struct SwiGluForm {
  static constexpr int kInputs = 2;
  static __device__ float Value(float gate, float up) { return gate * Sigmoid(gate) * up; }
  static __device__ void Slopes(float gate, float up, float& by_gate, float& by_up) {
    const float sigmoid = Sigmoid(gate);
    by_gate = up * (sigmoid * (1 + gate * (1 - sigmoid)));
    by_up = gate * sigmoid;
  }
};

// Megatron's default, in erf form: x·Φ(x).
struct GeluForm {
  static constexpr int kInputs = 1;
  static __device__ float Value(float x, float) { return x * normcdff(x); }
  static __device__ void Slopes(float x, float, float& by_x, float&) {
    constexpr float kPeak = 0.3989422804F;  // of the normal density, 1/√(2π)
    by_x = normcdff(x) + x * kPeak * __expf(-0.5F * x * x);
  }
};

// The arrays of ActivationRows; null: absent.
struct Rows {
  const float* weights;
  const std::int32_t* count;

  explicit Rows(const ActivationRows& rows)
      : weights(rows.weights.as<const float>()), count(rows.count.as<const std::int32_t>()) {}
  __device__ bool Has(std::int64_t row) const { return count == nullptr || row < *count; }
  __device__ float Weight(std::int64_t row) const { return weights == nullptr ? 1 : weights[row]; }
};

// y [num_rows, packs] from x [num_rows, kInputs · packs]. A block works on blockDim.y rows.
template <typename Form, int kWidth, typename T>
__global__ void ActivateKernel(const T* x, Rows rows, std::int64_t num_rows, std::int64_t packs,
                               T* y) {
  AwaitEarlier();
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  if (row >= num_rows || !rows.Has(row)) return;
  const float weight = rows.Weight(row);
  for (std::int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
    const std::int64_t at = row * Form::kInputs * packs + p;
    const auto first = LoadPack<kWidth>(x, at);
    const auto second = Form::kInputs == 2 ? LoadPack<kWidth>(x, at + packs) : first;
    Pack<T, kWidth> result;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      result.values[i] =
          Store<T>(Form::Value(Load(first.values[i]), Load(second.values[i])) * weight);
    }
    StorePack(y, row * packs + p, result);
  }
}

// A thread reads a place of x and dy before it writes the same place of dx and activated, which may
// be x and dy.
template <typename Form, int kWidth, typename T>
__global__ void ActivateBackwardKernel(const T* dy, const T* x, Rows rows, std::int64_t packs,
                                       T* dx, float* drow_weights, T* activated) {
  AwaitEarlier();
  const std::int64_t row = blockIdx.x;
  if (!rows.Has(row)) return;
  const float weight = rows.Weight(row);
  float dweight = 0;
  for (std::int64_t p = threadIdx.x; p < packs; p += blockDim.x) {
    const std::int64_t at = row * Form::kInputs * packs + p;
    const auto d = LoadPack<kWidth>(dy, row * packs + p);
    const auto first = LoadPack<kWidth>(x, at);
    const auto second = Form::kInputs == 2 ? LoadPack<kWidth>(x, at + packs) : first;
    Pack<T, kWidth> dfirst;
    Pack<T, kWidth> dsecond;
    Pack<T, kWidth> again;
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float a = Load(first.values[i]);
      const float b = Load(second.values[i]);
      float by_first = 0;
      float by_second = 0;
      Form::Slopes(a, b, by_first, by_second);
      const float gradient = Load(d.values[i]);
      const float value = Form::Value(a, b);
      dweight += gradient * value;
      again.values[i] = Store<T>(value * weight);
      dfirst.values[i] = Store<T>(gradient * weight * by_first);
      dsecond.values[i] = Store<T>(gradient * weight * by_second);
    }
    StorePack(dx, at, dfirst);
    if (activated != nullptr) StorePack(activated, row * packs + p, again);
    if constexpr (Form::kInputs == 2) StorePack(dx, at + packs, dsecond);
  }
  if (drow_weights == nullptr) return;
  dweight = BlockSum(dweight);
  if (threadIdx.x == 0) drow_weights[row] = dweight;
}

struct ActivationShape {
  std::int64_t rows = 0;
  std::int64_t outer = 0;  // of y
};

template <typename Form>
ActivationShape ShapeOf(const Tensor& x, const Tensor& y, const ActivationRows& of_rows) {
  CKPT_CHECK(x.dtype == y.dtype && y.ndim > 0 && x.num_elems() == y.num_elems() * Form::kInputs);
  const std::int64_t outer = y.dim(y.ndim - 1);
  const std::int64_t rows = outer == 0 ? 0 : y.num_elems() / outer;
  const auto& [weights, count] = of_rows;
  CKPT_CHECK(!weights || (weights.num_elems() == rows && weights.dtype == DType::kFloat32));
  CKPT_CHECK(!count || (count.num_elems() == 1 && count.dtype == DType::kInt32));
  return {rows, outer};
}

template <typename Form>
void Forward(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) {
  const ActivationShape shape = ShapeOf<Form>(x, y, rows);
  if (shape.rows == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    Dispatch(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchWidth(shape.outer, {x.data, y.data}, [&](auto width) {
        constexpr int kWidth = decltype(width)::kWidth;
        const std::int64_t packs = shape.outer / kWidth;
        // Rows of experts are short, so several share a block.
        const unsigned int across = ThreadsOf(packs);
        const dim3 threads(across, kThreads / across);
        Launch(on.stream(), ActivateKernel<Form, kWidth, T>,
               {Blocks(shape.rows, threads.y), threads}, x.as<const T>(), Rows(rows), shape.rows,
               packs, y.as<T>());
      });
    });
  });
}

template <typename Form>
void Backward(Queue& queue, const Tensor& dy, const Tensor& x, const ActivationRows& rows,
              const Tensor& dx, const Tensor& drow_weights, const Tensor& activated) {
  const ActivationShape shape = ShapeOf<Form>(x, dy, rows);
  CKPT_CHECK(dx.dtype == x.dtype && dx.num_elems() == x.num_elems());
  CKPT_CHECK(static_cast<bool>(drow_weights) == static_cast<bool>(rows.weights));
  CKPT_CHECK(!activated ||
             (activated.dtype == dy.dtype && activated.num_elems() == dy.num_elems()));
  if (shape.rows == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    Dispatch(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchWidth(shape.outer, {dy.data, x.data, dx.data, activated.data}, [&](auto width) {
        constexpr int kWidth = decltype(width)::kWidth;
        const std::int64_t packs = shape.outer / kWidth;
        Launch(on.stream(), ActivateBackwardKernel<Form, kWidth, T>,
               {static_cast<unsigned int>(shape.rows), ThreadsOf(packs)}, dy.as<const T>(),
               x.as<const T>(), Rows(rows), packs, dx.as<T>(), drow_weights.as<float>(),
               activated.as<T>());
      });
    });
  });
}

}  // namespace
}  // namespace cuda

void CudaOps::SwiGlu(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) {
  cuda::Forward<cuda::SwiGluForm>(queue, x, rows, y);
}

void CudaOps::SwiGluBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                             const ActivationRows& rows, const Tensor& dx,
                             const Tensor& drow_weights, const Tensor& activated) {
  cuda::Backward<cuda::SwiGluForm>(queue, dy, x, rows, dx, drow_weights, activated);
}

void CudaOps::Gelu(Queue& queue, const Tensor& x, const ActivationRows& rows, const Tensor& y) {
  cuda::Forward<cuda::GeluForm>(queue, x, rows, y);
}

void CudaOps::GeluBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                           const ActivationRows& rows, const Tensor& dx, const Tensor& drow_weights,
                           const Tensor& activated) {
  cuda::Backward<cuda::GeluForm>(queue, dy, x, rows, dx, drow_weights, activated);
}

}  // namespace ckpt::trainer
