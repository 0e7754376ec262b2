// Numbers among the plain values of YAML.
#ifndef CKPT_CORE_YAML_PLAIN_NUMBER_H_
#define CKPT_CORE_YAML_PLAIN_NUMBER_H_

#include <optional>
#include <string_view>

#include "core/base/text_number.h"

namespace ckpt {

// As ParseNumber, and with a '+' before it. "+-5" has two signs, and is text.
template <typename Number>
[[nodiscard]] std::optional<Number> ParsePlainNumber(std::string_view text) {
  if (TakePrefix("+", text) && text.starts_with('-')) return std::nullopt;
  return ParseNumber<Number>(text);
}

}  // namespace ckpt

#endif  // CKPT_CORE_YAML_PLAIN_NUMBER_H_
