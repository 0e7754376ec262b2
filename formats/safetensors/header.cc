#include "formats/safetensors/header.h"

#include <algorithm>
#include <iterator>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/base/quote.h"
#include "core/io/git_lfs_pointer.h"
#include "core/json/json_scanner.h"
#include "core/tensor/shape.h"
#include "formats/safetensors/internal/distinct_names.h"

namespace ckpt::safetensors {
namespace {

constexpr std::string_view kMetadataKey = "__metadata__";

TextPairs ScanMetadata(JsonScanner& scan) {
  TextPairs pairs;
  std::string key;
  for (scan.BeginObject(); scan.NextMember(key);) pairs.emplace_back(key, scan.Text());
  std::vector<std::string_view> keys;
  for (const auto& [k, value] : pairs) keys.push_back(k);
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice != keys.end()) scan.Fail(ErrorKind::kBadMetadata, "metadata key twice", Quote(*twice));
  return pairs;
}

Dims ScanShape(JsonScanner& scan) {
  Dims shape;
  for (scan.BeginArray(); scan.NextItem();) {
    if (shape.size() == kMaxDims) {
      scan.Fail(ErrorKind::kResource, fmt::format("shape has more than {} dims", kMaxDims));
    }
    if (scan.Peek() == JsonKind::kInt) scan.Fail(ErrorKind::kBadMetadata, "negative size");
    shape.push_back(scan.Int());
  }
  return shape;
}

void ScanOffsets(JsonScanner& scan, TensorEntry& entry) {
  int count = 0;
  for (scan.BeginArray(); scan.NextItem(); ++count) {
    (count == 0 ? entry.begin : entry.end) = scan.Uint();
  }
  if (count != 2) scan.Fail(ErrorKind::kBadMetadata, "data_offsets are not a pair");
}

TensorEntry ScanTensor(JsonScanner& scan, std::string name) {
  TensorEntry entry;
  entry.name = std::move(name);
  bool has_dtype = false;
  bool has_shape = false;
  bool has_offsets = false;
  const auto once = [&scan](bool& seen, std::string_view field) {
    if (seen) scan.Fail(ErrorKind::kBadMetadata, "field twice", Quote(field));
    seen = true;
  };
  std::string field;
  for (scan.BeginObject(); scan.NextMember(field);) {
    if (field == "dtype") {
      once(has_dtype, field);
      const std::string text = scan.Text();
      const std::optional<StoredDType> dtype = ParseStoredDType(text);
      if (!dtype) scan.Fail(ErrorKind::kUnsupported, "unknown dtype", Quote(text));
      entry.dtype = dtype.value_or(StoredDType::kF32);
    } else if (field == "shape") {
      once(has_shape, field);
      entry.shape = ScanShape(scan);
    } else if (field == "data_offsets") {
      once(has_offsets, field);
      ScanOffsets(scan, entry);
    } else {
      scan.Fail(ErrorKind::kBadMetadata, "unknown field of a tensor", Quote(field));
    }
  }
  if (!has_dtype || !has_shape || !has_offsets) {
    scan.Fail(ErrorKind::kBadMetadata, "a tensor needs dtype, shape and data_offsets");
  }
  return entry;
}

// The extent's size is what dtype and shape need.
Status CheckExtent(const TensorEntry& entry) {
  if (entry.begin > entry.end) {
    return Error(ErrorKind::kOutOfRange, "tensor ends before it begins")
        .Actual(fmt::format("[{}, {})", entry.begin, entry.end));
  }
  CKPT_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(entry.shape));
  // The safetensors library multiplies in this order: an overflow is an error even if a later dim
  // is 0.
  std::uint64_t product = 1;
  for (const std::int64_t dim : entry.shape) {
    if (!CheckedMul(product, static_cast<std::uint64_t>(dim), &product)) {
      return Error(ErrorKind::kResource, "the number of elements overflows 64 bits")
          .Actual(FormatDims(entry.shape));
    }
  }
  std::uint64_t bits = 0;
  if (!CheckedMul(static_cast<std::uint64_t>(count), StoredBits(entry.dtype), &bits)) {
    return Error(ErrorKind::kResource, "the bit size overflows").Actual(FormatDims(entry.shape));
  }
  if (bits % 8 != 0) {
    return Error(ErrorKind::kSizeMismatch, "tensor ends inside a byte")
        .Actual(fmt::format("{} bits", bits));
  }
  if (entry.end - entry.begin != bits / 8) {
    return Error(ErrorKind::kSizeMismatch, "extent and shape disagree")
        .Expected(fmt::format("{} bytes for {} {}", bits / 8, StoredDTypeName(entry.dtype),
                              FormatDims(entry.shape)))
        .Actual(fmt::format("[{}, {})", entry.begin, entry.end));
  }
  return OkStatus();
}

// Extents tile the payload: no holes, no overlaps, no trailing bytes.
Status CheckTiling(std::span<const TensorEntry> tensors, std::uint64_t payload_bytes) {
  std::vector<const TensorEntry*> by_offset;
  by_offset.reserve(tensors.size());
  for (const TensorEntry& entry : tensors) by_offset.push_back(&entry);
  const auto before = [](const TensorEntry* a, const TensorEntry* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  };
  if (!std::is_sorted(by_offset.begin(), by_offset.end(), before)) {
    std::sort(by_offset.begin(), by_offset.end(), before);
  }
  std::uint64_t at = 0;
  for (const TensorEntry* entry : by_offset) {
    if (entry->begin != at) {
      const bool hole = entry->begin > at;
      return Error(hole ? ErrorKind::kBadMetadata : ErrorKind::kOverlap,
                   hole ? "bytes in front of a tensor belong to none" : "tensors share bytes")
          .Tensor(entry->name)
          .Expected(fmt::format("data_offsets from {}", at))
          .Actual(fmt::format("[{}, {})", entry->begin, entry->end));
    }
    at = entry->end;
  }
  if (at > payload_bytes) {
    return Error(ErrorKind::kTruncated, "the file is shorter than its tensors")
        .Tensor(by_offset.back()->name)
        .Expected(fmt::format("{} bytes behind the header", at))
        .Actual(fmt::format("{} bytes", payload_bytes))
        .Hint("the copy is incomplete: fetch the file again");
  }
  if (at < payload_bytes) {
    return Error(ErrorKind::kBadMetadata, "bytes behind the last tensor")
        .Expected(fmt::format("{} bytes behind the header", at))
        .Actual(fmt::format("{} bytes", payload_bytes));
  }
  return OkStatus();
}

std::vector<std::string_view> NamesOf(std::span<const TensorEntry> tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorEntry& entry : tensors) names.push_back(entry.name);
  return names;
}

// Escapes as serde_json does: the short forms that JSON has, \u00xx for other control characters,
// everything else unchanged.
void AppendQuoted(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

}  // namespace

const std::string* Header::FindMetadata(std::string_view key) const {
  if (!metadata) return nullptr;
  const auto it = std::find_if(metadata->begin(), metadata->end(),
                               [key](const auto& pair) { return pair.first == key; });
  return it == metadata->end() ? nullptr : &it->second;
}

Result<std::uint64_t> ParseHeaderLength(ByteSpan first_bytes, std::uint64_t file_bytes,
                                        std::string_view file) {
  if (file_bytes < kLengthBytes || first_bytes.size() < kLengthBytes) {
    return Error(ErrorKind::kTruncated, "file is too small for a safetensors header")
        .File(file)
        .Expected("at least 8 bytes")
        .Actual(fmt::format("{} bytes", file_bytes));
  }
  const auto length = LoadLe<std::uint64_t>(first_bytes.data());
  if (length > kMaxHeaderBytes) {
    return Error(ErrorKind::kResource, "safetensors header is larger than the format allows")
        .File(file)
        .Expected(fmt::format("at most {} bytes", kMaxHeaderBytes))
        .Actual(fmt::format("{} bytes", length))
        .Hint("this is probably not a safetensors file");
  }
  if (length > file_bytes - kLengthBytes) {
    return Error(ErrorKind::kTruncated, "file ends inside its header")
        .File(file)
        .Expected(fmt::format("{} bytes of header", length))
        .Actual(fmt::format("a file of {} bytes", file_bytes));
  }
  return length;
}

Result<Header> ParseHeader(std::string_view json, std::uint64_t payload_bytes,
                           std::string_view file) {
  Header header;
  header.payload_offset = kLengthBytes + json.size();
  JsonScanner scan(json, file);
  std::string key;
  bool has_metadata = false;
  for (scan.BeginObject(); scan.NextMember(key);) {
    if (key == kMetadataKey) {
      if (has_metadata) scan.Fail(ErrorKind::kBadMetadata, "__metadata__ twice");
      has_metadata = true;
      // The original reader takes null as if the key were not there.
      if (scan.Peek() == JsonKind::kNull) {
        scan.Skip();
      } else {
        header.metadata = ScanMetadata(scan);
      }
    } else {
      header.tensors.push_back(ScanTensor(scan, key));
    }
    if (!scan.ok()) return scan.Finish().Tensor(key == kMetadataKey ? "" : key);
  }
  CKPT_RETURN_IF_ERROR(scan.Finish());
  CKPT_RETURN_IF_ERROR(CheckDistinctNames(NamesOf(header.tensors)).File(file));
  for (const TensorEntry& entry : header.tensors) {
    if (Status status = CheckExtent(entry); !status.ok()) {
      return std::move(status).File(file).Tensor(entry.name);
    }
  }
  CKPT_RETURN_IF_ERROR(CheckTiling(header.tensors, payload_bytes).File(file));
  return header;
}

Result<Header> ReadHeader(const ReadableFile& file) {
  CKPT_RETURN_IF_ERROR(RefuseGitLfsPointer(file));
  Bytes first(std::min(file.size_bytes(), kLengthBytes));
  CKPT_RETURN_IF_ERROR(file.ReadAt(0, first));
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t length,
                        ParseHeaderLength(first, file.size_bytes(), file.name()));
  Bytes json(length);
  CKPT_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, json));
  return ParseHeader(AsText(json), file.size_bytes() - kLengthBytes - length, file.name());
}

Bytes SerializeHeader(const std::optional<TextPairs>& metadata,
                      const std::vector<TensorEntry>& tensors) {
  std::string json = "{";
  const auto begin_member = [&json](std::string_view key) {
    if (json.size() > 1) json += ',';
    AppendQuoted(key, json);
    json += ":{";
  };
  if (metadata) {
    begin_member(kMetadataKey);
    for (std::size_t i = 0; i < metadata->size(); ++i) {
      if (i != 0) json += ',';
      AppendQuoted((*metadata)[i].first, json);
      json += ':';
      AppendQuoted((*metadata)[i].second, json);
    }
    json += '}';
  }
  for (const TensorEntry& entry : tensors) {
    begin_member(entry.name);
    fmt::format_to(
        std::back_inserter(json), R"("dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
        StoredDTypeName(entry.dtype), fmt::join(entry.shape, ","), entry.begin, entry.end);
  }
  json += '}';
  json.resize(AlignUp(json.size(), std::size_t{8}), ' ');
  Bytes bytes;
  bytes.reserve(kLengthBytes + json.size());
  AppendLe(static_cast<std::uint64_t>(json.size()), bytes);
  Append(json, bytes);
  return bytes;
}

bool PrecedesInFile(const TensorEntry& a, const TensorEntry& b) {
  return a.dtype != b.dtype ? a.dtype > b.dtype : a.name < b.name;
}

}  // namespace ckpt::safetensors
