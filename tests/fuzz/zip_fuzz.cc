// Any bytes as a zip archive of torch.save, every record of it read.

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/io/storage.h"
#include "formats/zip/reader.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t kMaxRecordBytes = 1 << 16;
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = ckpt::MakeMemoryFile("fuzz", ckpt::Bytes(bytes.begin(), bytes.end()));
  const auto archive = ckpt::zip::Archive::Open(file, 0, size);
  if (!archive.ok()) return 0;
  for (const ckpt::zip::Record& record : archive->records()) {
    CKPT_CHECK(ckpt::RangeFits(record.offset_bytes, record.size_bytes, size));
    CKPT_CHECK(archive->Find(record.name) == &record);
    const auto content = archive->Read(record, kMaxRecordBytes);
    CKPT_CHECK(!content.ok() || content->size() == record.size_bytes);
  }
  return 0;
}
