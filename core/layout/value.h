// Value and Configuration: the data that layout tables compute with.
#ifndef CKPT_CORE_LAYOUT_VALUE_H_
#define CKPT_CORE_LAYOUT_VALUE_H_

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace ckpt::layout {

// Null, a boolean, an integer, a float, a text or a list of values. Null also means that a key is
// absent.
class Value {
 public:
  using List = std::vector<Value>;

  Value() = default;
  // Implicit on purpose, so that configurations in code read like the files they come from.
  // NOLINTBEGIN(google-explicit-constructor)
  Value(bool value) : value_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T value) : value_(static_cast<std::int64_t>(value)) {}
  Value(double value) : value_(value) {}
  Value(std::string value) : value_(std::move(value)) {}
  Value(const char* value) : value_(std::string(value)) {}
  Value(List value) : value_(std::move(value)) {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // nullptr if the value is of another kind.
  [[nodiscard]] const bool* AsBool() const { return std::get_if<bool>(&value_); }
  [[nodiscard]] const std::int64_t* AsInt() const { return std::get_if<std::int64_t>(&value_); }
  [[nodiscard]] const double* AsFloat() const { return std::get_if<double>(&value_); }
  [[nodiscard]] const std::string* AsText() const { return std::get_if<std::string>(&value_); }
  [[nodiscard]] const List* AsList() const { return std::get_if<List>(&value_); }

  // Whether kind and value are the same. 1 and 1.0 differ here; expressions call them equal.
  friend bool operator==(const Value&, const Value&) = default;

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, List> value_;
};

// "null", "true", "12", "1e-06", "\"silu\"", "[0, 1]".
[[nodiscard]] std::string FormatValue(const Value& value);

// A model's configuration: dotted names, nested objects flattened ("rope_parameters.rope_theta").
using Configuration = std::map<std::string, Value, std::less<>>;

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_VALUE_H_
