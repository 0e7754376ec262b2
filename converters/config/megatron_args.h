// Model settings between Hugging Face and Megatron.
#ifndef CKPT_CONVERTERS_CONFIG_MEGATRON_ARGS_H_
#define CKPT_CONVERTERS_CONFIG_MEGATRON_ARGS_H_

#include <vector>

#include "converters/config/translation_table.h"
#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt {

// The `args` of a Megatron checkpoint of this model: plain values under Megatron's names, in the order they are
// written; null stands for None. Options that decide names may be in the configuration under their own names:
// `transformer_impl`, `expert_names`.
//
// Errors: kUnsupported (Megatron has no such model), kBadMetadata (a key is missing or of the wrong kind).
Result<NamedValues> MegatronArgs(const layout::Configuration& hf_config);

// What the configuration says and `args` cannot, a warning each: the run has to be told in another way, or cannot.
Result<std::vector<Problem>> LostInMegatronArgs(const layout::Configuration& hf_config);

// The configuration that describes a Megatron checkpoint's model, from its `args`. Includes `padded_vocab_size`.
//
// Errors: kUnsupported (no layout table describes such a model), kBadMetadata.
Result<layout::Configuration> ConfigFromMegatronArgs(const layout::Configuration& args);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_MEGATRON_ARGS_H_
