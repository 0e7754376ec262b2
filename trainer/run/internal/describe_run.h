// What a running training stores in addition to its tensors: its TrainingRun.
#ifndef CKPT_TRAINER_RUN_INTERNAL_DESCRIBE_RUN_H_
#define CKPT_TRAINER_RUN_INTERNAL_DESCRIBE_RUN_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/layout/resolve.h"
#include "core/training/training_run.h"
#include "trainer/run/run_config.h"
#include "trainer/run/run_progress.h"

namespace ckpt::train {

// Arguments, progress, parameter groups and schedule of `run`. The caller, who knows the
// parameters' names, adds the parameters of each group. `naming`: the choices that these names
// follow.
//
// Errors: those of RunArgs.
Result<TrainingRun> DescribeRun(const RunConfig& run, const RunProgress& progress,
                                std::int64_t updates, const std::string& state_digest,
                                const layout::Choices& naming);

// Names of the optimizer's state: "exp_avg", "exp_avg_sq".
[[nodiscard]] std::vector<std::string> MomentNames(const trainer::OptimizerConfig& optimizer);

// The parameters to which weight decay applies, where not all of them decay.
[[nodiscard]] std::set<std::string> DecayedParameters(trainer::TrainConfig config);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_DESCRIBE_RUN_H_
