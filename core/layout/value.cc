#include "core/layout/value.h"

#include <fmt/format.h>

#include "core/base/quote.h"

namespace ckpt::layout {

std::string FormatValue(const Value& value) {
  if (const bool* boolean = value.AsBool()) return *boolean ? "true" : "false";
  if (const std::int64_t* integer = value.AsInt()) return fmt::format("{}", *integer);
  if (const double* number = value.AsFloat()) return fmt::format("{}", *number);
  if (const std::string* text = value.AsText()) return Quote(*text, 60);
  if (const Value::List* list = value.AsList()) {
    std::string text = "[";
    for (const Value& item : *list) {
      if (text.size() > 1) text += ", ";
      if (text.size() > 120) {
        text += "…";
        break;
      }
      text += FormatValue(item);
    }
    return text + "]";
  }
  return "null";
}

}  // namespace ckpt::layout
