#include "core/repair/internal/checked_block.h"

#include <string_view>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/manifest/find_damage.h"

namespace ckpt::internal {

Status CheckBlock(const ManifestFile& file, std::uint64_t block, ByteSpan bytes) {
  const auto compare = [&](std::string_view name, std::uint32_t expected, std::uint32_t actual) {
    if (actual == expected) return OkStatus();
    return Status(Error(ErrorKind::kChecksum, "block differs from what was written")
                      .File(DescribeRange(file.name, block * kManifestBlockBytes, bytes.size()))
                      .Expected(fmt::format("{} {}", name, Hex32(expected)))
                      .Actual(fmt::format("{} {}", name, Hex32(actual))));
  };
  CKPT_RETURN_IF_ERROR(compare("crc32c", file.block_crc32c[block], Crc32c(bytes)));
  if (file.block_crc32.empty()) return OkStatus();
  return compare("crc32", file.block_crc32[block], Crc32(bytes));
}

Status ReadCheckedBlock(const ReadableFile& stored, const ManifestFile& file, std::uint64_t block,
                        Bytes& buffer) {
  const BlockExtent extent = ExtentOfBlock(block, file.size_bytes);
  buffer.resize(extent.size_bytes);
  CKPT_RETURN_IF_ERROR(stored.ReadAt(extent.offset_bytes, buffer));
  return CheckBlock(file, block, buffer);
}

void XorInto(ByteSpan bytes, MutableByteSpan sum) {
  CKPT_CHECK(bytes.size() <= sum.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) sum[i] ^= bytes[i];
}

}  // namespace ckpt::internal
