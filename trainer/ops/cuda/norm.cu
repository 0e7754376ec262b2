// RMSNorm and LayerNorm over the last dim, with the formulas of the CPU's norm.cc.
//
// A row belongs to a warp, or to a block where it is long, and stays in registers: memory is read
// once. In the backward a group walks over many rows and keeps the sums of dw and db for its
// columns in registers too.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/cuda/packs_ahead.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// Where row r of an array begins: groups of rows that follow each other. By default all do.
struct RowPlaces {
  std::int64_t first = 0;  // element
  std::int64_t rows_per_group = 0;
  std::int64_t group_elems = 0;

  __device__ std::int64_t At(std::int64_t row, std::int64_t columns) const {
    if (rows_per_group == 0) return row * columns;
    return first + row / rows_per_group * group_elems + row % rows_per_group * columns;
  }
};

struct NormArgs {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float eps = 0;
  RowPlaces x = {};
  RowPlaces dx = {};
};

// How a group of threads holds a row: thread `lane` has the packs lane, lane + kGroup, …
template <int kGroupThreads, int kPacksOfThread, int kPackElems>
struct RowForm {
  static constexpr int kGroup = kGroupThreads;  // a warp or a block
  static constexpr int kPacks = kPacksOfThread;
  static constexpr int kWidth = kPackElems;
  static constexpr int kMostColumns = kGroup * kPacks * kWidth;

  // Calls `body(j, pack)` for the j-th pack of this thread.
  template <typename Body>
  static __device__ __forceinline__ void ForPacks(std::int64_t columns, const Body& body) {
    const std::int64_t lane = threadIdx.x % kGroup;
#pragma unroll
    for (int j = 0; j < kPacks; ++j) {
      const std::int64_t pack = lane + j * kGroup;
      if (pack * kWidth < columns) body(j, pack);
    }
  }
};

// Calls `body(RowForm<…>{})` with the smallest form that holds a row.
template <int kWidth, typename Body>
void DispatchRow(std::int64_t columns, const Body& body) {
  using Smallest = RowForm<kWarp, 1, kWidth>;
  using Small = RowForm<kWarp, 4, kWidth>;
  using Medium = RowForm<kThreads, 1, kWidth>;
  using Large = RowForm<kThreads, 2, kWidth>;
  using Largest = RowForm<kThreads, kWidth == 1 ? 32 : 8, kWidth>;
  if (columns <= Smallest::kMostColumns) return body(Smallest{});
  if (columns <= Small::kMostColumns) return body(Small{});
  if (columns <= Medium::kMostColumns) return body(Medium{});
  if (columns <= Large::kMostColumns) return body(Large{});
  CKPT_CHECK(columns <= Largest::kMostColumns);  // 16,384, or 8,192 that do not fit packs
  body(Largest{});
}

// x: the row, or with kAdds the first summand; the sum is rounded and stored. kCentered: LayerNorm,
// otherwise RMSNorm.
template <bool kCentered, bool kAdds, typename Form, typename T>
__global__ void __launch_bounds__(kThreads)
    NormKernel(NormArgs args, const T* x, const T* delta, const T* weight, const T* bias, T* sum,
               T* y, float* statistics) {
  AwaitEarlier();
  constexpr int kWidth = Form::kWidth;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / Form::kGroup) +
                           threadIdx.x / Form::kGroup;
  if (row >= args.rows) return;  // for none or all threads of a block that is one group
  const T* const in = x + args.x.At(row, args.columns);
  const auto size = static_cast<float>(args.columns);

  Pack<T, kWidth> packs[Form::kPacks];
  float mean = 0;
  float squares = 0;
  Form::ForPacks(args.columns, [&](int j, std::int64_t p) {
    packs[j] = LoadPack<kWidth>(in, p);
    if constexpr (kAdds) {
      const auto added = LoadPack<kWidth>(delta + row * args.columns, p);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        packs[j].values[i] = Store<T>(Load(packs[j].values[i]) + Load(added.values[i]));
      }
      StorePack(sum + row * args.columns, p, packs[j]);
    }
#pragma unroll
    for (const T& value : packs[j].values) {
      if constexpr (kCentered) {
        mean += Load(value);
      } else {
        squares += Load(value) * Load(value);
      }
    }
  });
  if constexpr (kCentered) {
    mean = GroupSum<Form::kGroup>(mean) / size;
    Form::ForPacks(args.columns, [&](int j, std::int64_t) {
#pragma unroll
      for (const T& value : packs[j].values) squares += (Load(value) - mean) * (Load(value) - mean);
    });
  }
  const float rstd = 1 / sqrtf(GroupSum<Form::kGroup>(squares) / size + args.eps);
  if (threadIdx.x % Form::kGroup == 0) {
    if constexpr (kCentered) {
      statistics[2 * row] = mean;
      statistics[2 * row + 1] = rstd;
    } else {
      statistics[row] = rstd;
    }
  }
  Form::ForPacks(args.columns, [&](int j, std::int64_t p) {
    const auto w = LoadPack<kWidth>(weight, p);
    Pack<T, kWidth> result;
    if constexpr (kCentered) {
      const auto b = LoadPack<kWidth>(bias, p);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float normalized = (Load(packs[j].values[i]) - mean) * rstd;
        result.values[i] = Store<T>(Load(w.values[i]) * normalized + Load(b.values[i]));
      }
    } else {
      // Rounded also before the weight, as Transformers' classes do.
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const T normalized = Store<T>(Load(packs[j].values[i]) * rstd);
        result.values[i] = Store<T>(Load(w.values[i]) * Load(normalized));
      }
    }
    StorePack(y + row * args.columns, p, result);
  });
}

// Adds up the groups of a block: partials of this block [columns] = Σ over its groups of `sums`.
// `shared`: room for the columns of one group after the other.
template <typename Form>
__device__ void StoreBlockSums(std::int64_t columns, float (&sums)[Form::kPacks][Form::kWidth],
                               float* shared, float* partials) {
  constexpr int kGroups = kThreads / Form::kGroup;
  float* const to = kGroups == 1 ? partials : shared + threadIdx.x / Form::kGroup * columns;
  Form::ForPacks(columns, [&](int j, std::int64_t p) {
#pragma unroll
    for (int i = 0; i < Form::kWidth; ++i) to[p * Form::kWidth + i] = sums[j][i];
  });
  if constexpr (kGroups > 1) {
    __syncthreads();
    for (std::int64_t column = threadIdx.x; column < columns; column += kThreads) {
      float total = 0;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) total += shared[group * columns + column];
      partials[column] = total;
    }
    __syncthreads();
  }
}

// The packs of a row that a thread needs in the backward. Where shared memory holds a row of each
// group of a block, the next row is on its way while one is computed; where it does not, or packs
// are too small, they come from memory.
template <typename Form, typename T>
class RowReader {
 public:
  using PackType = Pack<T, Form::kWidth>;
  using Ahead = PacksAhead<T, Form::kWidth, 3 * Form::kPacks, kThreads>;
  static constexpr std::size_t kStaticBytes = Form::kGroup > kWarp ? 1024 : 0;  // at most
  static constexpr bool kIsAhead = Ahead::kWords > 0 && Ahead::kBytes + kStaticBytes <= 48 * 1024;
  static constexpr std::size_t kSharedBytes = kIsAhead ? Ahead::kBytes : 0;

  // kIn: x, kSlope: dy, kSum: dx, to which the gradient is added. No pack of a null array is asked
  // for.
  enum Array { kIn, kSlope, kSum };

  __device__ RowReader(const NormArgs& args, const T* x, const T* dy, const T* dx, void* shared)
      : args_(args), x_(x), dy_(dy), dx_(dx), ahead_(shared) {}

  // Asks for pack p of a row, the j-th of this thread, after the last one in its place was used.
  __device__ __forceinline__ void Ask(std::int64_t row, int j, std::int64_t p) {
    if constexpr (kIsAhead) {
      if (row >= args_.rows) return;
      ahead_.Ask(3 * j + kIn, RowOf<kIn>(row), p);
      ahead_.Ask(3 * j + kSlope, RowOf<kSlope>(row), p);
      if (dx_ != nullptr) ahead_.Ask(3 * j + kSum, RowOf<kSum>(row), p);
    }
  }
  // Waits for what was asked for.
  __device__ __forceinline__ void Await() {
    if constexpr (kIsAhead) {
      ahead_.EndBatch();
      ahead_.template Await<0>();
    }
  }
  template <Array kArray>
  [[nodiscard]] __device__ __forceinline__ PackType Get(std::int64_t row, int j,
                                                        std::int64_t p) const {
    if constexpr (kIsAhead) {
      return ahead_.Get(3 * j + kArray);
    } else {
      return LoadPack<Form::kWidth>(RowOf<kArray>(row), p);
    }
  }

 private:
  template <Array kArray>
  [[nodiscard]] __device__ __forceinline__ const T* RowOf(std::int64_t row) const {
    if constexpr (kArray == kIn) return x_ + args_.x.At(row, args_.columns);
    if constexpr (kArray == kSlope) return dy_ + row * args_.columns;
    return dx_ + args_.dx.At(row, args_.columns);
  }

  const NormArgs& args_;
  const T* const x_;
  const T* const dy_;
  const T* const dx_;
  Ahead ahead_;
};

// How many blocks of the backward work on a multiprocessor at a time: as many as have registers
// for their sums.
template <bool kCentered, typename Form>
constexpr int BackwardBlocks() {
  if (Form::kPacks == 1) return 4;
  if (Form::kPacks * Form::kWidth > 32) return 1;
  return kCentered ? 2 : 3;
}

// dx (=, +=) rstd·(g - mean(g) - x̂·mean(g·x̂)), where mean(g) counts only if kCentered. Partials:
// [gridDim.x, columns] of dw, and of db after them.
template <bool kCentered, typename Form, typename T>
__global__ void __launch_bounds__(kThreads, BackwardBlocks<kCentered, Form>())
    NormBackwardKernel(NormArgs args, const T* dy, const T* x, const T* weight,
                       const float* statistics, bool accumulate, T* dx, float* partials) {
  AwaitEarlier();
  constexpr int kWidth = Form::kWidth;
  constexpr int kGroups = kThreads / Form::kGroup;
  extern __shared__ __align__(16) std::byte shared[];  // rows that are on their way, later sums
  const std::int64_t group = threadIdx.x / Form::kGroup;
  const auto size = static_cast<float>(args.columns);
  float dw[Form::kPacks][kWidth] = {};
  float db[Form::kPacks][kWidth] = {};
  using Reader = RowReader<Form, T>;
  Reader reader(args, x, dy, accumulate ? dx : nullptr, shared);

  // All threads of a block that is one group make the same number of turns.
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kGroups;
  std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kGroups + group;
  Form::ForPacks(args.columns, [&](int j, std::int64_t p) { reader.Ask(row, j, p); });
  for (; row < args.rows; row += step) {
    const float mean = kCentered ? statistics[2 * row] : 0;
    const float rstd = statistics[kCentered ? 2 * row + 1 : row];
    reader.Await();
    float sum_g = 0;
    float sum_gx = 0;
    Form::ForPacks(args.columns, [&](int j, std::int64_t p) {
      const auto w = LoadPack<kWidth>(weight, p);
      const auto in = reader.template Get<Reader::kIn>(row, j, p);
      const auto slope = reader.template Get<Reader::kSlope>(row, j, p);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float d = Load(slope.values[i]);
        const float normalized = (Load(in.values[i]) - mean) * rstd;
        const float g = Load(w.values[i]) * d;
        sum_gx += g * normalized;
        dw[j][i] += d * normalized;
        if constexpr (kCentered) {
          sum_g += g;
          db[j][i] += d;
        }
      }
    });
    const float mean_g = kCentered ? GroupSum<Form::kGroup>(sum_g) / size : 0;
    const float mean_gx = GroupSum<Form::kGroup>(sum_gx) / size;
    T* const to = dx + args.dx.At(row, args.columns);
    Form::ForPacks(args.columns, [&](int j, std::int64_t p) {
      const auto w = LoadPack<kWidth>(weight, p);
      const auto in = reader.template Get<Reader::kIn>(row, j, p);
      const auto slope = reader.template Get<Reader::kSlope>(row, j, p);
      Pack<T, kWidth> result;
      if (accumulate) result = reader.template Get<Reader::kSum>(row, j, p);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float normalized = (Load(in.values[i]) - mean) * rstd;
        const float g = Load(w.values[i]) * Load(slope.values[i]);
        const float gradient = rstd * (g - mean_g - normalized * mean_gx);
        result.values[i] = Store<T>(accumulate ? Load(result.values[i]) + gradient : gradient);
      }
      StorePack(to, p, result);
      reader.Ask(row + step, j, p);
    });
  }
  auto* const sums = reinterpret_cast<float*>(shared);  // [kGroups, columns]
  __syncthreads();
  float* const mine = partials + blockIdx.x * args.columns;
  StoreBlockSums<Form>(args.columns, dw, sums, mine);
  if constexpr (kCentered) {
    StoreBlockSums<Form>(args.columns, db, sums, mine + gridDim.x * args.columns);
  }
}

NormArgs ArgsOf(const Tensor& x, const Tensor& weight, const Tensor& statistics,
                std::int64_t num_statistics, double eps) {
  const std::int64_t columns = weight.num_elems();
  CKPT_CHECK(columns > 0 && x.ndim > 0 && x.dim(x.ndim - 1) == columns);
  const NormArgs args{x.num_elems() / columns, columns, static_cast<float>(eps)};
  CKPT_CHECK(weight.dtype == x.dtype && statistics.dtype == DType::kFloat32);
  CKPT_CHECK(statistics.num_elems() == args.rows * num_statistics);
  return args;
}

// The rows of queries or keys in a projection.
NormArgs HeadsOf(const QkvForm& form, bool is_key, const Tensor& qkv, const Tensor& rstd) {
  const auto& [num_heads, num_kv_heads, head_dim] = form.shape;
  CKPT_CHECK(num_kv_heads > 0 && num_heads % num_kv_heads == 0);
  const std::int64_t queries = num_heads / num_kv_heads;
  const std::int64_t group_elems = (queries + 2) * head_dim;
  const RowPlaces places = {.first = is_key ? queries * head_dim : 0,
                            .rows_per_group = is_key ? 1 : queries,
                            .group_elems = group_elems};
  const Tensor& weight = is_key ? form.k_norm : form.q_norm;
  CKPT_CHECK(weight.num_elems() == head_dim && weight.dtype == qkv.dtype);
  const std::int64_t rows = qkv.num_elems() / group_elems * places.rows_per_group;
  CKPT_CHECK(rstd.dtype == DType::kFloat32 && rstd.num_elems() == rows);
  return {rows, head_dim, static_cast<float>(form.norm_eps), places, places};
}

// The operands of a forward; null: absent. Without `delta` there is no `sum`.
struct ForwardOperands {
  Tensor x;
  Tensor delta = {};
  Tensor weight;
  Tensor bias = {};
  Tensor sum = {};
  Tensor y;
  Tensor statistics;
};

template <bool kCentered, bool kAdds>
void Forward(Queue& queue, const NormArgs& args, const ForwardOperands& of) {
  CKPT_CHECK(of.x.dtype == of.y.dtype && of.y.num_elems() == args.rows * args.columns);
  if (args.rows == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    Dispatch(of.x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchWidth(
          args.columns,
          {of.x.data, of.delta.data, of.weight.data, of.bias.data, of.sum.data, of.y.data},
          [&](auto width) {
            DispatchRow<decltype(width)::kWidth>(args.columns, [&](auto form) {
              using Form = decltype(form);
              Launch(on.stream(), NormKernel<kCentered, kAdds, Form, T>,
                     {Blocks(args.rows, kThreads / Form::kGroup), kThreads}, args,
                     of.x.as<const T>(), of.delta.as<const T>(), of.weight.as<const T>(),
                     of.bias.as<const T>(), of.sum.as<T>(), of.y.as<T>(),
                     of.statistics.as<float>());
            });
          });
    });
  });
}

template <bool kCentered>
void Backward(Queue& queue, const NormArgs& args, const Tensor& dy, const Tensor& x,
              const Tensor& weight, const Tensor& statistics, bool accumulate, const Tensor& dx,
              const Gradient& dweight, const Gradient& dbias) {
  CKPT_CHECK(x.dtype == dy.dtype && dy.num_elems() == args.rows * args.columns);
  CKPT_CHECK(x.dtype == dx.dtype && x.num_elems() == dx.num_elems());
  RunOnCuda(queue, [&](CudaQueue& on) {
    Dispatch(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchWidth(args.columns, {dy.data, x.data, weight.data, dx.data}, [&](auto width) {
        DispatchRow<decltype(width)::kWidth>(args.columns, [&](auto form) {
          using Form = decltype(form);
          constexpr int kBlocks = kMultiprocessors * BackwardBlocks<kCentered, Form>();
          constexpr int kGroups = kThreads / Form::kGroup;
          const std::size_t row_bytes = static_cast<std::size_t>(args.columns) * sizeof(float);
          auto* const partials =
              reinterpret_cast<float*>(on.Scratch((kCentered ? 2 : 1) * kBlocks * row_bytes));
          if (partials == nullptr) return;
          const std::size_t shared_bytes =
              std::max(kGroups == 1 ? 0 : kGroups * row_bytes, RowReader<Form, T>::kSharedBytes);
          Launch(on.stream(), NormBackwardKernel<kCentered, Form, T>,
                 {kBlocks, kThreads, shared_bytes}, args, dy.as<const T>(), x.as<const T>(),
                 weight.as<const T>(), statistics.as<const float>(), accumulate, dx.as<T>(),
                 partials);
          WriteColumnSums(on.stream(), partials, kBlocks, {dweight, dbias});
        });
      });
    });
  });
}

}  // namespace
}  // namespace cuda

void CudaOps::RmsNorm(Queue& queue, const Tensor& x, const Tensor& weight, double eps,
                      const Tensor& y, const Tensor& rstd) {
  cuda::Forward<false, false>(queue, cuda::ArgsOf(x, weight, rstd, 1, eps),
                              {.x = x, .weight = weight, .y = y, .statistics = rstd});
}

void CudaOps::AddRmsNorm(Queue& queue, const Tensor& x, const Tensor& delta, const Tensor& weight,
                         double eps, const Tensor& sum, const Tensor& y, const Tensor& rstd) {
  for (const Tensor& other : {delta, sum}) {
    CKPT_CHECK(other.dtype == x.dtype && other.num_elems() == x.num_elems());
  }
  cuda::Forward<false, true>(
      queue, cuda::ArgsOf(x, weight, rstd, 1, eps),
      {.x = x, .delta = delta, .weight = weight, .sum = sum, .y = y, .statistics = rstd});
}

void CudaOps::RmsNormBackward(Queue& queue, const Tensor& dy, const Tensor& x, const Tensor& weight,
                              const Tensor& rstd, bool accumulate, const Tensor& dx,
                              const Gradient& dweight) {
  cuda::Backward<false>(queue, cuda::ArgsOf(x, weight, rstd, 1, 0), dy, x, weight, rstd, accumulate,
                        dx, dweight, {});
}

void CudaOps::NormHeads(Queue& queue, const QkvForm& form, bool is_key, const Tensor& qkv,
                        const Tensor& x, const Tensor& rstd) {
  cuda::Forward<false, false>(
      queue, cuda::HeadsOf(form, is_key, qkv, rstd),
      {.x = qkv, .weight = is_key ? form.k_norm : form.q_norm, .y = x, .statistics = rstd});
}

void CudaOps::NormHeadsBackward(Queue& queue, const QkvForm& form, bool is_key, const Tensor& dx,
                                const Tensor& qkv, const Tensor& rstd, const Tensor& dqkv,
                                const Gradient& dnorm) {
  cuda::Backward<false>(queue, cuda::HeadsOf(form, is_key, qkv, rstd), dx, qkv,
                        is_key ? form.k_norm : form.q_norm, rstd, /*accumulate=*/false, dqkv, dnorm,
                        {});
}

void CudaOps::LayerNorm(Queue& queue, const Tensor& x, const Tensor& weight, const Tensor& bias,
                        double eps, const Tensor& y, const Tensor& statistics) {
  CKPT_CHECK(bias.dtype == weight.dtype && bias.num_elems() == weight.num_elems());
  cuda::Forward<true, false>(
      queue, cuda::ArgsOf(x, weight, statistics, 2, eps),
      {.x = x, .weight = weight, .bias = bias, .y = y, .statistics = statistics});
}

void CudaOps::LayerNormBackward(Queue& queue, const Tensor& dy, const Tensor& x,
                                const Tensor& weight, const Tensor& statistics, bool accumulate,
                                const Tensor& dx, const Gradient& dweight, const Gradient& dbias) {
  cuda::Backward<true>(queue, cuda::ArgsOf(x, weight, statistics, 2, 0), dy, x, weight, statistics,
                       accumulate, dx, dweight, dbias);
}

}  // namespace ckpt::trainer
