// The forms of a format that were asked for.
#ifndef CKPT_CORE_CHECKPOINT_CHOSEN_FORMS_H_
#define CKPT_CORE_CHECKPOINT_CHOSEN_FORMS_H_

#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace ckpt {

// Values by the names of options (Format::options). One that is absent has its first value.
using ChosenForms = std::map<std::string, std::string, std::less<>>;

// Whether `value` was asked for. It is not the option's first one, which needs no asking.
[[nodiscard]] inline bool IsChosen(const ChosenForms& forms, std::string_view option,
                                   std::string_view value) {
  const auto found = forms.find(option);
  return found != forms.end() && found->second == value;
}

}  // namespace ckpt

#endif  // CKPT_CORE_CHECKPOINT_CHOSEN_FORMS_H_
