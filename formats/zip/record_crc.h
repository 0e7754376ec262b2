// The CRC-32 of a record, verified without holding the record in memory.
#ifndef CKPT_FORMATS_ZIP_RECORD_CRC_H_
#define CKPT_FORMATS_ZIP_RECORD_CRC_H_

#include <cstdint>
#include <string_view>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::zip {

// Reads [offset, offset + size) in blocks of at most 1 MiB, unless the file's bytes are compared
// with checksums anyway. `record` appears in the error.
// Errors: kChecksum, kTruncated, kIo.
Status VerifyRecordCrc(const ReadableFile& file, std::string_view record, std::uint64_t offset,
                       std::uint64_t size_bytes, std::uint32_t expected_crc32);

}  // namespace ckpt::zip

#endif  // CKPT_FORMATS_ZIP_RECORD_CRC_H_
