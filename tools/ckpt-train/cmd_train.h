// ckpt-train train: a run, from its start or its last checkpoint to its end.
#ifndef CKPT_TOOLS_CKPT_TRAIN_CMD_TRAIN_H_
#define CKPT_TOOLS_CKPT_TRAIN_CMD_TRAIN_H_

#include "core/base/result.h"
#include "core/io/storage.h"
#include "tools/ckpt-train/run_options.h"
#include "tools/cli/command_line.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::train {

struct TrainOptions {
  cli::CommonOptions common;
  RunOptions run;
  bool prove = false;  // short for --set prove=true
  bool print_state_digest = false;
  bool ledger = false;
  bool print_config = false;
};

// Trains. SIGTERM or SIGINT ends the run after the current step: it is saved, and the exit code is
// that of a run that is done. Where ranks are processes, the first one prints.
//
// Returns kDifferent if `prove` finds a difference. Errors: those of ResolveRun, of opening data
// and weights, and of TrainOnRank.
Result<cli::ExitCode> RunTrain(const TrainOptions& options, Storage& storage,
                               cli::Streams& streams);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_CMD_TRAIN_H_
