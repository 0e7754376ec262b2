#include "formats/megatron/internal/plain_setting.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/endian.h"
#include "core/base/quote.h"
#include "core/json/json_reader.h"
#include "core/layout/flatten_json.h"
#include "core/tensor/cast.h"
#include "core/training/run_format.h"
#include "formats/pickle/from_json.h"
#include "formats/pickle/held_number.h"

namespace ckpt::megatron {
namespace {

bool IsContainer(const JsonCursor& value) {
  return value.kind() == JsonKind::kArray || value.kind() == JsonKind::kObject;
}

// A scalar of numpy: what kind of number it is, and its bytes, the lowest first.
struct NumpyNumber {
  char kind = 0;  // as numpy names it: b, i, u, f, …
  Bytes bytes;
};

// The longest number of numpy's that is one here.
constexpr std::size_t kMaxNumpyBytes = 8;

// {"dtype": "<f8", "bytes": hex}
std::optional<NumpyNumber> NumpyNumberOf(const JsonCursor& scalar) {
  const std::optional<JsonCursor> dtype = scalar.Find("dtype");
  const std::optional<JsonCursor> digits = scalar.Find("bytes");
  if (!dtype || !digits) return std::nullopt;
  const Result<std::string> name = dtype->Text();
  const Result<std::string> hex = digits->Text();
  if (!name.ok() || !hex.ok() || name->size() != 3) return std::nullopt;
  if (hex->size() > 2 * kMaxNumpyBytes) return std::nullopt;
  std::optional<Bytes> bytes = pickle::BytesOfHex(*hex);
  if (!bytes || fmt::format("{}", bytes->size()) != name->substr(2)) return std::nullopt;
  if (name->front() == '>') std::ranges::reverse(*bytes);
  return NumpyNumber{(*name)[1], *std::move(bytes)};
}

// A whole number of any width, and with the sign that its highest bit says.
std::optional<layout::Value> WholeOf(const NumpyNumber& number) {
  std::uint64_t bits = 0;
  std::memcpy(&bits, number.bytes.data(), number.bytes.size());
  const bool fills = number.bytes.size() == sizeof(bits);
  if (number.kind == 'u') {
    if (fills && bits >> 63 != 0) return std::nullopt;
    return layout::Value(static_cast<std::int64_t>(bits));
  }
  const int unused = static_cast<int>(8 * (sizeof(bits) - number.bytes.size()));
  return layout::Value(static_cast<std::int64_t>(bits << unused) >> unused);
}

std::optional<layout::Value> FloatOf(const Bytes& bytes) {
  double value = 0;
  if (bytes.size() == sizeof(double)) {
    value = LoadLe<double>(bytes.data());
  } else if (bytes.size() == sizeof(float)) {
    value = LoadLe<float>(bytes.data());
  } else if (bytes.size() == sizeof(std::uint16_t)) {
    value = FromFp16Bits(LoadLe<std::uint16_t>(bytes.data()));
  } else {
    return std::nullopt;
  }
  // As Python's own: a setting is a finite number.
  return std::isfinite(value) ? std::optional(layout::Value(value)) : std::nullopt;
}

// What a scalar of numpy is in Python; nothing: `value` is none, or neither a finite number that a
// run holds nor a truth value.
std::optional<layout::Value> OfNumpy(const JsonCursor& value) {
  const std::optional<JsonCursor> scalar = value.Find("$numpy_scalar");
  const std::optional<NumpyNumber> number = scalar ? NumpyNumberOf(*scalar) : std::nullopt;
  if (!number || number->bytes.empty()) return std::nullopt;
  switch (number->kind) {
    case 'f':
      return FloatOf(number->bytes);
    case 'i':
    case 'u':
      return WholeOf(*number);
    case 'b':
      if (number->bytes.size() != 1) return std::nullopt;
      return layout::Value(number->bytes.front() != std::byte{0});
    default:
      return std::nullopt;
  }
}

std::optional<double> NumberOfNumpy(const JsonCursor& value) {
  const std::optional<layout::Value> plain = OfNumpy(value);
  if (!plain) return std::nullopt;
  if (const double* const number = plain->AsFloat()) return *number;
  constexpr std::int64_t kMost = std::int64_t{1} << 53;
  const std::int64_t* const whole = plain->AsInt();
  if (whole == nullptr || *whole > kMost || *whole < -kMost) return std::nullopt;
  return static_cast<double>(*whole);
}

// A finite tensor of one number whose value is known.
std::optional<double> NumberOfTensor(const SettingValue& value) {
  const std::optional<JsonCursor> tensor = value.json().Find("$tensor");
  if (!tensor || value.numbers() == nullptr) return std::nullopt;
  const std::optional<double> number = pickle::HeldNumberOf(*tensor, *value.numbers());
  return number && std::isfinite(*number) ? number : std::nullopt;
}

// Python's classes of what is a tagged object in JSON (docs/formats/objects.md).
struct TaggedClass {
  std::string_view tag;
  std::string_view python;
};
constexpr std::array<TaggedClass, 18> kTaggedClasses = {
    {{"$tensor", "torch.Tensor"},
     {"$parameter", "torch.nn.Parameter"},
     {"$numpy_array", "numpy.ndarray"},
     {"$tuple", "tuple"},
     {"$dict", "dict"},
     {"$ordered_dict", "collections.OrderedDict"},
     {"$set", "set"},
     {"$frozenset", "frozenset"},
     {"$bytes", "bytes"},
     {"$bytearray", "bytearray"},
     {"$complex", "complex"},
     {"$size", "torch.Size"},
     {"$dtype", "torch.dtype"},
     {"$device", "torch.device"},
     {"$layout", "torch.layout"},
     {"$int", "int"},
     {"$float", "float"},
     {"$numpy_scalar", "numpy.generic"}}};

std::string TextAt(const std::optional<JsonCursor>& value) {
  const Result<std::string> text = value ? value->Text() : Result<std::string>(std::string());
  return text.ok() ? *text : std::string();
}

// Python's class of a value, for messages.
std::string ClassOf(const JsonCursor& value) {
  constexpr std::size_t kMaxName = 100;
  if (value.kind() == JsonKind::kArray) return "list";
  if (value.kind() != JsonKind::kObject) return std::string(JsonKindName(value.kind()));
  if (const auto object = value.Find("$object")) {
    return Quote(TextAt(object->Find("class")), kMaxName);
  }
  if (const auto opaque = value.Find("$opaque")) return Quote(TextAt(opaque), kMaxName);
  for (const TaggedClass& tagged : kTaggedClasses) {
    const std::optional<JsonCursor> inner = value.Find(tagged.tag);
    if (!inner) continue;
    std::string detail;
    if (tagged.tag == "$numpy_scalar") detail = TextAt(inner->Find("dtype"));
    if (tagged.tag == "$int" || tagged.tag == "$float") detail = TextAt(inner);
    if (detail.empty()) return std::string(tagged.python);
    return fmt::format("{}, {}", tagged.python, Quote(detail, kMaxName));
  }
  return "dict";
}

Status NotPlain(const JsonCursor& value, std::string_view expected) {
  return Error(ErrorKind::kUnsupported, "a setting of the optimizer is not a plain value")
      .Expected(expected)
      .Actual(fmt::format("an object of the class {}", ClassOf(value)))
      .Hint(kTakeWeightsAlone);
}

Result<layout::Value> PlainScalar(const JsonCursor& value) {
  if (std::optional<layout::Value> plain = OfNumpy(value)) return *std::move(plain);
  if (!IsContainer(value) && !value.is_null()) return layout::ToValue(value);
  return NotPlain(value, "a number, a truth value, a text, or a list of them");
}

}  // namespace

Result<double> PlainNumber(const SettingValue& value) {
  if (!IsContainer(value.json())) return value.json().Double();
  if (const std::optional<double> number = NumberOfNumpy(value.json())) return *number;
  if (const std::optional<double> number = NumberOfTensor(value)) return *number;
  return NotPlain(value.json(), "a number, or a tensor of one");
}

Result<bool> PlainBool(const JsonCursor& value) {
  if (!IsContainer(value)) return value.Bool();
  const std::optional<layout::Value> plain = OfNumpy(value);
  if (plain && plain->AsBool() != nullptr) return *plain->AsBool();
  return NotPlain(value, "True or False");
}

Result<std::array<double, 2>> PlainPair(const SettingValue& value) {
  constexpr std::string_view kExpected = "a tuple of two numbers";
  const std::optional<JsonCursor> tuple = value.json().Find("$tuple");
  const JsonCursor& list = tuple ? *tuple : value.json();
  if (list.kind() == JsonKind::kObject) return NotPlain(list, kExpected);
  if (list.kind() != JsonKind::kArray) {
    return Error(ErrorKind::kBadMetadata, "not a pair of numbers")
        .Expected(kExpected)
        .Actual(ClassOf(list));
  }
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, list.Items());
  std::array<double, 2> pair = {};
  if (items.size() != pair.size()) {
    return Error(ErrorKind::kBadMetadata, "not a pair of numbers")
        .Actual(fmt::format("{} numbers", items.size()));
  }
  for (std::size_t i = 0; i < pair.size(); ++i) {
    CKPT_ASSIGN_OR_RETURN(pair[i], PlainNumber(value.Part(items[i])));
  }
  return pair;
}

Result<layout::Value> PlainValue(const JsonCursor& value) {
  if (value.kind() != JsonKind::kArray) return PlainScalar(value);
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, value.Items());
  layout::Value::List list;
  for (const JsonCursor& item : items) {
    CKPT_ASSIGN_OR_RETURN(list.emplace_back(), PlainScalar(item));
  }
  return layout::Value(std::move(list));
}

}  // namespace ckpt::megatron
