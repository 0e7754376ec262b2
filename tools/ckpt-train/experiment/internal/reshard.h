// The runs of `experiment reshard`: one that is saved and goes on, and those that resume from it.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_RESHARD_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_RESHARD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "tools/ckpt-train/experiment/internal/folder.h"
#include "tools/ckpt-train/experiment/internal/report.h"
#include "tools/ckpt-train/experiment/internal/topologies.h"
#include "tools/cli/command_line.h"
#include "tools/cli/streams.h"

namespace ckpt::train {

struct ReshardRuns {
  std::vector<ReshardCase> cases;  // after those that they resume from
  std::int64_t steps = 0;          // of the source run, until it is saved
  std::int64_t resume_steps = 0;   // of every other
  std::string device = {};         // name of a backend
  bool canonical = false;
};

// Writes data, metrics and checkpoints into `folder`, and tells how far it is.
// Errors: those of ResolveRun and RunLeg, with the name of the run.
Result<ReshardFindings> RunReshardRuns(const ReshardRuns& runs, ExperimentFolder& folder,
                                       const cli::CommonOptions& options, Storage& storage,
                                       cli::Streams& streams);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_RESHARD_H_
