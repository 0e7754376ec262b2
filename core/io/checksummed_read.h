// Reads bytes and computes their checksum at the same time.
#ifndef CKPT_CORE_IO_CHECKSUMMED_READ_H_
#define CKPT_CORE_IO_CHECKSUMMED_READ_H_

#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

// Fills `out` from `offset` and returns the CRC-32C of what was read. Errors: those of ReadAt.
//
// Cost: the read, plus a quarter of what a separate Crc32c after the read would take
// (ReadableFile::ReadInPieces).
Result<std::uint32_t> ReadAtWithCrc32c(const ReadableFile& file, std::uint64_t offset,
                                       MutableByteSpan out);

}  // namespace ckpt

#endif  // CKPT_CORE_IO_CHECKSUMMED_READ_H_
