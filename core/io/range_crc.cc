#include "core/io/range_crc.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "core/base/units.h"

namespace ckpt {

Status VerifyRangeCrc32(const ReadableFile& file, std::string_view what, std::uint64_t offset,
                        std::uint64_t size_bytes, std::uint32_t expected_crc32) {
  if (file.is_checked()) return OkStatus();
  Bytes block(std::min<std::uint64_t>(size_bytes, kMiB));
  std::uint32_t actual = 0;
  for (std::uint64_t done = 0; done < size_bytes;) {
    const MutableByteSpan part =
        MutableByteSpan(block).first(std::min<std::uint64_t>(block.size(), size_bytes - done));
    CKPT_RETURN_IF_ERROR(file.ReadAt(offset + done, part));
    actual = Crc32(part, actual);
    done += part.size();
  }
  if (actual == expected_crc32) return OkStatus();
  return Error(ErrorKind::kChecksum, fmt::format("CRC-32 of {} differs", what))
      .File(DescribeRange(file.name(), offset, size_bytes))
      .Expected(Hex32(expected_crc32))
      .Actual(Hex32(actual));
}

}  // namespace ckpt
