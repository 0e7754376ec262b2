// The machine that a rank runs on.
#ifndef CKPT_TRAINER_COMM_MACHINE_H_
#define CKPT_TRAINER_COMM_MACHINE_H_

#include <array>
#include <memory>
#include <span>

#include "core/base/result.h"
#include "trainer/comm/host_group.h"

namespace ckpt::trainer {

// The name of the machine, and of its system since it was started: containers of several machines
// may have one name. Ends with zeros.
using MachineName = std::array<char, 128>;

[[nodiscard]] MachineName ThisMachine();

// How many ranks before `rank` run on its machine. `names`: of all ranks.
[[nodiscard]] int PlaceOnMachine(std::span<const MachineName> names, int rank);

// The place of this rank among those of `world` that run on its machine. Every rank calls it.
// Errors: those of the group.
Result<int> RankOnMachine(HostGroup& world);

// The group of the ranks of `world` that run on this rank's machine, in order of rank. Every rank
// calls it. Errors: those of the group.
Result<std::unique_ptr<HostGroup>> SplitByMachine(HostGroup& world);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_MACHINE_H_
