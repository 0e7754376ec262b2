// Settings as YAML, which reads back as they are.
#ifndef CKPT_TRAINER_RUN_FORMAT_SETTINGS_H_
#define CKPT_TRAINER_RUN_FORMAT_SETTINGS_H_

#include <string>

#include "core/layout/value.h"

namespace ckpt::train {

// "name: value", one a line, in order of the names: the same text for the same settings.
[[nodiscard]] std::string FormatSettings(const layout::Configuration& settings);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_FORMAT_SETTINGS_H_
