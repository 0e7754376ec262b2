// RMSNorm and LayerNorm over the last dim, with the formulas of the CPU's norm.cc.
//
// A row belongs to a group of threads, at most a block, and stays in registers: memory is read
// once. In the backward a group walks over many rows and keeps the sums of dw and db for its
// columns in registers too, so there a thread has as few columns as can be.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "trainer/ops/cuda/cuda_ops_impl.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/cuda/packs_ahead.cuh"

namespace ckpt::trainer {
namespace cuda {
namespace {

// Where the rows of x and of dx begin: one after the other, or in groups of heads in a projection.
struct RowsInOrder {
  [[nodiscard]] __device__ std::int64_t Begin(std::int64_t row, std::int64_t columns) const {
    return row * columns;
  }
};
struct RowsInGroups {
  std::int64_t first = 0;  // element
  std::int64_t rows_per_group = 0;
  std::int64_t group_elems = 0;

  [[nodiscard]] __device__ std::int64_t Begin(std::int64_t row, std::int64_t columns) const {
    return first + row / rows_per_group * group_elems + row % rows_per_group * columns;
  }
};

template <typename Places>
struct NormArgs {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  float eps = 0;
  Places places = {};

  // In x and dx, and in all other arrays.
  [[nodiscard]] __device__ std::int64_t PlacedBegin(std::int64_t row) const {
    return places.Begin(row, columns);
  }
  [[nodiscard]] __device__ std::int64_t Begin(std::int64_t row) const {
    return RowsInOrder().Begin(row, columns);
  }
};

// How a group of threads holds a row: thread `lane` has the packs lane, lane + kGroup, …
template <int kGroupThreads, int kPacksOfThread, int kPackElems>
struct RowForm {
  static constexpr int kGroup = kGroupThreads;  // whole warps, at most a block
  static constexpr int kPacks = kPacksOfThread;
  static constexpr int kWidth = kPackElems;
  static constexpr int kMostColumns = kGroup * kPacks * kWidth;

  // Calls `body(j, pack)` for the j-th pack of this thread.
  template <typename Body>
  static __device__ __forceinline__ void ForPacks(std::int64_t columns, const Body& body) {
    ForEachPlace([&](int j, std::int64_t pack) {
      if (Holds(columns, pack)) body(j, pack);
    });
  }
  // Also for those that a shorter row does not have.
  template <typename Body>
  static __device__ __forceinline__ void ForEachPlace(const Body& body) {
    const std::int64_t lane = threadIdx.x % kGroup;
#pragma unroll
    for (int j = 0; j < kPacks; ++j) body(j, lane + j * kGroup);
  }
  static __device__ __forceinline__ bool Holds(std::int64_t columns, std::int64_t pack) {
    return pack * kWidth < columns;
  }
};

// Calls `body(RowForm<…>{})` with the smallest form that holds a row. kSmallGroup threads have a
// row that one warp could have with four packs a thread.
template <int kWidth, int kSmallGroup, typename Body>
void DispatchRow(std::int64_t columns, const Body& body) {
  using Smallest = RowForm<kWarp, 1, kWidth>;
  using Small = RowForm<kSmallGroup, 4 * kWarp / kSmallGroup, kWidth>;
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
template <bool kCentered, bool kAdds, typename Form, typename T, typename Places>
__global__ void __launch_bounds__(kThreads)
    NormKernel(NormArgs<Places> args, const T* x, const T* delta, const T* weight, const T* bias,
               T* sum, T* y, float* statistics) {
  AwaitEarlier();
  constexpr int kWidth = Form::kWidth;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / Form::kGroup) +
                           threadIdx.x / Form::kGroup;
  if (row >= args.rows) return;  // for none or all threads of a block that is one group
  const T* const in = x + args.PlacedBegin(row);
  const auto size = static_cast<float>(args.columns);

  Pack<T, kWidth> packs[Form::kPacks];
  float mean = 0;
  float squares = 0;
  Form::ForPacks(args.columns, [&](int j, std::int64_t p) {
    packs[j] = LoadPack<kWidth>(in, p);
    if constexpr (kAdds) {
      const auto added = LoadPack<kWidth>(delta + args.Begin(row), p);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        packs[j].values[i] = Store<T>(Load(packs[j].values[i]) + Load(added.values[i]));
      }
      StorePack(sum + args.Begin(row), p, packs[j]);
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
    StorePack(y + args.Begin(row), p, result);
  });
}

// Adds up the groups of a block: partials of this block [columns] = Σ over its groups of `sums`.
// `shared`: room for the columns of one group after the other.
template <typename Form, int kBlockThreads>
__device__ void StoreBlockSums(std::int64_t columns, float (&sums)[Form::kPacks][Form::kWidth],
                               float* shared, float* partials) {
  constexpr int kGroups = kBlockThreads / Form::kGroup;
  float* const to = kGroups == 1 ? partials : shared + threadIdx.x / Form::kGroup * columns;
  Form::ForPacks(columns, [&](int j, std::int64_t p) {
#pragma unroll
    for (int i = 0; i < Form::kWidth; ++i) to[p * Form::kWidth + i] = sums[j][i];
  });
  if constexpr (kGroups > 1) {
    __syncthreads();
    for (std::int64_t column = threadIdx.x; column < columns; column += kBlockThreads) {
      float total = 0;
#pragma unroll
      for (int group = 0; group < kGroups; ++group) total += shared[group * columns + column];
      partials[column] = total;
    }
    __syncthreads();
  }
}

// How many threads the only block of a multiprocessor has in the backward: as many as have
// registers for their sums. One block leaves the fewest partial sums.
template <bool kCentered, typename Form, typename T>
constexpr int BackwardThreads() {
  if (Form::kPacks * Form::kWidth > 32) return kThreads;
  if (kCentered && Form::kPacks > 1) return 2 * kThreads;
  return !kCentered && Form::kPacks == 1 && sizeof(T) == 2 ? 4 * kThreads : 3 * kThreads;
}

// The packs of rows that a thread needs in the backward. Where shared memory holds two rows, the
// next is on its way while one is computed; where it does not, or packs are too small, they come
// from memory.
template <typename Form, int kBlockThreads, typename T, typename Places>
class RowReader {
 public:
  using PackType = Pack<T, Form::kWidth>;
  using Ahead = PacksAhead<T, Form::kWidth, 2 * Form::kPacks * 3, kBlockThreads>;
  static constexpr bool kIsAhead = Ahead::kWords > 0 && Ahead::kBytes <= 216 * 1024;
  static constexpr std::size_t kSharedBytes = kIsAhead ? Ahead::kBytes : 0;

  // kIn: x, kSlope: dy, kSum: dx, to which the gradient is added. No pack of a null array is asked
  // for.
  enum Array { kIn, kSlope, kSum };

  __device__ RowReader(const NormArgs<Places>& args, const T* x, const T* dy, const T* dx,
                       void* shared)
      : args_(args), x_(x), dy_(dy), dx_(dx), ahead_(shared) {}

  // Asks for the next row, after the last was used.
  __device__ __forceinline__ void Ask(std::int32_t row) {
    if constexpr (kIsAhead) {
      Form::ForEachPlace([&](int j, std::int64_t p) {
        const bool has = Has(row, p);
        ahead_.Ask(Slot<kIn>(j), RowOf<kIn>(row), p, has);
        ahead_.Ask(Slot<kSlope>(j), RowOf<kSlope>(row), p, has);
        if (dx_ != nullptr) ahead_.Ask(Slot<kSum>(j), RowOf<kSum>(row), p, has);
      });
      ahead_.EndBatch();
      stage_ = 1 - stage_;
    }
  }
  // Waits for this row; the next is on its way.
  __device__ __forceinline__ void Await() {
    if constexpr (kIsAhead) ahead_.template Await<1>();
  }
  // Waits for all that was asked for: rows behind the last are zeros that are on their way, too.
  __device__ __forceinline__ void AwaitAll() {
    if constexpr (kIsAhead) ahead_.template Await<0>();
  }
  // Whether there is such a row, and pack p in it.
  [[nodiscard]] __device__ __forceinline__ bool Has(std::int32_t row, std::int64_t p) const {
    return row < args_.rows && Form::Holds(args_.columns, p);
  }
  // The j-th pack of this thread, pack p of this row; 0 where there is none.
  template <Array kArray>
  [[nodiscard]] __device__ __forceinline__ PackType Get(std::int32_t row, int j,
                                                        std::int64_t p) const {
    if constexpr (kIsAhead) {
      return ahead_.Get(Slot<kArray>(j));
    } else {
      return Has(row, p) ? LoadPack<Form::kWidth>(RowOf<kArray>(row), p) : PackType();
    }
  }

 private:
  template <Array kArray>
  [[nodiscard]] __device__ __forceinline__ int Slot(int j) const {
    return (stage_ * Form::kPacks + j) * 3 + kArray;
  }
  template <Array kArray>
  [[nodiscard]] __device__ __forceinline__ const T* RowOf(std::int32_t row) const {
    if constexpr (kArray == kIn) return x_ + args_.PlacedBegin(row);
    if constexpr (kArray == kSlope) return dy_ + args_.Begin(row);
    return dx_ + args_.PlacedBegin(row);
  }

  const NormArgs<Places>& args_;
  const T* const x_;
  const T* const dy_;
  const T* const dx_;
  Ahead ahead_;
  int stage_ = 0;  // of two: of this row, and after Ask of the next
};

// Sums over the threads that have a row, of several values at once. They meet at a barrier of their
// own, so the groups of a block do not wait for each other. One barrier is enough, since two calls
// that follow each other use different memory. A kernel has one such object: two of one type would
// share theirs.
template <typename Form, int kBlockThreads, int kValues>
class RowSums {
 public:
  __device__ __forceinline__ void operator()(float (&values)[kValues]) {
#pragma unroll
    for (float& value : values) value = WarpSum(value);
    if constexpr (Form::kGroup > kWarp) {
      constexpr int kWarps = Form::kGroup / kWarp;
      constexpr int kGroups = kBlockThreads / Form::kGroup;
      __shared__ float sums[2][kGroups][kValues][kWarps];
      const unsigned int group = threadIdx.x / Form::kGroup;
      auto& mine = sums[place_][group];
      if (threadIdx.x % kWarp == 0) {
#pragma unroll
        for (int i = 0; i < kValues; ++i) mine[i][threadIdx.x / kWarp % kWarps] = values[i];
      }
      // Barrier 0 is that of the block.
      asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "n"(Form::kGroup) : "memory");
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        values[i] = 0;
#pragma unroll
        for (float sum : mine[i]) values[i] += sum;
      }
      place_ = 1 - place_;
    }
  }

 private:
  int place_ = 0;
};

// dx (=, +=) rstd·(g - mean(g) - x̂·mean(g·x̂)), where mean(g) counts only if kCentered. Partials:
// [gridDim.x, columns] of dw, and of db after them.
template <bool kCentered, typename Form, int kBlockThreads, typename T, typename Places>
__global__ void __launch_bounds__(kBlockThreads)
    NormBackwardKernel(NormArgs<Places> args, const T* dy, const T* x, const T* weight,
                       const float* statistics, bool accumulate, T* dx, float* partials) {
  AwaitEarlier();
  constexpr int kGroups = kBlockThreads / Form::kGroup;
  constexpr int kWidth = Form::kWidth;
  using Reader = RowReader<Form, kBlockThreads, T, Places>;
  using Packs = typename Reader::PackType[Form::kPacks];
  extern __shared__ __align__(16) std::byte shared[];  // rows that are on their way, later sums
  const float per_column = 1 / static_cast<float>(args.columns);
  float dw[Form::kPacks][kWidth] = {};
  float db[Form::kPacks][kWidth] = {};
  Packs weights = {};
  Form::ForPacks(args.columns,
                 [&](int j, std::int64_t p) { weights[j] = LoadPack<kWidth>(weight, p); });
  Reader reader(args, x, dy, accumulate ? dx : nullptr, shared);
  RowSums<Form, kBlockThreads, kCentered ? 2 : 1> add_up;
  // Of the next row.
  float next_mean = 0;
  float next_rstd = 0;
  const auto ask = [&](std::int32_t row) {
    reader.Ask(row);
    if (row >= args.rows) return;
    if constexpr (kCentered) next_mean = statistics[2 * row];
    next_rstd = statistics[kCentered ? 2 * row + 1 : row];
  };

  // The groups of a block have rows that are far apart, so all blocks have some of the last ones.
  // All make as many turns; behind the last row they add zeros.
  const auto rows_of_grid = static_cast<std::int32_t>(gridDim.x);
  const auto step = rows_of_grid * kGroups;
  auto first = static_cast<std::int32_t>(blockIdx.x);  // of this block's turn
  auto row = first + static_cast<std::int32_t>(threadIdx.x / Form::kGroup) * rows_of_grid;
  ask(row);
  for (; first < args.rows; first += step, row += step) {
    const float mean = next_mean;
    const float rstd = next_rstd;
    ask(row + step);
    reader.Await();
    Packs in;
    Packs slope;
    float sums[kCentered ? 2 : 1] = {};  // of g·x̂, and of rstd·g
    Form::ForEachPlace([&](int j, std::int64_t p) {
      in[j] = reader.template Get<Reader::kIn>(row, j, p);
      slope[j] = reader.template Get<Reader::kSlope>(row, j, p);
      float w[kWidth];
      float d[kWidth];
      float value[kWidth];
      Unpack(weights[j], w);
      Unpack(slope[j], d);
      Unpack(in[j], value);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float scaled = d[i] * rstd;
        const float g = w[i] * scaled;
        const float centered = value[i] - mean;
        sums[0] += g * centered;
        dw[j][i] += scaled * centered;
        if constexpr (kCentered) {
          sums[1] += g;
          db[j][i] += d[i];
        }
      }
    });
    add_up(sums);
    const float mean_g = kCentered ? sums[kCentered] * per_column : 0;
    const float scale = rstd * rstd * (sums[0] * per_column);
    T* const to = dx + args.PlacedBegin(row);
    Form::ForEachPlace([&](int j, std::int64_t p) {
      float w[kWidth];
      float d[kWidth];
      float value[kWidth];
      float result[kWidth] = {};
      Unpack(weights[j], w);
      Unpack(slope[j], d);
      Unpack(in[j], value);
      if (accumulate) Unpack(reader.template Get<Reader::kSum>(row, j, p), result);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        result[i] += w[i] * (d[i] * rstd);
        result[i] -= scale * (value[i] - mean) + mean_g;
      }
      if (reader.Has(row, p)) StorePack(to, p, Packed<T>(result));
    });
  }
  auto* const block_sums = reinterpret_cast<float*>(shared);  // [kGroups, columns]
  reader.AwaitAll();
  __syncthreads();
  float* const mine = partials + args.Begin(blockIdx.x);
  StoreBlockSums<Form, kBlockThreads>(args.columns, dw, block_sums, mine);
  if constexpr (kCentered) {
    StoreBlockSums<Form, kBlockThreads>(args.columns, db, block_sums, mine + args.Begin(gridDim.x));
  }
}

NormArgs<RowsInOrder> ArgsOf(const Tensor& x, const Tensor& weight, const Tensor& statistics,
                             std::int64_t num_statistics, double eps) {
  const std::int64_t columns = weight.num_elems();
  CKPT_CHECK(columns > 0 && x.ndim > 0 && x.dim(x.ndim - 1) == columns);
  const std::int64_t rows = x.num_elems() / columns;
  CKPT_CHECK(weight.dtype == x.dtype && statistics.dtype == DType::kFloat32);
  CKPT_CHECK(statistics.num_elems() == rows * num_statistics);
  return {rows, columns, static_cast<float>(eps)};
}

// The rows of queries or keys in a projection.
NormArgs<RowsInGroups> HeadsOf(const QkvForm& form, bool is_key, const Tensor& qkv,
                               const Tensor& rstd) {
  const auto& [num_heads, num_kv_heads, head_dim] = form.shape;
  CKPT_CHECK(num_kv_heads > 0 && num_heads % num_kv_heads == 0);
  const std::int64_t queries = num_heads / num_kv_heads;
  const std::int64_t group_elems = (queries + 2) * head_dim;
  const std::int64_t rows_per_group = is_key ? 1 : queries;
  const Tensor& weight = is_key ? form.k_norm : form.q_norm;
  CKPT_CHECK(weight.num_elems() == head_dim && weight.dtype == qkv.dtype);
  const std::int64_t rows = qkv.num_elems() / group_elems * rows_per_group;
  CKPT_CHECK(rstd.dtype == DType::kFloat32 && rstd.num_elems() == rows);
  return {rows, head_dim, static_cast<float>(form.norm_eps),
          RowsInGroups{.first = is_key ? queries * head_dim : 0,
                       .rows_per_group = rows_per_group,
                       .group_elems = group_elems}};
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

template <bool kCentered, bool kAdds, typename Places>
void Forward(Queue& queue, const NormArgs<Places>& args, const ForwardOperands& of) {
  CKPT_CHECK(of.x.dtype == of.y.dtype && of.y.num_elems() == args.rows * args.columns);
  if (args.rows == 0) return;
  RunOnCuda(queue, [&](CudaQueue& on) {
    Dispatch(of.x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchWidth(
          args.columns,
          {of.x.data, of.delta.data, of.weight.data, of.bias.data, of.sum.data, of.y.data},
          [&](auto width) {
            DispatchRow<decltype(width)::kWidth, kWarp>(args.columns, [&](auto form) {
              using Form = decltype(form);
              Launch(on.stream(), NormKernel<kCentered, kAdds, Form, T, Places>,
                     {Blocks(args.rows, kThreads / Form::kGroup), kThreads}, args,
                     of.x.as<const T>(), of.delta.as<const T>(), of.weight.as<const T>(),
                     of.bias.as<const T>(), of.sum.as<T>(), of.y.as<T>(),
                     of.statistics.as<float>());
            });
          });
    });
  });
}

template <bool kCentered, typename Places>
void Backward(Queue& queue, const NormArgs<Places>& args, const Tensor& dy, const Tensor& x,
              const Tensor& weight, const Tensor& statistics, bool accumulate, const Tensor& dx,
              const Gradient& dweight, const Gradient& dbias) {
  CKPT_CHECK(x.dtype == dy.dtype && dy.num_elems() == args.rows * args.columns);
  CKPT_CHECK(x.dtype == dx.dtype && x.num_elems() == dx.num_elems());
  CKPT_CHECK(args.rows <= std::numeric_limits<std::int32_t>::max() / 2);  // a turn may end after it
  RunOnCuda(queue, [&](CudaQueue& on) {
    Dispatch(x.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      DispatchWidth(args.columns, {dy.data, x.data, weight.data, dx.data}, [&](auto width) {
        DispatchRow<decltype(width)::kWidth, 4 * kWarp>(args.columns, [&](auto form) {
          using Form = decltype(form);
          constexpr int kBlockThreads = BackwardThreads<kCentered, Form, T>();
          constexpr int kGroups = kBlockThreads / Form::kGroup;
          const std::size_t row_bytes = static_cast<std::size_t>(args.columns) * sizeof(float);
          auto* const partials = reinterpret_cast<float*>(
              on.Scratch((kCentered ? 2 : 1) * kMultiprocessors * row_bytes));
          if (partials == nullptr) return;
          const std::size_t shared_bytes =
              std::max(kGroups == 1 ? 0 : kGroups * row_bytes,
                       RowReader<Form, kBlockThreads, T, Places>::kSharedBytes);
          Launch(on.stream(), NormBackwardKernel<kCentered, Form, kBlockThreads, T, Places>,
                 {kMultiprocessors, kBlockThreads, shared_bytes}, args, dy.as<const T>(),
                 x.as<const T>(), weight.as<const T>(), statistics.as<const float>(), accumulate,
                 dx.as<T>(), partials);
          WriteColumnSums(on.stream(), partials, kMultiprocessors, {dweight, dbias});
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
