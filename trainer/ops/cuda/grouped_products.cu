// The only file that includes CUTLASS, because its kernels take a minute to compile.
//
// A product of CUTLASS's grouped kernels is D [m, n] (=, +=) A [m, k] · B [n, k]ᵀ. The sizes,
// addresses and row lengths of all experts are in device memory. Beyond an expert's rows, loads
// give zeros and stores do nothing, so experts need no padding.
#include "trainer/ops/cuda/grouped_products.h"

#include <cstddef>
#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <type_traits>

#include <cuda_runtime.h>

#include "core/base/check.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/cuda/ticket_scheduler.cuh"

namespace ckpt::trainer::cuda {
namespace {

using Element = cutlass::bfloat16_t;
using Sizes = cute::Shape<int, int, int>;
using Problems = cutlass::gemm::GroupProblemShape<Sizes>;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;

// Two groups of four warps take turns: one multiplies while the other stores its tile. Two blocks
// with neighbouring tiles of rows share the loads of B.
using Tile = cute::Shape<cute::_128, cute::_128, cute::_64>;
using Cluster = cute::Shape<cute::_2, cute::_1, cute::_1>;

// C: the type of D if the kernel can add to it, void if it only stores. Layouts are of A [m, k] and
// of B [k, n].
template <typename LayoutA, typename LayoutB, typename C, typename D, typename List = Problems>
struct Kernel {
  static constexpr bool kHasTickets = !std::is_same_v<List, Problems>;
  static constexpr int kAlignment = 16 / sizeof(Element);
  static constexpr int kResultAlignment = 16 / sizeof(D);

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, C, RowMajor*, kResultAlignment,
      D, RowMajor*, kResultAlignment,
      cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA*, kAlignment, Element,
      LayoutB*, kAlignment, float, Tile, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong>::CollectiveOp;
  using Universal = cutlass::gemm::kernel::GemmUniversal<List, Mainloop, Epilogue>;
  using Launcher = cutlass::gemm::device::GemmUniversalAdapter<Universal>;
};

using ForwardKernel = Kernel<RowMajor, ColumnMajor, void, Element>;
using DataKernel = Kernel<RowMajor, RowMajor, void, Element>;
template <typename D>
using WeightKernel = Kernel<ColumnMajor, RowMajor, D, D, TicketedProblems<Sizes>>;

// An array that holds the operands of all experts. That of an expert begins at
// data + expert · of_expert + (the expert's first row) · of_row, counted in bytes, and its rows in
// memory are `length` elements apart.
struct Operand {
  std::byte* data = nullptr;
  std::int64_t of_expert = 0;
  std::int64_t of_row = 0;
  std::int64_t length = 0;

  // [R, length]
  static Operand Rows(const Tensor& rows) {
    const std::int64_t length = rows.dim(1);
    return {.data = rows.bytes(), .of_row = length * Bytes(rows.dtype), .length = length};
  }
  // [E, …, length]
  static Operand Matrices(const Tensor& matrices) {
    const std::int64_t length = matrices.dim(2);
    return {.data = matrices.bytes(),
            .of_expert = matrices.dim(1) * length * Bytes(matrices.dtype),
            .length = length};
  }

 private:
  static std::int64_t Bytes(DType dtype) { return static_cast<std::int64_t>(ElementBytes(dtype)); }
};

constexpr int kRowsOfExpert = -1;

// What all experts' products have in common. A size may be kRowsOfExpert.
struct ExpertProducts {
  int m = 0;
  int n = 0;
  int k = 0;
  Operand a;
  Operand b;
  Operand d;
};

// One entry for each expert, the one with most rows first.
struct Lists {
  struct OfOperand {
    std::byte** data;
    std::int64_t* length;  // a stride of CUTLASS, whose other elements are constants
  };
  Sizes* sizes;
  OfOperand a;
  OfOperand b;
  OfOperand d;

  static std::uint64_t Bytes(std::int64_t experts) { return kArrays * ArrayBytes(experts); }
  Lists(std::byte* memory, std::int64_t experts) {
    const auto take = [&](auto*& array) {
      array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(memory);
      memory += ArrayBytes(experts);
    };
    take(sizes);
    for (OfOperand* operand : {&a, &b, &d}) {
      take(operand->data);
      take(operand->length);
    }
  }

 private:
  static constexpr std::uint64_t kArrays = 7;
  static std::uint64_t ArrayBytes(std::int64_t experts) {
    return AlignedBytes(static_cast<std::uint64_t>(experts) * sizeof(*sizes));
  }
};

// The memory of a TicketScheduler; none for CUTLASS's own.
struct Tickets {
  std::uint32_t* data = nullptr;
  std::int64_t count = 0;
};

constexpr int kBlocksPerExpert = 8;

// How many experts have more rows. Long sums come first, so that what is left for the end is short.
__device__ int PlaceOf(int expert, int experts, const std::int32_t* offsets) {
  const auto rows_of = [&](int e) { return offsets[e + 1] - offsets[e]; };
  const std::int32_t rows = rows_of(expert);
  int place = 0;
  for (int first = 0; first < experts; first += kThreads) {
    const int other = first + static_cast<int>(threadIdx.x);
    const bool is_before =
        other < experts && (rows_of(other) > rows || (rows_of(other) == rows && other < expert));
    place += __syncthreads_count(is_before ? 1 : 0);
  }
  return place;
}

// An expert without rows gets a product of no size, which CUTLASS skips. Instead, the first
// `zero_packs` · 16 bytes of its D become 0. So do all tickets.
__global__ void __launch_bounds__(kThreads)
    ListProductsKernel(ExpertProducts products, const std::int32_t* offsets,
                       std::int64_t zero_packs, Lists lists, Tickets tickets) {
  AwaitEarlier();
  const int expert = static_cast<int>(blockIdx.y);
  const int place = PlaceOf(expert, static_cast<int>(gridDim.y), offsets);
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
  for (std::int64_t i = block * kThreads + threadIdx.x; i < tickets.count;
       i += static_cast<std::int64_t>(gridDim.x) * gridDim.y * kThreads) {
    tickets.data[i] = 0;
  }
  const std::int32_t first = offsets[expert];
  const std::int32_t rows = offsets[expert + 1] - first;
  const auto at = [&](const Operand& operand) {
    return operand.data + expert * operand.of_expert + first * operand.of_row;
  };
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    const auto size = [&](int of_all) { return of_all == kRowsOfExpert ? rows : of_all; };
    lists.sizes[place] =
        cute::make_shape(rows == 0 ? 0 : size(products.m), size(products.n), size(products.k));
    const auto list = [&](const Operand& operand, const Lists::OfOperand& to) {
      to.data[place] = at(operand);
      to.length[place] = operand.length;
    };
    list(products.a, lists.a);
    list(products.b, lists.b);
    list(products.d, lists.d);
  }
  if (rows != 0) return;
  auto* const d = reinterpret_cast<uint4*>(at(products.d));
  for (std::int64_t pack = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
       pack < zero_packs; pack += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    d[pack] = make_uint4(0, 0, 0, 0);
  }
}

// One for each tile of a cluster, if all experts have rows, and how many were drawn.
std::int64_t NumTickets(const ExpertProducts& products, std::int64_t experts) {
  const auto tiles = [](int size, int of_tile) { return (size + of_tile - 1) / of_tile; };
  constexpr int kRows = cute::size<0>(Tile{}) * cute::size<0>(Cluster{});
  constexpr int kColumns = cute::size<1>(Tile{}) * cute::size<1>(Cluster{});
  return 1 + experts * tiles(products.m, kRows) * tiles(products.n, kColumns);
}

template <typename Kernel>
void Multiply(CudaQueue& queue, const ExpertProducts& products, const Tensor& offsets, bool adds,
              std::int64_t zero_packs) {
  using Launcher = typename Kernel::Launcher;
  using Universal = typename Kernel::Universal;
  using StrideA = typename Universal::InternalStrideA;
  using StrideB = typename Universal::InternalStrideB;
  using StrideD = typename Universal::InternalStrideD;
  static_assert(sizeof(StrideA) == sizeof(std::int64_t) && sizeof(StrideB) == sizeof(std::int64_t));
  static_assert(sizeof(StrideD) == sizeof(std::int64_t));

  const std::int64_t experts = offsets.num_elems() - 1;
  typename Launcher::Arguments arguments{};
  arguments.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
  (void)cudaGetDevice(&arguments.hw_info.device_id);
  (void)cudaDeviceGetAttribute(&arguments.hw_info.sm_count, cudaDevAttrMultiProcessorCount,
                               arguments.hw_info.device_id);
  const std::uint64_t list_bytes = Lists::Bytes(experts);
  Tickets tickets{.count = Kernel::kHasTickets ? NumTickets(products, experts) : 0};
  const std::uint64_t ticket_bytes =
      AlignedBytes(static_cast<std::uint64_t>(tickets.count) * sizeof(*tickets.data));
  std::byte* const scratch =
      queue.Scratch(list_bytes + ticket_bytes + Launcher::get_workspace_size(arguments));
  if (scratch == nullptr) return;
  const Lists lists(scratch, experts);
  tickets.data = reinterpret_cast<std::uint32_t*>(scratch + list_bytes);

  Launch(
      queue.stream(), ListProductsKernel,
      {dim3(zero_packs == 0 ? 1 : kBlocksPerExpert, static_cast<unsigned int>(experts)), kThreads},
      products, offsets.as<const std::int32_t>(), zero_packs, lists, tickets);

  const auto list = [&](const Lists::OfOperand& from, auto& data, auto& strides) {
    data = static_cast<std::remove_reference_t<decltype(data)>>(static_cast<void*>(from.data));
    strides =
        static_cast<std::remove_reference_t<decltype(strides)>>(static_cast<void*>(from.length));
  };
  arguments.problem_shape.num_groups = static_cast<int>(experts);
  arguments.problem_shape.problem_shapes = lists.sizes;
  if constexpr (Kernel::kHasTickets) arguments.scheduler.tickets = tickets.data;
  list(lists.a, arguments.mainloop.ptr_A, arguments.mainloop.dA);
  list(lists.b, arguments.mainloop.ptr_B, arguments.mainloop.dB);
  list(lists.d, arguments.epilogue.ptr_C, arguments.epilogue.dC);
  list(lists.d, arguments.epilogue.ptr_D, arguments.epilogue.dD);
  arguments.epilogue.thread.alpha = 1;
  arguments.epilogue.thread.beta = adds ? 1 : 0;

  Launcher launcher;
  cutlass::Status status =
      launcher.initialize(arguments, scratch + list_bytes + ticket_bytes, queue.stream());
  if (status == cutlass::Status::kSuccess) status = launcher.run(queue.stream());
  if (status == cutlass::Status::kSuccess) return;
  queue.Fail(Error(ErrorKind::kSystem, "a grouped product failed on the GPU")
                 .Expected("CUTLASS to launch it")
                 .Actual(cutlass::cutlassGetStatusString(status)));
}

int SizeOf(const Tensor& tensor, int dim) { return static_cast<int>(tensor.dim(dim)); }

}  // namespace

bool GroupedProductsCover(const Tensor& wide, const Tensor& narrow, const Tensor& matrices) {
  constexpr bool kIsForHopper = CKPT_FOR_SM90A;  // other GPUs do not have the kernels' instructions
  return kIsForHopper && wide.dtype == DType::kBfloat16 &&
         FitsPacks(matrices.dim(1), {wide.data, matrices.data}) &&
         FitsPacks(matrices.dim(2), {narrow.data});
}

void GroupedForwardProducts(CudaQueue& queue, const Tensor& x, const Tensor& weights,
                            const Tensor& offsets, const Tensor& y) {
  Multiply<ForwardKernel>(queue,
                          {.m = kRowsOfExpert,
                           .n = SizeOf(weights, 1),
                           .k = SizeOf(weights, 2),
                           .a = Operand::Rows(x),
                           .b = Operand::Matrices(weights),
                           .d = Operand::Rows(y)},
                          offsets, false, 0);
}

void GroupedDataProducts(CudaQueue& queue, const Tensor& dy, const Tensor& weights,
                         const Tensor& offsets, const Tensor& dx) {
  Multiply<DataKernel>(queue,
                       {.m = kRowsOfExpert,
                        .n = SizeOf(weights, 2),
                        .k = SizeOf(weights, 1),
                        .a = Operand::Rows(dy),
                        .b = Operand::Matrices(weights),
                        .d = Operand::Rows(dx)},
                       offsets, false, 0);
}

void GroupedWeightProducts(CudaQueue& queue, const Tensor& dy, const Tensor& x,
                           const Tensor& offsets, const Gradient& dweights) {
  const Tensor& to = dweights.tensor;
  const ExpertProducts products = {.m = SizeOf(to, 1),
                                   .n = SizeOf(to, 2),
                                   .k = kRowsOfExpert,
                                   .a = Operand::Rows(dy),
                                   .b = Operand::Rows(x),
                                   .d = Operand::Matrices(to)};
  const std::int64_t zero_packs = dweights.adds() ? 0 : products.d.of_expert / 16;
  if (to.dtype == DType::kFloat32) {
    return Multiply<WeightKernel<float>>(queue, products, offsets, dweights.adds(), zero_packs);
  }
  CKPT_CHECK(to.dtype == DType::kBfloat16);
  Multiply<WeightKernel<Element>>(queue, products, offsets, dweights.adds(), zero_packs);
}

}  // namespace ckpt::trainer::cuda
