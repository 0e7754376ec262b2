// ckpt-train evaluate: the loss of a model on data.
#ifndef CKPT_TOOLS_CKPT_TRAIN_CMD_EVALUATE_H_
#define CKPT_TOOLS_CKPT_TRAIN_CMD_EVALUATE_H_

#include "core/base/result.h"
#include "core/io/storage.h"
#include "tools/ckpt-train/run_options.h"
#include "tools/cli/command_line.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::train {

struct EvaluateOptions {
  cli::CommonOptions common;
  RunOptions run;
  bool print_config = false;
};

// The mean loss of a token, once over `valid_data_path`, else over `data_path`, of the newest
// checkpoint in `load`, else of the model that `init` names. The weights are all that is taken of a
// checkpoint: it may be one that no run saved, such as a published model. Where `eval_iters` is
// given, over as many batches at most.
//
// Errors: kUsage (neither of them), those of ResolveRun, of opening data and weights, and of the
// ranks.
Result<cli::ExitCode> RunEvaluate(const EvaluateOptions& options, Storage& storage,
                                  cli::Streams& streams);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_CMD_EVALUATE_H_
