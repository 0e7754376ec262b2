// JSON values as comparable text: what two documents say, apart from spaces.
#ifndef CKPT_TESTS_TESTING_JSON_TEXT_H_
#define CKPT_TESTS_TESTING_JSON_TEXT_H_

#include <string>

#include "core/json/json_reader.h"
#include "core/json/json_writer.h"

namespace ckpt::testing {

// Members keep their order: Python's dicts have one.
inline std::string NormalizedJson(const JsonCursor& value) {
  switch (value.kind()) {
    case JsonKind::kNull:
      return "null";
    case JsonKind::kBool:
      return value.Bool().value() ? "true" : "false";
    case JsonKind::kInt:
    case JsonKind::kUint:
      return std::to_string(value.Int64().value());
    case JsonKind::kFloat:
      return JsonNumber(value.Double().value());
    case JsonKind::kText:
      return JsonQuote(value.Text().value());
    case JsonKind::kArray: {
      std::string out = "[";
      const auto items = value.Items();
      for (const JsonCursor& item : *items) out += NormalizedJson(item) + ",";
      return out + "]";
    }
    case JsonKind::kObject: {
      std::string out = "{";
      const auto members = value.Members();
      for (const auto& [key, member] : *members) {
        out += JsonQuote(key) + ":" + NormalizedJson(member) + ",";
      }
      return out + "}";
    }
  }
  return {};
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_JSON_TEXT_H_
