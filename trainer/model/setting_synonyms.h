// What other programs call the settings of a run.
#ifndef CKPT_TRAINER_MODEL_SETTING_SYNONYMS_H_
#define CKPT_TRAINER_MODEL_SETTING_SYNONYMS_H_

#include <string_view>

namespace ckpt::trainer {

// The setting that means what Transformers, DeepSpeed, torchtitan or a habit calls `name`; empty if none is known. For hints:
// values may have another form.
[[nodiscard]] std::string_view SettingCalled(std::string_view name);

// What this trainer has instead of a thing that other programs call `name`, or that it has none; empty for other names.
[[nodiscard]] std::string_view WhyNoSetting(std::string_view name);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_SETTING_SYNONYMS_H_
