// ckpt-train experiment: what this project exists for, as one command.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_CMD_EXPERIMENT_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_CMD_EXPERIMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "tools/cli/command_line.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"
#include "trainer/backend/backend.h"

namespace ckpt::train {

struct ExperimentOptions {
  cli::CommonOptions common;
  std::string output = "ckptkit-reshard";  // folder for data, metrics, report and picture
  std::vector<std::string> topologies;     // names of ReshardCases; none: all of them
  std::int64_t steps = 100;                // of the source run, until it is saved
  std::int64_t resume_steps = 50;          // of every resumed run
  // What the ranks compute on; they may share it.
  std::string device{trainer::kReferenceBackend};
  bool canonical = false;  // reduction: canonical; all must be bit-equal then
  bool keep = false;       // the checkpoints, which are removed otherwise
};

// `experiment reshard`: trains the proxy under FSDP and expert parallelism, saves it, lets it go on
// as the reference, and resumes it under every topology, and back. Ranks are threads of this
// process.
//
// Returns kDifferent where a check fails, after the report is written and the failures are printed.
// Errors: those of ExperimentFolder::Open, SelectCases, ResolveRun and RunLeg.
Result<cli::ExitCode> RunReshard(const ExperimentOptions& options, Storage& storage,
                                 cli::Streams& streams);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_CMD_EXPERIMENT_H_
