// How a process exits that ends itself because its rank, or another one, cannot go on.
#ifndef CKPT_TRAINER_COMM_INTERNAL_FAILED_EXIT_CODE_H_
#define CKPT_TRAINER_COMM_INTERNAL_FAILED_EXIT_CODE_H_

namespace ckpt::trainer {

// That of the tools for a run that failed: cli::ExitCode::kFailed.
inline constexpr int kFailedExitCode = 3;

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_INTERNAL_FAILED_EXIT_CODE_H_
