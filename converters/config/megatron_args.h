// Model settings between Hugging Face and Megatron.
#ifndef CKPT_CONVERTERS_CONFIG_MEGATRON_ARGS_H_
#define CKPT_CONVERTERS_CONFIG_MEGATRON_ARGS_H_

#include <vector>

#include "converters/config/translation_table.h"
#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt {

// A model as the `args` of a Megatron checkpoint.
struct ModelArgs {
  // Plain values under Megatron's names, null for None; then our own arguments (own_args.h) for
  // what these cannot express. StoredModelSettings makes of them what ModelSettings makes of the
  // model, or refuses what that refuses.
  NamedValues values;
  // A warning for each thing that Megatron would compute differently from the model, and for each
  // that the trainer does not compute.
  std::vector<Problem> warnings;
};

// Options that say what the checkpoint is may be in the configuration under their own names:
// `ckpt_format`, and those that decide names (`transformer_impl`, `expert_names`, `layer_keys`).
//
// Errors: kUnsupported (Megatron has no such model), kBadMetadata (a key is missing or of the wrong
// kind).
Result<ModelArgs> MegatronArgs(const layout::Configuration& hf_config);

// Whether the numbers of a checkpoint with these `args` are those that names other than Megatron's
// stand for. Errors: kUnsupported, kBadMetadata.
Status CheckStoredAsOthersDo(const layout::Configuration& args);

// A warning for each thing that a run with these `args` computed and no published class does.
// Errors: kBadMetadata.
Result<std::vector<Problem>> UnpublishedIn(const layout::Configuration& args);

// A warning for each thing that the run which stored `args` computed differently from the model of
// `hf_config`. The sizes of the vocabularies are not compared.
//
// Errors: kUnsupported (a newer ckptkit stored `args`), kBadMetadata (one of them says too little
// for a comparison).
Result<std::vector<Problem>> DifferencesFromArgs(const layout::Configuration& hf_config,
                                                 const layout::Configuration& args);

// The configuration that describes a Megatron checkpoint's model, from its `args`. Includes
// `padded_vocab_size`.
//
// Errors: kUnsupported (no layout table describes such a model), kBadMetadata.
Result<layout::Configuration> ConfigFromMegatronArgs(const layout::Configuration& args);

// The same of a model that no layout table may describe: for its sizes. Without `vocab_size` if the
// run says only how many rows its vocabulary has. Errors: kBadMetadata.
Result<layout::Configuration> ShapeFromMegatronArgs(const layout::Configuration& args);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_MEGATRON_ARGS_H_
