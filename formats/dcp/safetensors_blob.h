// Tensors of data files saved with SerializationFormat.SAFETENSORS: one safetensors blob behind the
// pickled objects.
#ifndef CKPT_FORMATS_DCP_SAFETENSORS_BLOB_H_
#define CKPT_FORMATS_DCP_SAFETENSORS_BLOB_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "core/json/json_reader.h"
#include "core/tensor/shape.h"

namespace ckpt::dcp {

// Whether a safetensors header seems to start here; an archive never looks like one. Errors: kIo.
Result<bool> StartsSafetensorsBlob(const ReadableFile& file, std::uint64_t offset);

// Where the tensors of one blob lie.
//
// Thread-safety: immutable.
class SafetensorsBlob {
 public:
  // The blob that starts at `offset` and ends with the file.
  // Errors: kBadItem (no header), kBadMetadata (malformed header), kOverlap, kResource, kTruncated,
  // kIo.
  static Result<SafetensorsBlob> Open(const ReadableFile& file, std::uint64_t offset);

  [[nodiscard]] std::uint64_t header_bytes() const { return header_bytes_; }

  // The elements of `key`. `file`: what this was opened from.
  //
  // REQUIRES: CountBytes(sizes, dtype) is OK.
  // Errors: kBadItem (no such key), kBadMetadata, kDtypeMismatch, kShapeMismatch, kOutOfRange.
  [[nodiscard]] Result<StoredArray> Locate(std::shared_ptr<const ReadableFile> file,
                                           std::string_view key, DType dtype, DimsView sizes) const;

 private:
  SafetensorsBlob(JsonDocument header, std::string where, std::uint64_t header_bytes,
                  std::uint64_t payload_offset)
      : header_(std::move(header)),
        where_(std::move(where)),
        header_bytes_(header_bytes),
        payload_offset_(payload_offset) {}

  JsonDocument header_;
  std::string where_;
  std::uint64_t header_bytes_;
  std::uint64_t payload_offset_;
};

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_SAFETENSORS_BLOB_H_
