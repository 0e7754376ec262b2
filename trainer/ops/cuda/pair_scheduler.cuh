// Hands the tiles of CUTLASS's grouped products out in pairs of one block: a tile of the first half
// of the columns, then the one of the second half with the same rows and the same place in its half.
//
// In a pingpong kernel two groups of warps take turns, so one gets the first tiles of all pairs and
// the other the second ones.
#ifndef CKPT_TRAINER_OPS_CUDA_PAIR_SCHEDULER_CUH_
#define CKPT_TRAINER_OPS_CUDA_PAIR_SCHEDULER_CUH_

#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>

namespace ckpt::trainer::cuda {

// A list of problems whose tiles are handed out in pairs. All have as many columns, of which half
// are full tiles.
template <typename Shape>
struct PairedProblems : cutlass::gemm::GroupProblemShape<Shape> {};

template <typename Problems, std::uint32_t kStages>
class PairScheduler
    : public cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90Group<Problems, kStages> {
  using Base = cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90Group<Problems, kStages>;

 public:
  struct Arguments : Base::Arguments {
    int tiles_of_half = 0;  // along the columns
  };
  struct Params : Base::Params {
    int tiles_of_half = 0;
  };

  // The base counts pairs: to it, a tile is as wide as two.
  template <typename Tile, typename Cluster>
  static Params to_underlying_arguments(Problems problems, Tile tile, Cluster cluster,
                                        const cutlass::KernelHardwareInfo& hardware,
                                        const Arguments& arguments, void* workspace = nullptr,
                                        std::uint32_t epilogue_subtile = 1,
                                        std::uint32_t k_alignment = 1) {
    const auto pair = cute::make_shape(cute::size<0>(tile), cute::size<1>(tile) * cute::_2{},
                                       cute::size<2>(tile));
    Params params;
    static_cast<typename Base::Params&>(params) = Base::to_underlying_arguments(
        problems, pair, cluster, hardware, arguments, workspace, epilogue_subtile, k_alignment);
    params.tiles_of_half = arguments.tiles_of_half;
    return params;
  }

  CUTLASS_DEVICE PairScheduler(const Params& params, typename Base::SchedulerResponse* response)
      : Base(params, response),
        tiles_of_half_(params.tiles_of_half),
        pair_(blockIdx.x * gridDim.y + blockIdx.y) {}

  template <typename Cluster>
  CUTLASS_DEVICE auto initial_work_tile_info(Cluster) {
    tile_ = Base::get_current_work_for_linear_idx(pair_);
    return tile_;
  }

  // REQUIRES: the tile before exists. By one warp.
  template <typename Pipeline, typename State>
  CUTLASS_DEVICE auto advance_to_next_work(Pipeline& pipeline, State state) {
    if (is_second_) {
      pair_ += gridDim.x * gridDim.y;
      tile_ = Base::get_current_work_for_linear_idx(pair_);
    } else {
      tile_.N_idx += tiles_of_half_;
    }
    is_second_ = !is_second_;
    pipeline.producer_acquire(state);
    if (cute::elect_one_sync()) {
      Base::response_ptr_[state.index()] = tile_;
      cutlass::arch::fence_view_async_shared();
      pipeline.producer_commit(state);
    }
    return cute::make_tuple(tile_, true);
  }

 private:
  int tiles_of_half_;
  std::uint64_t pair_;
  typename Base::WorkTileInfo tile_;
  bool is_second_ = false;
};

}  // namespace ckpt::trainer::cuda

template <typename Tile, typename Cluster, std::uint32_t kStages, typename Shape>
struct cutlass::gemm::kernel::detail::TileSchedulerSelector<
    cutlass::gemm::GroupScheduler, cutlass::arch::Sm90, Tile, Cluster, kStages,
    ckpt::trainer::cuda::PairedProblems<Shape>> {
  using Scheduler =
      ckpt::trainer::cuda::PairScheduler<ckpt::trainer::cuda::PairedProblems<Shape>, kStages>;
};

#endif  // CKPT_TRAINER_OPS_CUDA_PAIR_SCHEDULER_CUH_
