#include "trainer/comm/world.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>

#include "trainer/comm/mpi_comm.h"
#include "trainer/comm/thread_comm.h"

namespace ckpt::trainer {

int NumLaunchedProcesses() {
  // Set by Open MPI; by Hydra, MPICH and srun's PMI-2; by srun with PMIx. SLURM_NTASKS is not
  // usable: a batch script has it too.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
    const char* text = std::getenv(name);
    if (text == nullptr) continue;
    const std::string_view digits = text;
    int processes = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), processes);
    return std::max(processes, 1);
  }
  return 1;
}

Status RunWorld(const WorldOptions& options, const std::function<Status(HostGroup& world)>& body) {
  const int processes = NumLaunchedProcesses();
  if (processes == 1) return RunRanks(std::max(options.num_ranks, 1), body);
  if (options.num_ranks != 0 && options.num_ranks != processes) {
    return Error(ErrorKind::kUsage,
                 "the launcher started a different number of ranks than asked for")
        .Expected(std::to_string(options.num_ranks))
        .Actual(std::to_string(processes))
        .Hint("start " + std::to_string(options.num_ranks) +
              " processes, or one, whose threads are the ranks");
  }
  return RunMpiRank({.from_threads = options.from_threads, .timeout = options.timeout}, body);
}

}  // namespace ckpt::trainer
