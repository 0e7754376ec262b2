// LZF (Marc Lehmann's LibLZF) with bounded output: h5py's filter "lzf".
#ifndef CKPT_CORE_CODEC_LZF_H_
#define CKPT_CORE_CODEC_LZF_H_

#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace ckpt {

// The format has no checksum and no end: all of `input` is one block. Memory grows with real output
// only.
//
// Errors: kTruncated, kBadItem (it refers to bytes before the first), kResource (more than
// `max_output_bytes`).
Result<Bytes> LzfDecompress(ByteSpan input, std::uint64_t max_output_bytes);

}  // namespace ckpt

#endif  // CKPT_CORE_CODEC_LZF_H_
