#include "tools/ckpt-train/cmd_explain.h"

#include <utility>

#include "tools/ckpt-train/explanation.h"
#include "tools/ckpt-train/yaml_settings.h"

namespace ckpt::train {

Result<cli::ExitCode> RunExplain(const ExplainOptions& options, Storage& storage,
                                 cli::Streams& streams) {
  CKPT_ASSIGN_OR_RETURN(layout::Configuration given, GivenSettings(storage, options.run));
  CKPT_ASSIGN_OR_RETURN(const RunConfig run, ResolveRun(storage, given, NumRanks(options.run)));
  if (options.print_config) {
    streams.out.Write(FormatYamlSettings(run.effective));
    return cli::ExitCode::kDone;
  }
  CKPT_ASSIGN_OR_RETURN(const Explanation explanation, Explain(run.train, options.rank));
  streams.out.Write(options.common.json ? ExplanationJson(explanation)
                                        : ExplanationText(explanation));
  return cli::ExitCode::kDone;
}

}  // namespace ckpt::train
