// The ranks of a run: threads of this process, or the processes that a launcher started.
#ifndef CKPT_TRAINER_COMM_WORLD_H_
#define CKPT_TRAINER_COMM_WORLD_H_

#include <chrono>
#include <functional>

#include "core/base/status.h"
#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

// As long as other trainers wait (Megatron-LM, PyTorch with NCCL).
inline constexpr std::chrono::minutes kDefaultTimeout{10};

struct WorldOptions {
  // Number of ranks; 0 means as many as the launcher started processes.
  int num_ranks = 0;
  // Ranks call their groups from threads of their own, such as those of queues.
  bool from_threads = false;
  // Of every call of ranks that are processes (MpiOptions), and of those of threads that wait in a
  // device (RunRanks).
  std::chrono::milliseconds timeout = kDefaultTimeout;
};

// Runs `body(world)` once per rank and waits for the ranks of this process. These are `num_ranks`
// threads (RunRanks), or one MPI rank (RunMpiRank) if there are several processes.
//
// Errors: kUsage (`num_ranks` is neither 0 nor the number of processes), those of RunRanks and
// RunMpiRank.
Status RunWorld(const WorldOptions& options, const std::function<Status(HostGroup& world)>& body);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_WORLD_H_
