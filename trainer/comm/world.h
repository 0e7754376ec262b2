// The ranks of a run: threads of this process, or the processes that a launcher started.
#ifndef CKPT_TRAINER_COMM_WORLD_H_
#define CKPT_TRAINER_COMM_WORLD_H_

#include <functional>

#include "core/base/status.h"
#include "trainer/comm/communicator.h"
#include "trainer/device/host_device.h"

namespace ckpt::trainer {

struct WorldOptions {
  // Ranks to run; 0: as many as the launcher started processes.
  int num_ranks = 0;
  // What queues the ranks will communicate from.
  QueueMode queues = QueueMode::kInline;
};

// Processes that mpirun or srun started together with this one, itself included; 1 if there was no
// launcher. Read from what the launcher leaves in the environment, since MPI itself must not start
// in a run of threads.
[[nodiscard]] int NumLaunchedProcesses();

// Runs `body(world)` once per rank and waits for the ranks of this process: `num_ranks` threads
// (RunRanks), or one rank of MPI (RunMpiRank) if there are several processes.
//
// Errors: kUsage (`num_ranks` is neither 0 nor the number of processes), those of RunRanks and
// RunMpiRank.
Status RunWorld(const WorldOptions& options,
                const std::function<Status(Communicator& world)>& body);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_WORLD_H_
