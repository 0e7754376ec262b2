// Blocks of files that a manifest covers: read, compared with their checksums, added up.
#ifndef CKPT_CORE_REPAIR_INTERNAL_CHECKED_BLOCK_H_
#define CKPT_CORE_REPAIR_INTERNAL_CHECKED_BLOCK_H_

#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/status.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"

namespace ckpt::internal {

// OK if `bytes` are what was written as block number `block` of `file`. Errors: kChecksum.
Status CheckBlock(const ManifestFile& file, std::uint64_t block, ByteSpan bytes);

// Reads a block of `file`, opened as `stored`, into the front of `buffer`, which becomes as long as the
// block. Errors: kChecksum, kTruncated, kIo.
Status ReadCheckedBlock(const ReadableFile& stored, const ManifestFile& file, std::uint64_t block,
                        Bytes& buffer);

// sum ^= bytes, where they are. REQUIRES: bytes.size() <= sum.size().
void XorInto(ByteSpan bytes, MutableByteSpan sum);

}  // namespace ckpt::internal

#endif  // CKPT_CORE_REPAIR_INTERNAL_CHECKED_BLOCK_H_
