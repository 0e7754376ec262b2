// Tensors of data files saved with SerializationFormat.SAFETENSORS: one safetensors blob behind the pickled objects.
#ifndef CKPT_FORMATS_DCP_SAFETENSORS_BLOB_H_
#define CKPT_FORMATS_DCP_SAFETENSORS_BLOB_H_

#include <cstdint>
#include <memory>
#include <string_view>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "core/tensor/shape.h"

namespace ckpt::dcp {

// Whether a safetensors header seems to start here; an archive never looks like one.
[[nodiscard]] bool StartsSafetensorsBlob(const ReadableFile& file, std::uint64_t offset);

// The elements of `key` in the blob that starts at `offset` and ends with the file.
//
// REQUIRES: CountBytes(sizes, dtype) is OK.
// Errors: kBadItem (no header, no such key), kBadMetadata (malformed header), kDtypeMismatch,
//         kShapeMismatch, kOutOfRange, kResource, kTruncated, kIo.
Result<StoredArray> LocateInSafetensorsBlob(std::shared_ptr<const ReadableFile> file,
                                            std::uint64_t offset, std::string_view key, DType dtype,
                                            DimsView sizes);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_SAFETENSORS_BLOB_H_
