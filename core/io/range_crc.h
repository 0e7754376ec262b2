// The CRC-32 of a range of a file, compared without holding the range in memory.
#ifndef CKPT_CORE_IO_RANGE_CRC_H_
#define CKPT_CORE_IO_RANGE_CRC_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt {

// Reads [offset, offset + size) in blocks of at most 1 MiB, unless the file's bytes are compared
// with checksums anyway. `what` names the range in the error: "record data/0".
// Errors: kChecksum, kTruncated, kIo.
Status VerifyRangeCrc32(const ReadableFile& file, std::string_view what, std::uint64_t offset,
                        std::uint64_t size_bytes, std::uint32_t expected_crc32);

// The same while somebody reads all of the range, in order: the read that ends it fails if the
// bytes differ, so until then nobody may use them, and so does every read after it. A read at
// another place first compares the whole range. `file` itself if its bytes are compared anyway.
//
// Thread-safety: for one thread, unlike other files.
std::shared_ptr<const ReadableFile> CheckCrc32InOrder(std::shared_ptr<const ReadableFile> file,
                                                      std::string what, std::uint64_t offset,
                                                      std::uint64_t size_bytes,
                                                      std::uint32_t expected_crc32);

}  // namespace ckpt

#endif  // CKPT_CORE_IO_RANGE_CRC_H_
