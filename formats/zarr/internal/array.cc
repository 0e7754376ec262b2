#include "formats/zarr/internal/array.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/quote.h"
#include "core/base/text_number.h"
#include "core/json/json_reader.h"
#include "core/tensor/shape.h"

namespace ckpt::zarr {
namespace {

constexpr std::int64_t kVersion = 2;

// numpy's names without the byte order. bfloat16 is no type of numpy's: TensorStore gives it this
// name, and without TensorStore it is two bytes of any kind.
constexpr std::array<std::pair<std::string_view, DType>, 14> kTypes = {{{"f8", DType::kFloat64},
                                                                        {"f4", DType::kFloat32},
                                                                        {"f2", DType::kFloat16},
                                                                        {"V2", DType::kBfloat16},
                                                                        {"i8", DType::kInt64},
                                                                        {"i4", DType::kInt32},
                                                                        {"i2", DType::kInt16},
                                                                        {"i1", DType::kInt8},
                                                                        {"u8", DType::kUint64},
                                                                        {"u4", DType::kUint32},
                                                                        {"u2", DType::kUint16},
                                                                        {"u1", DType::kUint8},
                                                                        {"b1", DType::kBool},
                                                                        {"c8", DType::kComplex64}}};
constexpr std::string_view kBfloat16 = "bfloat16";

Status ReadType(const JsonCursor& json, std::string_view name, Array& array) {
  CKPT_ASSIGN_OR_RETURN(const JsonCursor field, json.At("dtype"));
  CKPT_ASSIGN_OR_RETURN(const std::string text, field.Text());
  if (text == kBfloat16) {
    array.dtype = DType::kBfloat16;
    return OkStatus();
  }
  const bool has_order =
      !text.empty() && std::string_view("<>|").find(text[0]) != std::string::npos;
  const auto found = has_order ? std::ranges::find(kTypes, std::string_view(text).substr(1),
                                                   &decltype(kTypes)::value_type::first)
                               : kTypes.end();
  if (found == kTypes.end()) {
    return Error(ErrorKind::kUnsupported, "an array of this type is not read")
        .File(name)
        .Actual(Quote(text));
  }
  array.dtype = found->second;
  array.byte_swapped = text[0] == '>';
  if (text[0] == '|' && SwapUnitBytes(array.dtype) != 1 && array.dtype != DType::kBfloat16) {
    return Error(ErrorKind::kBadMetadata, "a type of several bytes without their order")
        .File(name)
        .Actual(Quote(text));
  }
  return OkStatus();
}

// What these arrays never have. A member that says nothing may be absent.
Status RefuseOthers(const JsonCursor& json, std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const JsonCursor version, json.At("zarr_format"));
  CKPT_ASSIGN_OR_RETURN(const std::int64_t number, version.Int64());
  if (number != kVersion) {
    return Error(ErrorKind::kUnsupported, "an array of another version of zarr")
        .File(name)
        .Expected(fmt::format("{}", kVersion))
        .Actual(fmt::format("{}", number));
  }
  for (const char* encoding : {"compressor", "filters"}) {
    const std::optional<JsonCursor> found = json.Find(encoding);
    if (!found || found->is_null()) continue;
    return Error(ErrorKind::kUnsupported, "the chunks of an array are encoded")
        .File(name)
        .Expected(fmt::format("{} null, as Megatron-Core writes arrays", encoding))
        .Actual(std::string(JsonKindName(found->kind())));
  }
  const std::array<std::pair<const char*, std::string_view>, 2> texts = {
      {{"order", "C"}, {"dimension_separator", "."}}};
  for (const auto& [member, expected] : texts) {
    const std::optional<JsonCursor> found = json.Find(member);
    if (!found) continue;
    CKPT_ASSIGN_OR_RETURN(const std::string value, found->Text());
    if (value == expected) continue;
    return Error(ErrorKind::kUnsupported, fmt::format("an array with another {}", member))
        .File(name)
        .Expected(expected)
        .Actual(Quote(value));
  }
  return OkStatus();
}

Result<Dims> ReadDims(const JsonCursor& json, const char* member) {
  CKPT_ASSIGN_OR_RETURN(const JsonCursor field, json.At(member));
  return field.Int64Array();
}

}  // namespace

Result<Array> ParseArray(std::string_view text, std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, name));
  const JsonCursor json = document.root();
  CKPT_RETURN_IF_ERROR(RefuseOthers(json, name));
  Array array;
  CKPT_RETURN_IF_ERROR(ReadType(json, name, array));
  CKPT_ASSIGN_OR_RETURN(array.shape, ReadDims(json, "shape"));
  CKPT_ASSIGN_OR_RETURN(array.chunk, ReadDims(json, "chunks"));
  const bool fits = array.chunk.size() == array.shape.size() && array.shape.size() <= kMaxDims &&
                    std::ranges::all_of(array.chunk, [](std::int64_t size) { return size > 0; });
  if (!fits) {
    return Error(ErrorKind::kBadMetadata, "the chunks of an array do not fit its shape")
        .File(name)
        .Expected(fmt::format("as many dims as {}, none of them 0", FormatDims(array.shape)))
        .Actual(FormatDims(array.chunk));
  }
  for (const Dims& dims : {array.shape, array.chunk}) {
    if (Status status = CountBytes(dims, array.dtype).status(); !status.ok()) {
      return std::move(status).File(name).Actual(FormatDims(dims));
    }
  }
  return array;
}

Dims GridOf(const Array& array) {
  Dims grid;
  for (std::size_t d = 0; d < array.shape.size(); ++d) {
    grid.push_back(array.shape[d] / array.chunk[d] +
                   (array.shape[d] % array.chunk[d] != 0 ? 1 : 0));
  }
  return grid;
}

std::string ChunkName(DimsView place) {
  return place.empty() ? "0" : fmt::format("{}", fmt::join(place, "."));
}

std::optional<Dims> ParseChunkName(std::string_view name, std::size_t ndim) {
  Dims place;
  std::string_view rest = name;
  while (!rest.empty()) {
    const std::optional<std::int64_t> number = TakeNumber<std::int64_t>(rest);
    if (!number || *number < 0) return std::nullopt;
    place.push_back(*number);
    TakePrefix(".", rest);
  }
  if (ndim == 0) place.clear();
  // The same numbers may be written in other ways, such as "01".
  const bool is_one = place.size() == ndim && ChunkName(place) == name;
  return is_one ? std::optional(std::move(place)) : std::nullopt;
}

Box ChunkBox(const Array& array, DimsView place) {
  Box box;
  for (std::size_t d = 0; d < array.shape.size(); ++d) {
    // The place is in the grid, so the product is below the shape.
    const std::int64_t offset = place[d] * array.chunk[d];
    box.offsets.push_back(offset);
    box.sizes.push_back(std::min(array.chunk[d], array.shape[d] - offset));
  }
  return box;
}

}  // namespace ckpt::zarr
