#include "trainer/comm/world.h"

#include <algorithm>
#include <string>

#include "trainer/comm/launcher.h"
#include "trainer/comm/mpi_comm.h"
#include "trainer/comm/thread_comm.h"

namespace ckpt::trainer {

Status RunWorld(const WorldOptions& options, const std::function<Status(HostGroup& world)>& body) {
  const int processes = NumLaunchedProcesses();
  if (processes == 1) {
    return RunRanks(std::max(options.num_ranks, 1), body, options.timeout);
  }
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
