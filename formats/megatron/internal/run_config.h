// A run's configuration as Megatron-Bridge keeps it, and as Megatron-LM's arguments.
#ifndef CKPT_FORMATS_MEGATRON_INTERNAL_RUN_CONFIG_H_
#define CKPT_FORMATS_MEGATRON_INTERNAL_RUN_CONFIG_H_

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/layout/value.h"
#include "core/training/training_run.h"

namespace ckpt::megatron {

// The arguments that mean what `config` says: the members of run_config.yaml by dotted names
// ("model.num_layers"). Nearly all have the same name in both programs. Nothing if no model is
// described. `key` names the configuration in errors.
//
// Errors: kUnsupported (an activation that no argument expresses).
Result<layout::Configuration> ArgsOfRunConfig(const layout::Configuration& config,
                                              std::string_view key);

struct RunConfigFacts {
  std::string_view format;     // its ckpt_format
  bool has_tokenizer = false;  // beside it, as Hugging Face's files
};

// run_config.yaml for what the arguments of `run` say: Megatron-Bridge builds the model, its
// optimizer and schedule from it. Arguments that it has no place for are left out. Of a run without
// groups (weights alone) the model is described.
[[nodiscard]] std::string WriteRunConfig(const TrainingRun& run, const RunConfigFacts& facts);

}  // namespace ckpt::megatron

#endif  // CKPT_FORMATS_MEGATRON_INTERNAL_RUN_CONFIG_H_
