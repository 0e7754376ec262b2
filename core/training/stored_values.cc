#include "core/training/stored_values.h"

#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/endian.h"
#include "core/checkpoint/read.h"
#include "core/json/json_reader.h"
#include "core/layout/flatten_json.h"

namespace ckpt {
namespace {

// For the chunks of a tensor of one number.
constexpr std::uint64_t kNumberBudget = 1 << 16;

// The name of a member, without the part that says how Python wrapped its value
// (docs/formats/objects.md).
std::string_view PlainName(std::string_view name) {
  for (const std::string_view wrapping : {".$tuple", ".$dtype"}) {
    if (name.ends_with(wrapping)) return name.substr(0, name.size() - wrapping.size());
  }
  return name;
}

}  // namespace

Result<std::int64_t> ReadStoredInteger(const CheckpointSource& source, std::string_view key) {
  const ObjectEntry* entry = source.index().FindObject(key);
  if (entry == nullptr) {
    return Error(ErrorKind::kMissing, "the checkpoint has no such object").Tensor(key);
  }
  CKPT_ASSIGN_OR_RETURN(const RenderedObject object, source.ReadObject(*entry));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(object.json, key));
  Result<std::int64_t> value = json.root().Int64();
  if (!value.ok()) return std::move(value).status().Tensor(key);
  return value;
}

Result<double> ReadStoredNumber(const CheckpointSource& source, const GlobalTensor& tensor) {
  const auto bad = [&](std::string_view what) {
    return Error(ErrorKind::kBadMetadata, what)
        .Tensor(tensor.key)
        .Expected("one number of float32, float64, int32, int64 or bool")
        .Actual(fmt::format("{} {}", DTypeName(tensor.dtype), FormatDims(tensor.shape)));
  };
  CKPT_RETURN_IF_ERROR(source.index().CheckDeliverable(tensor.key));
  if (NumElements(tensor.shape) != 1) return bad("a stored number is not one");
  Bytes value(ElementBytes(tensor.dtype));
  CKPT_RETURN_IF_ERROR(ReadBox(source, tensor, WholeBox(tensor.shape), value, kNumberBudget));
  switch (tensor.dtype) {
    case DType::kFloat32:
      return static_cast<double>(LoadLe<float>(value.data()));
    case DType::kFloat64:
      return LoadLe<double>(value.data());
    case DType::kInt32:
      return static_cast<double>(LoadLe<std::int32_t>(value.data()));
    case DType::kInt64:
      return static_cast<double>(LoadLe<std::int64_t>(value.data()));
    case DType::kBool:
      return LoadLe<std::uint8_t>(value.data()) == 0 ? 0.0 : 1.0;
    default:
      return bad("a stored number has another type");
  }
}

Result<layout::Configuration> ReadStoredMembers(const CheckpointSource& source,
                                                std::string_view key, std::string_view prefix) {
  layout::Configuration members;
  const ObjectEntry* entry = source.index().FindObject(key);
  if (entry == nullptr) return members;
  CKPT_ASSIGN_OR_RETURN(const RenderedObject object, source.ReadObject(*entry));
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration flattened,
                        layout::FlattenJson(object.json, key));
  for (const auto& [name, value] : flattened) {
    if (!name.starts_with(prefix)) continue;
    members[std::string(PlainName(name).substr(prefix.size()))] = value;
  }
  return members;
}

}  // namespace ckpt
