#include "formats/pickle/from_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/json/json_reader.h"
#include "core/tensor/dtype.h"
#include "formats/pickle/globals.h"
#include "formats/pickle/held_number.h"
#include "formats/pickle/internal/text.h"
#include "formats/pickle/writer.h"

namespace ckpt::pickle {
namespace {

// As deep as an object is rendered (RenderOptions::max_depth); most values take two levels of JSON.
constexpr int kMaxJsonDepth = 512;

class FromJson {
 public:
  // `numbers`: values of tensors that the text has by their digests. With any, only whether there
  // is an error is of use: where such a tensor stands, nothing is written.
  explicit FromJson(const HeldNumbers& numbers) : numbers_(numbers) {}

  Status Write(const JsonCursor& value);
  [[nodiscard]] Bytes Take() { return pickle_.Take(); }

 private:
  Status WriteObject(const JsonCursor& value);
  // A dictionary, of pairs or of the members of an object.
  Status WriteDict(const JsonCursor& pairs);
  Status WriteMembers(const JsonCursor& object);
  Status WriteTagged(const std::string& tag, const JsonCursor& value);
  Status WriteItems(const JsonCursor& list);
  Status WritePairs(const JsonCursor& pairs);
  Status WriteState(const JsonCursor& state);
  Status WriteInstance(const JsonCursor& object);
  Status WriteInt(const JsonCursor& decimal);
  Status WriteNamedFloat(const JsonCursor& name);
  Status WriteScalar(const JsonCursor& scalar);
  Status WriteTuple(const JsonCursor& items);
  Status WriteBytes(const JsonCursor& hex, bool is_array);
  // A value of torch that its name says.
  Status WriteTorchName(const std::string& tag, const JsonCursor& name);
  // Its elements in a list, as the argument of a call of `module`.`name`.
  Status WriteCallOfList(std::string_view module, std::string_view name, const JsonCursor& list);

  static Status CannotSay(const JsonCursor& at, std::string_view what) {
    return Error(ErrorKind::kUnsupported, what).Actual(fmt::format("at {}", Quote(at.where())));
  }

  const HeldNumbers& numbers_;
  PickleWriter pickle_{Dialect::kWeightsOnly};
};

Result<Bytes> BytesAt(const JsonCursor& hex) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, hex.Text());
  if (std::optional<Bytes> bytes = BytesOfHex(text)) return *std::move(bytes);
  return Error(ErrorKind::kBadMetadata, "bytes that are not hexadecimal digits")
      .Actual(fmt::format("at {}", Quote(hex.where())));
}

Status FromJson::WriteItems(const JsonCursor& list) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, list.Items());
  for (const JsonCursor& item : items) CKPT_RETURN_IF_ERROR(Write(item));
  return OkStatus();
}

// [[key, value], …] as keys and values in turn.
Status FromJson::WritePairs(const JsonCursor& pairs) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, pairs.Items());
  for (const JsonCursor& item : items) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> pair, item.Items());
    if (pair.size() != 2) {
      return Error(ErrorKind::kBadMetadata, "an entry of a dictionary is not a key and its value")
          .Actual(fmt::format("at {}", Quote(item.where())));
    }
    CKPT_RETURN_IF_ERROR(WriteItems(item));
  }
  return OkStatus();
}

Status FromJson::WriteCallOfList(std::string_view module, std::string_view name,
                                 const JsonCursor& list) {
  pickle_.Global(module, name).BeginList();
  CKPT_RETURN_IF_ERROR(WriteItems(list));
  pickle_.EndList().InTuple().Reduce();
  return OkStatus();
}

Status FromJson::WriteInt(const JsonCursor& decimal) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, decimal.Text());
  const std::optional<std::string> bytes = DecodeDecimal(text);
  // What a pickle of protocol 2 holds in short.
  constexpr std::size_t kMaxBytes = std::numeric_limits<std::uint8_t>::max();
  if (!bytes || bytes->size() > kMaxBytes) {
    return CannotSay(decimal, "an integer that is not written");
  }
  pickle_.BigInt(*bytes);
  return OkStatus();
}

// numpy.core.multiarray.scalar(dtype, bytes)
Status FromJson::WriteScalar(const JsonCursor& scalar) {
  CKPT_ASSIGN_OR_RETURN(const JsonCursor dtype, scalar.At("dtype"));
  CKPT_ASSIGN_OR_RETURN(const std::string type, dtype.Text());
  CKPT_ASSIGN_OR_RETURN(const JsonCursor hex, scalar.At("bytes"));
  CKPT_ASSIGN_OR_RETURN(const Bytes bytes, BytesAt(hex));
  constexpr std::string_view kKinds = "biufc";
  const bool is_number = type.size() >= 3 && kKinds.find(type[1]) != std::string_view::npos;
  if (!is_number) return CannotSay(dtype, "a scalar of numpy that is not a number");
  pickle_.Global("numpy.core.multiarray", "scalar").BeginTuple();
  pickle_.Global("numpy", "dtype").BeginTuple().Text(type.substr(1)).Bool(false).Bool(true);
  pickle_.EndTuple().Reduce();
  pickle_.BeginTuple().Int(3).Text(type.substr(0, 1)).None().None().None().Int(-1).Int(-1).Int(0);
  pickle_.EndTuple().Build();
  pickle_.BytesValue(bytes).EndTuple().Reduce();
  return OkStatus();
}

Status FromJson::WriteDict(const JsonCursor& pairs) {
  pickle_.BeginDict();
  CKPT_RETURN_IF_ERROR(WritePairs(pairs));
  pickle_.EndDict();
  return OkStatus();
}

Status FromJson::WriteMembers(const JsonCursor& object) {
  CKPT_ASSIGN_OR_RETURN(const auto members, object.Members());
  pickle_.BeginDict();
  for (const auto& [name, member] : members) {
    pickle_.Text(name);
    CKPT_RETURN_IF_ERROR(Write(member));
  }
  pickle_.EndDict();
  return OkStatus();
}

// The attributes of a namespace.
Status FromJson::WriteState(const JsonCursor& state) {
  if (const auto pairs = state.Find("$dict")) return WriteDict(*pairs);
  return WriteMembers(state);
}

// {"class": "argparse.Namespace", "state": {…}}
Status FromJson::WriteInstance(const JsonCursor& object) {
  CKPT_ASSIGN_OR_RETURN(const JsonCursor named, object.At("class"));
  CKPT_ASSIGN_OR_RETURN(const std::string full_name, named.Text());
  CKPT_ASSIGN_OR_RETURN(const JsonCursor state, object.At("state"));
  const std::size_t dot = full_name.rfind('.');
  const std::string module = full_name.substr(0, std::min(dot, full_name.size()));
  const std::string name = dot == std::string::npos ? "" : full_name.substr(dot + 1);
  if (full_name == "argparse.Namespace" || full_name == "types.SimpleNamespace") {
    pickle_.Global(module, name).EmptyTuple();
    // What Python itself writes for each.
    if (module == "argparse") {
      pickle_.NewObject();
    } else {
      pickle_.Reduce();
    }
    CKPT_RETURN_IF_ERROR(WriteState(state));
    pickle_.Build();
    return OkStatus();
  }
  constexpr std::array<std::string_view, 6> kPaths = {
      "PurePath", "PurePosixPath", "PureWindowsPath", "Path", "PosixPath", "WindowsPath"};
  const auto parts = state.Find("parts");
  if (module == "pathlib" && parts && std::ranges::find(kPaths, name) != kPaths.end()) {
    pickle_.Global(module, name).BeginTuple();
    CKPT_RETURN_IF_ERROR(WriteItems(*parts));
    pickle_.EndTuple().Reduce();
    return OkStatus();
  }
  // A member of an enum. Only modules that hold nothing else: a class of any other one could do
  // more with a text from a stranger than keep it.
  const auto value = state.Find("value");
  const bool is_enum = full_name == "signal.Signals" ||
                       (module.starts_with("megatron.") && module.ends_with(".enums"));
  if (!value || !is_enum || !IsHarmlessCall(module, name)) {
    return CannotSay(named, fmt::format("a value that only its class understands: {}", full_name));
  }
  pickle_.Global(module, name);
  CKPT_RETURN_IF_ERROR(Write(*value));
  pickle_.InTuple().Reduce();
  return OkStatus();
}

Status FromJson::WriteNamedFloat(const JsonCursor& name) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, name.Text());
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text != "nan" && text != "inf" && text != "-inf") {
    return CannotSay(name, "a number of no known name");
  }
  pickle_.Float(text == "nan" ? std::nan("") : text == "inf" ? kInfinity : -kInfinity);
  return OkStatus();
}

Status FromJson::WriteTuple(const JsonCursor& items) {
  pickle_.BeginTuple();
  CKPT_RETURN_IF_ERROR(WriteItems(items));
  pickle_.EndTuple();
  return OkStatus();
}

Status FromJson::WriteBytes(const JsonCursor& hex, bool is_array) {
  CKPT_ASSIGN_OR_RETURN(const Bytes bytes, BytesAt(hex));
  if (is_array) pickle_.Global("builtins", "bytearray");
  pickle_.BytesValue(bytes);
  if (is_array) pickle_.InTuple().Reduce();
  return OkStatus();
}

Status FromJson::WriteTorchName(const std::string& tag, const JsonCursor& name) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, name.Text());
  if (tag == "$dtype") {
    if (!ParseDType(text)) return CannotSay(name, "a dtype whose tensors are not read");
    pickle_.Global("torch", text);
  } else if (tag == "$device") {
    pickle_.Global("torch", "device").Text(text).InTuple().Reduce();
  } else {
    pickle_.Global("torch.serialization", "_get_layout");
    pickle_.Text("torch." + text).InTuple().Reduce();
  }
  return OkStatus();
}

Status FromJson::WriteTagged(const std::string& tag, const JsonCursor& value) {
  if (tag == "$int") return WriteInt(value);
  if (tag == "$float") return WriteNamedFloat(value);
  if (tag == "$numpy_scalar") return WriteScalar(value);
  if (tag == "$object") return WriteInstance(value);
  if (tag == "$tuple") return WriteTuple(value);
  if (tag == "$dict") return WriteDict(value);
  if (tag == "$ordered_dict") {
    pickle_.Global("collections", "OrderedDict").EmptyTuple().Reduce().BeginEntries();
    CKPT_RETURN_IF_ERROR(WritePairs(value));
    pickle_.EndDict();
    return OkStatus();
  }
  if (tag == "$set") return WriteCallOfList("builtins", "set", value);
  if (tag == "$frozenset") return WriteCallOfList("builtins", "frozenset", value);
  if (tag == "$bytes" || tag == "$bytearray") return WriteBytes(value, tag == "$bytearray");
  if (tag == "$complex") {
    pickle_.Global("builtins", "complex");
    CKPT_RETURN_IF_ERROR(WriteTuple(value));
    pickle_.Reduce();
    return OkStatus();
  }
  if (tag == "$size") {
    pickle_.Global("torch", "Size");
    CKPT_RETURN_IF_ERROR(WriteTuple(value));
    pickle_.InTuple().Reduce();
    return OkStatus();
  }
  if (tag == "$dtype" || tag == "$device" || tag == "$layout") return WriteTorchName(tag, value);
  if (tag == "$tensor" && HeldNumberOf(value, numbers_)) return OkStatus();
  if (tag == "$tensor" || tag == "$parameter" || tag == "$numpy_array") {
    return CannotSay(value, "elements of which only a digest is known");
  }
  if (tag == "$opaque") {
    return CannotSay(value, fmt::format("a value that only its class understands: {}",
                                        value.Text().ok() ? *value.Text() : std::string()));
  }
  return Error(ErrorKind::kBadMetadata, "no known type of a value").Actual(Quote(tag));
}

Status FromJson::WriteObject(const JsonCursor& value) {
  CKPT_ASSIGN_OR_RETURN(const auto members, value.Members());
  if (members.size() == 1 && members[0].first.starts_with('$')) {
    return WriteTagged(members[0].first, members[0].second);
  }
  return WriteMembers(value);
}

Status FromJson::Write(const JsonCursor& value) {
  switch (value.kind()) {
    case JsonKind::kNull:
      pickle_.None();
      return OkStatus();
    case JsonKind::kBool: {
      CKPT_ASSIGN_OR_RETURN(const bool boolean, value.Bool());
      pickle_.Bool(boolean);
      return OkStatus();
    }
    case JsonKind::kInt:
    case JsonKind::kUint: {
      CKPT_ASSIGN_OR_RETURN(const std::int64_t integer, value.Int64());
      pickle_.Int(integer);
      return OkStatus();
    }
    case JsonKind::kFloat: {
      CKPT_ASSIGN_OR_RETURN(const double number, value.Double());
      pickle_.Float(number);
      return OkStatus();
    }
    case JsonKind::kText: {
      CKPT_ASSIGN_OR_RETURN(const std::string text, value.Text());
      pickle_.Text(text);
      return OkStatus();
    }
    case JsonKind::kArray:
      pickle_.BeginList();
      CKPT_RETURN_IF_ERROR(WriteItems(value));
      pickle_.EndList();
      return OkStatus();
    case JsonKind::kObject:
      return WriteObject(value);
  }
  return OkStatus();
}

Result<Bytes> Pickle(std::string_view json, std::string_view name, const HeldNumbers& numbers) {
  JsonLimits limits;
  limits.max_depth = kMaxJsonDepth;
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(json, name, limits));
  FromJson writer(numbers);
  CKPT_RETURN_IF_ERROR(writer.Write(document.root()));
  return writer.Take();
}

}  // namespace

std::optional<Bytes> BytesOfHex(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  Bytes bytes;
  for (; !digits.empty(); digits.remove_prefix(2)) {
    std::uint8_t byte = 0;
    const char* const behind = digits.data() + 2;
    const auto [end, error] = std::from_chars(digits.data(), behind, byte, 16);
    if (error != std::errc() || end != behind) return std::nullopt;
    bytes.push_back(static_cast<std::byte>(byte));
  }
  return bytes;
}

Result<Bytes> PickleFromJson(std::string_view json, std::string_view name) {
  return Pickle(json, name, {});
}

Status CheckSaysAll(std::string_view json, std::string_view name, const HeldNumbers& numbers) {
  return Pickle(json, name, numbers).status();
}

}  // namespace ckpt::pickle
