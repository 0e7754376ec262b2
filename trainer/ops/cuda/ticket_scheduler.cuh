// Hands the tiles of CUTLASS's grouped products out in the order in which blocks are free.
//
// CUTLASS's own scheduler of Hopper gives every n-th tile to a cluster of n. That is fair where
// tiles cost the same. A weight's gradient is a sum over its expert's rows, so a tile of an expert
// that was chosen often costs many times another's, and the clusters that have such tiles end late.
//
// A ticket is the number of a cluster's tile. The first block of a cluster draws the next one, and
// tells the others by leaving it where the ticket before points to. Which cluster computes a tile
// has no influence on its sums.
#ifndef CKPT_TRAINER_OPS_CUDA_TICKET_SCHEDULER_CUH_
#define CKPT_TRAINER_OPS_CUDA_TICKET_SCHEDULER_CUH_

#include <cstdint>
#include <cute/tensor.hpp>
#include <cutlass/cutlass.h>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/tile_scheduler.hpp>

namespace ckpt::trainer::cuda {

// A list of problems whose tiles are handed out.
template <typename Shape>
struct TicketedProblems : cutlass::gemm::GroupProblemShape<Shape> {};

// Few tiles wait for a cluster that is not ready, so that another can take them.
inline constexpr int kTicketStages = 4;

template <typename Problems, typename Cluster>
class TicketScheduler
    : public cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90Group<Problems,
                                                                             kTicketStages> {
  using Base =
      cutlass::gemm::kernel::detail::PersistentTileSchedulerSm90Group<Problems, kTicketStages>;

 public:
  // `tickets`: how many were drawn, then for each ticket the next one of its cluster, or 0. All are
  // 0 at the start.
  struct Arguments : Base::Arguments {
    std::uint32_t* tickets = nullptr;
  };
  struct Params : Base::Params {
    std::uint32_t* tickets = nullptr;
  };

  template <typename Tile>
  static Params to_underlying_arguments(Problems problems, Tile tile, Cluster cluster,
                                        const cutlass::KernelHardwareInfo& hardware,
                                        const Arguments& arguments, void* workspace = nullptr,
                                        std::uint32_t epilogue_subtile = 1,
                                        std::uint32_t k_alignment = 1) {
    Params params;
    static_cast<typename Base::Params&>(params) = Base::to_underlying_arguments(
        problems, tile, cluster, hardware, arguments, workspace, epilogue_subtile, k_alignment);
    params.tickets = arguments.tickets;
    return params;
  }

  CUTLASS_DEVICE TicketScheduler(const Params& params, typename Base::SchedulerResponse* response)
      : Base(params, response), tickets_(params.tickets) {
    const std::uint32_t block = blockIdx.x * gridDim.y + blockIdx.y;
    ticket_ = block / kClusterBlocks;
    rank_ = block % kClusterBlocks;
  }

  // REQUIRES: the tile before exists. By one warp.
  template <typename Pipeline, typename State>
  CUTLASS_DEVICE auto advance_to_next_work(Pipeline& pipeline, State state) {
    pipeline.producer_acquire(state);  // before a ticket is drawn: another may be free earlier
    ticket_ = Next();
    const auto tile =
        Base::get_current_work_for_linear_idx(std::uint64_t{ticket_} * kClusterBlocks + rank_);
    if (cute::elect_one_sync()) {
      Base::response_ptr_[state.index()] = tile;
      cutlass::arch::fence_view_async_shared();
      pipeline.producer_commit(state);
    }
    return cute::make_tuple(tile, true);
  }

 private:
  static constexpr std::uint32_t kClusterBlocks = cute::size(Cluster{});

  CUTLASS_DEVICE std::uint32_t Next() {
    std::uint32_t next = 0;
    if (cutlass::canonical_lane_idx() == 0) {
      volatile std::uint32_t* const following = tickets_ + 1 + ticket_;
      if (rank_ == 0) {
        const std::uint32_t clusters =
            gridDim.x * gridDim.y / kClusterBlocks;  // began with one each
        next = clusters + atomicAdd(tickets_, 1U);
        *following = next;
      } else {
        while ((next = *following) == 0) {
        }
      }
    }
    return __shfl_sync(0xFFFFFFFFU, next, 0);
  }

  std::uint32_t* tickets_;
  std::uint32_t ticket_ = 0;
  std::uint32_t rank_ = 0;
};

}  // namespace ckpt::trainer::cuda

template <typename Tile, typename Cluster, std::uint32_t kStages, typename Shape>
struct cutlass::gemm::kernel::detail::TileSchedulerSelector<
    cutlass::gemm::GroupScheduler, cutlass::arch::Sm90, Tile, Cluster, kStages,
    ckpt::trainer::cuda::TicketedProblems<Shape>> {
  using Scheduler =
      ckpt::trainer::cuda::TicketScheduler<ckpt::trainer::cuda::TicketedProblems<Shape>, Cluster>;
};

#endif  // CKPT_TRAINER_OPS_CUDA_TICKET_SCHEDULER_CUH_
