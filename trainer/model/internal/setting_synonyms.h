// Names that other programs use for the settings of a run.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_SETTING_SYNONYMS_H_
#define CKPT_TRAINER_MODEL_INTERNAL_SETTING_SYNONYMS_H_

#include <string_view>

namespace ckpt::trainer {

// The setting for which Transformers, DeepSpeed, torchtitan or common use has the name `name`;
// empty if unknown. Use it only in hints: the values may have another form.
[[nodiscard]] std::string_view SettingCalled(std::string_view name);

// A hint for a setting of other programs that this trainer does not have: what to use instead, or
// that there is nothing. Empty for other names.
[[nodiscard]] std::string_view WhyNoSetting(std::string_view name);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_SETTING_SYNONYMS_H_
