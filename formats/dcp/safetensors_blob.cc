#include "formats/dcp/safetensors_blob.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "formats/safetensors/header.h"
#include "formats/safetensors/stored_dtype.h"

namespace ckpt::dcp {
namespace {

using safetensors::kLengthBytes;
using safetensors::kMaxHeaderBytes;

// Length of the header that starts at `offset`; nothing if no header can start there.
Result<std::optional<std::uint64_t>> HeaderBytes(const ReadableFile& file, std::uint64_t offset) {
  constexpr std::optional<std::uint64_t> kNone;
  std::array<std::byte, kLengthBytes + 1> start{};
  if (!RangeFits(offset, start.size(), file.size_bytes())) return kNone;
  CKPT_RETURN_IF_ERROR(file.ReadAt(offset, start));
  const auto size = LoadLe<std::uint64_t>(start.data());
  if (start[kLengthBytes] != std::byte{'{'} || size > kMaxHeaderBytes ||
      !RangeFits(offset + kLengthBytes, size, file.size_bytes())) {
    return kNone;
  }
  return std::optional(size);
}

// The format demands this. Otherwise many keys could share the same bytes, which would then be read
// again for each key.
Status CheckDisjoint(const JsonDocument& header, const std::string& where) {
  using Members = std::vector<std::pair<std::string, JsonCursor>>;
  CKPT_ASSIGN_OR_RETURN(const Members members, header.root().Members());
  std::vector<std::pair<std::int64_t, std::int64_t>> extents;
  for (const auto& [key, entry] : members) {
    const std::optional<JsonCursor> field = entry.Find("data_offsets");
    if (!field) continue;  // __metadata__
    CKPT_ASSIGN_OR_RETURN(const Dims extent, field->Int64Array());
    if (extent.size() == 2 && extent[0] < extent[1]) extents.emplace_back(extent[0], extent[1]);
  }
  std::ranges::sort(extents);
  for (std::size_t i = 1; i < extents.size(); ++i) {
    if (extents[i].first >= extents[i - 1].second) continue;
    return Error(ErrorKind::kOverlap, "tensors of a safetensors blob share bytes").File(where);
  }
  return OkStatus();
}

}  // namespace

Result<bool> StartsSafetensorsBlob(const ReadableFile& file, std::uint64_t offset) {
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> size, HeaderBytes(file, offset));
  return size.has_value();
}

Result<SafetensorsBlob> SafetensorsBlob::Open(const ReadableFile& file, std::uint64_t offset) {
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::uint64_t> header_bytes, HeaderBytes(file, offset));
  if (!header_bytes) {
    return Error(ErrorKind::kBadItem, "not a safetensors blob").File(file.name());
  }
  Bytes header(*header_bytes);
  CKPT_RETURN_IF_ERROR(file.ReadAt(offset + kLengthBytes, header));
  std::string where = DescribeRange(file.name(), offset, kLengthBytes + *header_bytes);
  CKPT_ASSIGN_OR_RETURN(JsonDocument document, JsonDocument::Parse(AsText(header), where));
  CKPT_RETURN_IF_ERROR(CheckDisjoint(document, where));
  return SafetensorsBlob(std::move(document), std::move(where), *header_bytes,
                         offset + kLengthBytes + *header_bytes);
}

Result<StoredArray> SafetensorsBlob::Locate(std::shared_ptr<const ReadableFile> file,
                                            std::string_view key, DType dtype,
                                            DimsView sizes) const {
  const std::optional<JsonCursor> entry = header_.root().Find(key);
  if (!entry) {
    return Error(ErrorKind::kBadItem, "the data file's safetensors blob lacks the key")
        .File(where_);
  }
  CKPT_ASSIGN_OR_RETURN(const JsonCursor dtype_field, entry->At("dtype"));
  CKPT_ASSIGN_OR_RETURN(const std::string stored_dtype, dtype_field.Text());
  CKPT_ASSIGN_OR_RETURN(const JsonCursor shape_field, entry->At("shape"));
  CKPT_ASSIGN_OR_RETURN(const Dims shape, shape_field.Int64Array());
  CKPT_ASSIGN_OR_RETURN(const JsonCursor extent_field, entry->At("data_offsets"));
  CKPT_ASSIGN_OR_RETURN(const Dims extent, extent_field.Int64Array());
  if (!SameDims(shape, sizes)) {
    return Error(ErrorKind::kShapeMismatch, "the stored tensor's shape is not that of its chunk")
        .File(where_)
        .Expected(FormatDims(sizes))
        .Actual(FormatDims(shape));
  }
  const std::optional<safetensors::StoredDType> own = safetensors::FromDType(dtype);
  if (!own || stored_dtype != safetensors::StoredDTypeName(*own)) {
    return Error(ErrorKind::kDtypeMismatch, "the stored tensor's dtype is not that of the metadata")
        .File(where_)
        .Expected(DTypeName(dtype))
        .Actual(stored_dtype);
  }
  const std::uint64_t size = NumBytes(sizes, dtype);
  if (extent.size() != 2 || extent[0] < 0 || extent[1] < extent[0] ||
      static_cast<std::uint64_t>(extent[1] - extent[0]) != size ||
      !RangeFits(static_cast<std::uint64_t>(extent[0]), size,
                 file->size_bytes() - payload_offset_)) {
    return Error(ErrorKind::kOutOfRange, "a tensor lies outside its safetensors blob")
        .File(where_)
        .Actual(FormatDims(extent));
  }
  StoredArray array;
  array.file = std::move(file);
  array.offset_bytes = payload_offset_ + static_cast<std::uint64_t>(extent[0]);
  array.dtype = dtype;
  array.strides = ContiguousStrides(sizes);
  return array;
}

}  // namespace ckpt::dcp
