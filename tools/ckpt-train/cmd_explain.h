// ckpt-train explain: what a run would be; starts nothing.
#ifndef CKPT_TOOLS_CKPT_TRAIN_CMD_EXPLAIN_H_
#define CKPT_TOOLS_CKPT_TRAIN_CMD_EXPLAIN_H_

#include <string>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "tools/ckpt-train/run_options.h"
#include "tools/cli/command_line.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::train {

struct ExplainOptions {
  cli::CommonOptions common;
  RunOptions run;
  int rank = 0;         // the one to describe
  std::string cluster;  // ParseCluster; empty: no forecast
  bool print_config = false;
};

// Errors: those of GivenSettings, ResolveRun, Explain, ParseCluster and ForecastStep.
Result<cli::ExitCode> RunExplain(const ExplainOptions& options, Storage& storage,
                                 cli::Streams& streams);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_CMD_EXPLAIN_H_
