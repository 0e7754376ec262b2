// Writes the zip container of torch.save, byte for byte as torch lays it out.
#ifndef CKPT_FORMATS_ZIP_WRITER_H_
#define CKPT_FORMATS_ZIP_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"

namespace ckpt::zip {

// Bytes of an archive; between two parts lie the bytes of a record that the caller writes.
struct Part {
  std::uint64_t offset_bytes = 0;  // in the archive
  Bytes bytes;
};

// Lays out records one after the other. Payloads start at multiples of the alignment, counted from
// the archive's first byte. One thread.
//
//   Writer zip;
//   zip.Add("data.pkl", pickle);
//   const std::uint64_t at = zip.AddForeign("data/0", payload_bytes, payload_crc32);
//   zip.Add("version", AsBytes("3\n"));
//   const std::vector<Part> parts = std::move(zip).Finish();  // before and behind the payload
class Writer {
 public:
  static constexpr std::uint64_t kDefaultAlignment = 64;

  // `prefix` is the folder that all records lie in: torch writes "archive" into streams and the
  // file's stem into files.
  explicit Writer(std::string prefix = "archive", std::uint64_t alignment = kDefaultAlignment);

  void Add(std::string_view name, ByteSpan payload);

  // A record without its payload; returns where that begins. Only the bytes behind it depend on
  // `crc32`, and their number does not.
  std::uint64_t AddForeign(std::string_view name, std::uint64_t size_bytes, std::uint32_t crc32);

  // The directory and the end records follow; the zip64 ones always, as torch does. Returns one
  // part more than there are foreign records.
  [[nodiscard]] std::vector<Part> Finish() &&;

 private:
  struct Entry {
    std::string name;
    std::uint64_t header_at = 0;
    std::uint64_t size_bytes = 0;
    std::uint32_t crc32 = 0;
  };

  [[nodiscard]] Bytes& out() { return parts_.back().bytes; }
  [[nodiscard]] std::uint64_t position() const {
    return parts_.back().offset_bytes + parts_.back().bytes.size();
  }
  void BeginRecord(std::string_view name, std::uint64_t size_bytes, std::uint32_t crc32);
  void EndRecord();
  void WriteDirectoryEntry(const Entry& entry);

  std::string prefix_;
  std::uint64_t alignment_;
  std::vector<Part> parts_ = std::vector<Part>(1);
  std::vector<Entry> entries_;
};

}  // namespace ckpt::zip

#endif  // CKPT_FORMATS_ZIP_WRITER_H_
