// Writes settings as YAML, from which they can be read back unchanged.
#ifndef CKPT_TRAINER_RUN_FORMAT_SETTINGS_H_
#define CKPT_TRAINER_RUN_FORMAT_SETTINGS_H_

#include <string>

#include "core/layout/value.h"

namespace ckpt::train {

// One "name: value" per line, in order of the names. Equal settings give the same text.
[[nodiscard]] std::string FormatSettings(const layout::Configuration& settings);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_FORMAT_SETTINGS_H_
