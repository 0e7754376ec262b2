#include "tools/ckpt-train/cmd_explain.h"

#include <utility>

#include "tools/ckpt-train/explanation_text.h"
#include "trainer/explain/explanation.h"
#include "trainer/run/format_settings.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {

Result<cli::ExitCode> RunExplain(const ExplainOptions& options, Storage& storage,
                                 cli::Streams& streams) {
  CKPT_ASSIGN_OR_RETURN(layout::Configuration given, GivenSettings(storage, options.run));
  CKPT_ASSIGN_OR_RETURN(const RunConfig run, ResolveRun(storage, given, NumRanks(options.run)));
  if (options.print_config) {
    streams.out.Write(FormatSettings(run.effective));
    return cli::ExitCode::kDone;
  }
  CKPT_ASSIGN_OR_RETURN(const Explanation explanation, Explain(run.train, options.rank));
  streams.out.Write(options.common.json ? ExplanationJson(explanation)
                                        : ExplanationText(explanation));
  return cli::ExitCode::kDone;
}

}  // namespace ckpt::train
