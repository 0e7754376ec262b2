// Writes the zip container of torch.save, byte for byte as torch lays it out.
#ifndef CKPT_FORMATS_ZIP_WRITER_H_
#define CKPT_FORMATS_ZIP_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"

namespace ckpt::zip {

// An archive with at most one record whose bytes the caller writes: `head` comes before them,
// `tail` behind.
struct Framing {
  Bytes head;
  Bytes tail;  // empty if every record was given as bytes
};

// Lays out records one after the other. Payloads start at multiples of the alignment, counted from
// the archive's first byte. One thread.
//
//   Writer zip;
//   zip.Add("data.pkl", pickle);
//   zip.AddForeign("data/0", payload_bytes, payload_crc32);
//   zip.Add("version", AsBytes("3\n"));
//   Framing framing = std::move(zip).Finish();
class Writer {
 public:
  static constexpr std::uint64_t kDefaultAlignment = 64;

  // `prefix` is the folder that all records lie in: torch writes "archive" into streams and the
  // file's stem into files.
  explicit Writer(std::string prefix = "archive", std::uint64_t alignment = kDefaultAlignment);

  void Add(std::string_view name, ByteSpan payload);

  // A record without its payload. The bytes before the payload do not depend on `crc32`.
  // REQUIRES: the only one.
  void AddForeign(std::string_view name, std::uint64_t size_bytes, std::uint32_t crc32);

  // The directory and the end records follow; the zip64 ones always, as torch does.
  [[nodiscard]] Framing Finish() &&;

 private:
  struct Entry {
    std::string name;
    std::uint64_t header_at = 0;
    std::uint64_t size_bytes = 0;
    std::uint32_t crc32 = 0;
  };

  [[nodiscard]] Bytes& out() { return has_foreign_ ? framing_.tail : framing_.head; }
  [[nodiscard]] std::uint64_t position() const {
    return framing_.head.size() + foreign_bytes_ + framing_.tail.size();
  }
  void BeginRecord(std::string_view name, std::uint64_t size_bytes, std::uint32_t crc32);
  void EndRecord();
  void WriteDirectoryEntry(const Entry& entry);

  std::string prefix_;
  std::uint64_t alignment_;
  Framing framing_;
  bool has_foreign_ = false;
  std::uint64_t foreign_bytes_ = 0;
  std::vector<Entry> entries_;
};

}  // namespace ckpt::zip

#endif  // CKPT_FORMATS_ZIP_WRITER_H_
