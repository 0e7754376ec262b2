// Settings of the trainer's model, from a Hugging Face configuration.
#ifndef CKPT_CONVERTERS_CONFIG_MODEL_SETTINGS_H_
#define CKPT_CONVERTERS_CONFIG_MODEL_SETTINGS_H_

#include "core/base/result.h"
#include "core/layout/value.h"

namespace ckpt {

// What transformers would compute with `hf_config`, under the names of
// docs/guides/model-settings.md. Settings of which the configuration says nothing are absent.
//
// Errors: kUnsupported (no family matches; the model computes something that the trainer does not,
// or its file says something that its class does not compute; all at once), kBadMetadata (a key is
// missing or of the wrong kind).
Result<layout::Configuration> ModelSettings(const layout::Configuration& hf_config);

}  // namespace ckpt

#endif  // CKPT_CONVERTERS_CONFIG_MODEL_SETTINGS_H_
