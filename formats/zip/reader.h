// The zip container of torch.save: where each record's bytes lie. They are checked before use.
#ifndef CKPT_FORMATS_ZIP_READER_H_
#define CKPT_FORMATS_ZIP_READER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::zip {

struct Record {
  std::string name;                // without the archive's prefix: "data.pkl", "data/0"
  std::uint64_t offset_bytes = 0;  // of the payload, in the file
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32 = 0;
};

// The error of an archive that torch.jit.save wrote.
[[nodiscard]] Status TorchScriptError(std::string_view archive);
// The same of torch.export.save.
[[nodiscard]] Status ExportArchiveError(std::string_view archive);

// The records of an archive that lies in a byte range of a file, as docs/formats/torch_save.md
// describes it: stored (never compressed) and below one common folder, the prefix.
//
// Invariants: every record lies inside the range, its local header agrees with the central
// directory, no two records overlap, names are unique. Thread-safety: const methods are
// thread-safe.
class Archive {
 public:
  // Errors: kBadItem (no archive, or one that breaks an invariant), kTruncated (the range is the
  // whole file and has no end record: the file was cut; or the file ends inside the range),
  // kUnsupported (TorchScript, torch.export; compressed, encrypted or split archives), kResource (a
  // directory of absurd size), kIo.
  // Cost: two small reads for archives of a few records.
  static Result<Archive> Open(std::shared_ptr<const ReadableFile> file, std::uint64_t offset,
                              std::uint64_t length);

  // In the order of the central directory. Records outside the prefix are left out and are in
  // `warnings`.
  [[nodiscard]] std::span<const Record> records() const { return records_; }
  // nullptr if there is none.
  [[nodiscard]] const Record* Find(std::string_view name) const;
  // "archive/"
  [[nodiscard]] const std::string& prefix() const { return prefix_; }
  // False if the writer computed no checksums: then all are 0 and Verify proves nothing.
  [[nodiscard]] bool has_checksums() const { return has_checksums_; }
  [[nodiscard]] const std::shared_ptr<const ReadableFile>& file() const { return file_; }
  [[nodiscard]] const std::vector<Problem>& warnings() const { return warnings_; }

  // The verified bytes of a record. Errors: kResource past `max_bytes`, and those of Verify.
  [[nodiscard]] Result<Bytes> Read(const Record& record, std::uint64_t max_bytes) const;

  // Reads the record once, in blocks, and compares its CRC-32. Errors: kChecksum, kTruncated, kIo.
  [[nodiscard]] Status Verify(const Record& record) const;

 private:
  explicit Archive(std::shared_ptr<const ReadableFile> file) : file_(std::move(file)) {}

  std::shared_ptr<const ReadableFile> file_;
  std::string prefix_;
  std::vector<Record> records_;
  std::unordered_map<std::string, std::size_t> by_name_;  // in lower case
  bool has_checksums_ = false;
  std::vector<Problem> warnings_;
};

}  // namespace ckpt::zip

#endif  // CKPT_FORMATS_ZIP_READER_H_
