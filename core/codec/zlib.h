// zlib streams (deflate with a checksum) with bounded output: HDF5's filter "deflate".
#ifndef CKPT_CORE_CODEC_ZLIB_H_
#define CKPT_CORE_CODEC_ZLIB_H_

#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace ckpt {

// The one stream that begins with `input`; bytes behind it are ignored, as HDF5 does. Memory grows
// with real output only.
//
// Errors: kBadItem (no zlib stream, or a damaged one), kChecksum, kTruncated, kResource (more than
// `max_output_bytes`), kSystem (memory ran out).
Result<Bytes> ZlibDecompress(ByteSpan input, std::uint64_t max_output_bytes);

}  // namespace ckpt

#endif  // CKPT_CORE_CODEC_ZLIB_H_
