// Compares what a file holds with what was written into it.
#ifndef CKPT_CORE_EXEC_INTERNAL_READ_BACK_H_
#define CKPT_CORE_EXEC_INTERNAL_READ_BACK_H_

#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/base/status.h"
#include "core/checkpoint/write_plan.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"

namespace ckpt {

// Reads the whole item: `hasher` takes its payload, in blocks as large as `buffer`; head and tail
// must be those of the framing. `file` was opened after the item was written: otherwise it may show
// what was there before. Errors: kValueMismatch; those of reading.
Status ReadBackItem(const ReadableFile& file, const ItemFraming& framing,
                    const TargetTensor& tensor, const WriteItem& item, MutableByteSpan buffer,
                    Hasher& hasher);

// The same of head and tail alone. `written`: the item as it was written.
Status ReadBackAround(const ReadableFile& file, const ItemFraming& framing,
                      const TargetTensor& tensor, const WriteItem& item, const WrittenItem& written,
                      MutableByteSpan buffer);

// `written` must lie at this offset. Errors: as above.
Status ReadBackBytes(const ReadableFile& file, std::uint64_t offset_bytes, ByteSpan written,
                     MutableByteSpan buffer);

// `written`: the name, the size and the checksums of the whole file. Errors: as above.
Status ReadBackFile(const ReadableFile& file, const ManifestFile& written);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_READ_BACK_H_
