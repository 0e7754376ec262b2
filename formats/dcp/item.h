// One stored item of a data file: transforms undone, container opened.
#ifndef CKPT_FORMATS_DCP_ITEM_H_
#define CKPT_FORMATS_DCP_ITEM_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::dcp {

// The bytes of an item after all transforms.
struct DecodedItem {
  std::shared_ptr<const ReadableFile> file;  // the data file itself, or the decoded bytes in memory
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
  std::uint64_t resident_bytes = 0;  // what `file` holds in memory
};

// Whether DecodeItem can undo the transforms that `encoding` ("torch_save+stream.zstd/1") names.
//
// Errors: kUnsupported (another transform, or another version of it).
Status CheckTransforms(std::string_view encoding);

// Undoes the transforms that `encoding` names, in its order. Without any, nothing is read.
//
// REQUIRES: CheckTransforms(encoding) is OK.
// Errors: kResource (more than `max_bytes` come out), kBadItem, kChecksum, kTruncated, kIo.
Result<DecodedItem> DecodeItem(std::shared_ptr<const ReadableFile> file, std::uint64_t offset,
                               std::uint64_t size_bytes, std::string_view encoding,
                               std::uint64_t max_bytes);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_ITEM_H_
