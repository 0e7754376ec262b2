#include "formats/dcp/item.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/codec/zstd.h"

namespace ckpt::dcp {
namespace {

constexpr std::uint64_t kReadBlockBytes = kMiB;

// The descriptors that follow the container's name.
std::vector<std::string_view> Transforms(std::string_view encoding) {
  std::vector<std::string_view> transforms;
  std::size_t plus = encoding.find('+');
  while (plus != std::string_view::npos) {
    const std::size_t next = encoding.find('+', plus + 1);
    transforms.push_back(encoding.substr(plus + 1, next - plus - 1));
    plus = next;
  }
  return transforms;
}

// A descriptor is `name/version`. Only the part of the version before its first point is compared.
bool IsKnown(std::string_view descriptor) {
  return descriptor == "stream.zstd/1" || descriptor.starts_with("stream.zstd/1.");
}

Result<Bytes> Decompress(const ReadableFile& file, std::uint64_t offset, std::uint64_t size_bytes,
                         std::uint64_t max_bytes) {
  ZstdDecoder decoder({.max_output_bytes = max_bytes});
  Bytes out;
  Bytes block(std::min(size_bytes, kReadBlockBytes));
  for (std::uint64_t done = 0; done < size_bytes;) {
    const MutableByteSpan part =
        MutableByteSpan(block).first(std::min<std::uint64_t>(block.size(), size_bytes - done));
    CKPT_RETURN_IF_ERROR(file.ReadAt(offset + done, part));
    CKPT_RETURN_IF_ERROR(decoder.Decode(part, out));
    done += part.size();
  }
  CKPT_RETURN_IF_ERROR(decoder.Finish());
  return out;
}

}  // namespace

Status CheckTransforms(std::string_view encoding) {
  for (const std::string_view transform : Transforms(encoding)) {
    if (IsKnown(transform)) continue;
    return Error(ErrorKind::kUnsupported, "unknown transform " + Quote(transform))
        .Expected("stream.zstd/1");
  }
  return OkStatus();
}

Result<DecodedItem> DecodeItem(std::shared_ptr<const ReadableFile> file, std::uint64_t offset,
                               std::uint64_t size_bytes, std::string_view encoding,
                               std::uint64_t max_bytes) {
  const std::string where = DescribeRange(file->name(), offset, size_bytes);
  DecodedItem item = {.file = std::move(file),
                      .offset_bytes = offset,
                      .size_bytes = size_bytes,
                      .resident_bytes = 0};
  const std::vector<std::string_view> transforms = Transforms(encoding);
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    // The output of one stage is the input of the next, so it may be a little larger than the next
    // one's output.
    const std::uint64_t stage_limit =
        max_bytes + (transforms.size() - 1 - i) * (max_bytes / 64 + kMiB);
    Result<Bytes> bytes = Decompress(*item.file, item.offset_bytes, item.size_bytes, stage_limit);
    if (!bytes.ok()) return std::move(bytes).status().File(where);
    item.offset_bytes = 0;
    item.size_bytes = bytes->size();
    item.resident_bytes = bytes->size();
    item.file = MakeMemoryFile(where, *std::move(bytes));
  }
  return item;
}

}  // namespace ckpt::dcp
