// Reading bytes together with their checksum.
#ifndef CKPT_CORE_IO_CHECKSUMMED_READ_H_
#define CKPT_CORE_IO_CHECKSUMMED_READ_H_

#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

// Fills `out` from `offset`; the CRC-32C of what was read. Errors: those of ReadAt.
//
// Cost: beside the read, a quarter of what Crc32c takes behind it. The kernel copies a long read past the
// processor's caches, so that a checksum fetches everything from memory again; here each piece is summed
// up before the next one comes.
Result<std::uint32_t> ReadAtWithCrc32c(const ReadableFile& file, std::uint64_t offset,
                                       MutableByteSpan out);

}  // namespace ckpt

#endif  // CKPT_CORE_IO_CHECKSUMMED_READ_H_
