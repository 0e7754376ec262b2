// ckpt-train generate: what a model makes of a prompt, to try it.
#ifndef CKPT_TOOLS_CKPT_TRAIN_CMD_GENERATE_H_
#define CKPT_TOOLS_CKPT_TRAIN_CMD_GENERATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "tools/ckpt-train/run_options.h"
#include "tools/cli/command_line.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::train {

struct GenerateOptions {
  cli::CommonOptions common;
  RunOptions run;
  std::string prompt;                    // in bytes, as the byte tokenizer has them; or
  std::vector<std::int32_t> prompt_ids;  // tokens
  std::int64_t tokens = 32;              // to add at most
  bool print_config = false;
};

// Continues the prompt by the most likely tokens, under the mesh that the settings ask for, with
// the weights of the newest checkpoint in `load`, else of the model that `init` names. A text ends
// with the end token; tokens do not.
//
// Errors: kUsage (no weights, no prompt or two, a token outside the vocabulary), those of
// ResolveRun, of opening weights, and of the ranks.
Result<cli::ExitCode> RunGenerate(const GenerateOptions& options, Storage& storage,
                                  cli::Streams& streams);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_CMD_GENERATE_H_
