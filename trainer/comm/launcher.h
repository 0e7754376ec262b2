// What the launcher of this process said in its environment.
#ifndef CKPT_TRAINER_COMM_LAUNCHER_H_
#define CKPT_TRAINER_COMM_LAUNCHER_H_

#include "core/base/status.h"

namespace ckpt::trainer {

// The processes that mpirun or srun started together with this one, this one included; 1 without a
// launcher. Read from the environment that the launcher sets, because a run of threads must not
// start MPI.
[[nodiscard]] int NumLaunchedProcesses();

// OK, or srun started several tasks and gave them no way to find each other: an MPI library would
// end them, or give each a world of its own. Errors: kUnsupported.
[[nodiscard]] Status CheckCanMeet();

// Whether this is the first of the tasks that srun started together.
[[nodiscard]] bool IsFirstTask();

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_LAUNCHER_H_
