// ckpt-train check: the trainer's numbers against another implementation's.
#ifndef CKPT_TOOLS_CKPT_TRAIN_CMD_CHECK_H_
#define CKPT_TOOLS_CKPT_TRAIN_CMD_CHECK_H_

#include <string>

#include "core/base/result.h"
#include "core/io/storage.h"
#include "tools/ckpt-train/run_options.h"
#include "tools/cli/command_line.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::train {

struct CheckOptions {
  cli::CommonOptions common;
  RunOptions run;
  std::string reference;
  double tolerance = 1e-5;  // of an error relative to the tensor's largest magnitude
  // Compare with the CPU's numbers in bfloat16, within BoundsOfRounding, and not with the
  // reference's. Of models with experts every token has given ones.
  bool bf16 = false;
  bool print_config = false;
};

// Computes one batch under the mesh that the settings ask for and compares loss, logits and every
// gradient in the reference. Batch and precision are the reference's, whatever the settings say,
// and auxiliary losses are left out. Where ranks are processes, the first one prints.
//
// Returns kDifferent past the tolerance, and where the two have other shapes. Errors: kUsage (the
// settings, or a mesh that does not fit the model or the batch; `bf16` without logits), those of
// Reference::Open and OpenModel, kMissing (a gradient that the model lacks), those of the ranks.
Result<cli::ExitCode> RunCheck(const CheckOptions& options, Storage& storage,
                               cli::Streams& streams);

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_CMD_CHECK_H_
