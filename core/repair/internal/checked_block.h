// Reads blocks of files that a manifest covers, compares them with their checksums and combines
// them.
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

// Reads a block of `file`, which is open as `stored`, into `buffer`, and resizes `buffer` to the
// block's length. Errors: kChecksum, kTruncated, kIo.
Status ReadCheckedBlock(const ReadableFile& stored, const ManifestFile& file, std::uint64_t block,
                        Bytes& buffer);

// sum ^= bytes, for the first bytes.size() bytes. REQUIRES: bytes.size() <= sum.size().
void XorInto(ByteSpan bytes, MutableByteSpan sum);

}  // namespace ckpt::internal

#endif  // CKPT_CORE_REPAIR_INTERNAL_CHECKED_BLOCK_H_
