// Stores SwiGLU of a product at the end of CUTLASS's pingpong kernel, beside the product itself.
//
// The columns of the product are F of gate, then F of up. A block computes tiles in pairs
// (PairScheduler): gate columns by one group of warps, then the up columns with the same numbers by
// the other. The epilogue has shared memory for a whole tile, a part for each of its steps. So when
// the second group begins a step, the part still has the gate values that were stored from there, in
// the very places for which its threads have up values. It takes them before it leaves its own. The
// kernel lets the groups' epilogues run one after the other, each after all of the earlier one's
// stores have read the shared memory, so neither can disturb the other.
#ifndef CKPT_TRAINER_OPS_CUDA_SWIGLU_STORE_CUH_
#define CKPT_TRAINER_OPS_CUDA_SWIGLU_STORE_CUH_

#include <cstddef>
#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/sm90_visitor_tma_warpspecialized.hpp>
#include <cutlass/numeric_conversion.h>

#include "trainer/ops/cuda/swiglu.cuh"

namespace ckpt::trainer::cuda {

// Thread i of four gets word i of each, in the order of the threads.
__device__ __forceinline__ void TransposeAmongFour(std::uint32_t (&words)[4]) {
  const auto exchange = [&](unsigned int distance, std::uint32_t& lower, std::uint32_t& upper) {
    const bool is_upper = (threadIdx.x & distance) != 0;
    const std::uint32_t other =
        __shfl_xor_sync(0xFFFFFFFFU, is_upper ? lower : upper, static_cast<int>(distance));
    (is_upper ? lower : upper) = other;
  };
  exchange(1, words[0], words[1]);
  exchange(1, words[2], words[3]);
  exchange(2, words[0], words[2]);
  exchange(2, words[1], words[3]);
}

// Callbacks of an epilogue that CUTLASS calls.
template <typename Tile>
struct SwiGluStore {
  using Element = cutlass::bfloat16_t;

  struct SharedStorage {};
  struct Arguments {
    const std::int32_t* first_rows = nullptr;  // of the problems
    const float* row_weights = nullptr;        // [R]; null: 1
    Element* activated = nullptr;              // [R, F]
  };
  using Params = Arguments;

  template <typename Problem>
  static constexpr Params to_underlying_arguments(const Problem& /*problem*/,
                                                  const Arguments& arguments, void* /*workspace*/) {
    return arguments;
  }
  template <typename Problem>
  static bool can_implement(const Problem& /*problem*/, const Arguments& /*arguments*/) {
    return true;
  }
  template <typename Problem>
  static std::size_t get_workspace_size(const Problem& /*problem*/,
                                        const Arguments& /*arguments*/) {
    return 0;
  }
  template <typename Problem>
  static cutlass::Status initialize_workspace(const Problem& /*problem*/,
                                              const Arguments& /*arguments*/, void* /*workspace*/,
                                              cudaStream_t /*stream*/,
                                              cutlass::CudaHostAdapter* /*adapter*/ = nullptr) {
    return cutlass::Status::kSuccess;
  }

  CUTLASS_HOST_DEVICE SwiGluStore() {}
  CUTLASS_HOST_DEVICE SwiGluStore(const Params& given, const SharedStorage& /*storage*/)
      : params(&given) {}

  CUTLASS_DEVICE bool is_producer_load_needed() const { return false; }
  CUTLASS_DEVICE bool is_C_load_needed() const { return false; }
  template <typename... Args>
  CUTLASS_DEVICE auto get_producer_load_callbacks(
      const cutlass::epilogue::fusion::ProducerLoadArgs<Args...>& /*args*/) {
    return cutlass::epilogue::fusion::EmptyProducerLoadCallbacks{};
  }

  // The rows and columns of a step. A thread holds 16 elements of it: in each of four blocks of 8
  // columns, two neighbours of row `lane / 4` of its warp's 16, then two of the eighth row after.
  static constexpr int kStepRows = 64;
  static constexpr int kStepColumns = 32;
  static constexpr int kElements = 16;
  static constexpr int kTileRows = cute::size<0>(Tile{});
  static constexpr int kTileColumns = cute::size<1>(Tile{});
  static constexpr int kRowSteps = kTileRows / kStepRows;
  static constexpr int kSteps = kRowSteps * (kTileColumns / kStepColumns);

  // `Load` reads from shared memory what the epilogue stored there, into a fragment of `Layout`.
  template <typename Load, typename Layout>
  struct Callbacks : cutlass::epilogue::fusion::EmptyConsumerStoreCallbacks {
    CUTLASS_DEVICE Callbacks(bool has_up, int rows_left, const float* row_weights, Element* to,
                             std::int64_t columns, int thread)
        : has_up_(has_up),
          rows_left_(rows_left),
          row_weights_(row_weights),
          to_(to),
          columns_(columns),
          thread_(thread) {}

    CUTLASS_DEVICE void begin() {
      CUTLASS_PRAGMA_UNROLL
      for (int i = 0; i < kRowSteps; ++i) {
        CUTLASS_PRAGMA_UNROLL
        for (int half = 0; half < 2; ++half) {
          const bool reads = has_up_ && row_weights_ != nullptr && IsWithin(i, half);
          weights_[i][half] = reads ? __ldg(row_weights_ + RowOf(i, half)) : 1;
        }
      }
    }

    template <typename Accumulator, int kSize>
    CUTLASS_DEVICE auto visit(const cutlass::Array<Accumulator, kSize>& sums, int /*fragment*/,
                              int /*row_step*/, int /*column_step*/) {
      static_assert(kSize == kElements);
      return cutlass::NumericArrayConverter<Element, Accumulator, kSize>{}(sums);
    }

    template <typename Shared, typename Synchronize, typename Results>
    CUTLASS_DEVICE void reduce(Shared&& shared, const Synchronize& /*synchronize*/, int row_step,
                               int column_step, bool /*is_last*/, Results results) {
      if (!has_up_) return;
      const auto load = Load{}.get_slice(thread_);
      auto gates = cute::make_tensor<Element>(Layout{});
      cute::copy(Load{}, load.partition_S(shared), load.retile_D(gates));
      const auto gate = cute::recast<cutlass::Array<Element, kElements>>(gates)(0);
      const auto up = results(0);
      CUTLASS_PRAGMA_UNROLL
      for (int half = 0; half < 2; ++half) {
        std::uint32_t words[4];
        CUTLASS_PRAGMA_UNROLL
        for (int block = 0; block < 4; ++block) {
          cutlass::Array<float, 2> pair;
          CUTLASS_PRAGMA_UNROLL
          for (int i = 0; i < 2; ++i) {
            const int at = 4 * block + 2 * half + i;
            pair[i] = SwiGluOf(static_cast<float>(gate[at]), static_cast<float>(up[at])) *
                      weights_[row_step][half];
          }
          const auto rounded = cutlass::NumericArrayConverter<Element, float, 2>{}(pair);
          words[block] = reinterpret_cast<const std::uint32_t&>(rounded);
        }
        TransposeAmongFour(words);
        if (!IsWithin(row_step, half)) continue;
        *reinterpret_cast<uint4*>(to_ + RowOf(row_step, half) * columns_ +
                                  column_step * kStepColumns) =
            make_uint4(words[0], words[1], words[2], words[3]);
      }
    }

   private:
    CUTLASS_DEVICE static int RowOf(int row_step, int half) {
      return row_step * kStepRows + half * 8;
    }
    CUTLASS_DEVICE bool IsWithin(int row_step, int half) const {
      return RowOf(row_step, half) < rows_left_;
    }

    bool has_up_;
    int rows_left_;             // of the problem, from the thread's first row on
    const float* row_weights_;  // from that row on
    Element* to_;               // where the thread stores in its first step
    std::int64_t columns_;
    int thread_;
    float weights_[kRowSteps][2];
  };

  template <bool kReferenceSource, typename... Args>
  CUTLASS_DEVICE auto get_consumer_store_callbacks(
      const cutlass::epilogue::fusion::ConsumerStoreArgs<Args...>& args) {
    static_assert(cute::size<0>(decltype(args.epi_tile){}) == kStepRows);
    static_assert(cute::size<1>(decltype(args.epi_tile){}) == kStepColumns);
    static_assert(kReferenceSource);
    using Load = decltype(cute::make_tiled_copy_S(
        cute::Copy_Atom<cute::SM75_U32x4_LDSM_N, Element>{}, args.tiled_copy));
    using Layout = cute::remove_cvref_t<decltype(args.tCrC.layout())>;
    const auto [rows, columns, depth, batch] = args.problem_shape_mnkl;
    const auto [m, n, k, problem] = args.tile_coord_mnkl;
    const int half_columns = columns / 2;
    const int column = n * kTileColumns - half_columns;  // negative: of gate
    const int lane = args.thread_idx % 32;
    const int row = m * kTileRows + args.thread_idx / 32 * 16 + lane / 4;
    const std::int64_t row_of_all = std::int64_t{params->first_rows[problem]} + row;
    return Callbacks<Load, Layout>(
        column >= 0, rows - row,
        params->row_weights == nullptr ? nullptr : params->row_weights + row_of_all,
        params->activated + row_of_all * half_columns + column + lane % 4 * 8, half_columns,
        args.thread_idx);
  }

  const Params* params = nullptr;
};

// An epilogue with a part of shared memory for each of its steps.
template <int kSteps, typename Epilogue>
struct WithPartOfEachStep;
template <int kSteps, int kLoads, int kStores, int kFragment, bool kReuses, bool kDelays,
          int kGroups, typename... Rest>
struct WithPartOfEachStep<kSteps, cutlass::epilogue::collective::CollectiveEpilogue<
                                      cutlass::epilogue::Sm90PtrArrayTmaWarpSpecialized<
                                          kLoads, kStores, kFragment, kReuses, kDelays, kGroups>,
                                      Rest...>> {
  using Type = cutlass::epilogue::collective::CollectiveEpilogue<
      cutlass::epilogue::Sm90PtrArrayTmaWarpSpecialized<kLoads, kSteps, kFragment, kReuses, kDelays,
                                                        kGroups>,
      Rest...>;
};

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_SWIGLU_STORE_CUH_
