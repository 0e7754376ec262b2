// Reads the blocks that describe what an HDF5 file holds. Every extent is checked against the file.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_STRUCTURE_FILE_H_
#define CKPT_FORMATS_HDF5_INTERNAL_STRUCTURE_FILE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::hdf5 {

// The address that stands for "nowhere".
inline constexpr std::uint64_t kUndefined = ~std::uint64_t{0};
inline constexpr std::string_view kSignature = "\x89HDF\r\n\x1a\n";
// A checksum ends most blocks.
inline constexpr std::size_t kChecksumBytes = 4;
// The dims that the library permits a data space to have.
inline constexpr std::size_t kMaxRank = 32;

// Little-endian fields, one after the other. Past the end every field is zero and `ok` is false, so
// that a caller asks once. The bytes must outlive this.
class FieldReader {
 public:
  // `at`: where `bytes` begin in the file.
  FieldReader(ByteSpan bytes, std::uint64_t at) : bytes_(bytes), at_(at) {}

  // A number of 0 to 8 bytes.
  std::uint64_t Uint(std::size_t num_bytes);
  std::uint8_t U8() { return static_cast<std::uint8_t>(Uint(1)); }
  std::uint16_t U16() { return static_cast<std::uint16_t>(Uint(2)); }
  std::uint32_t U32() { return static_cast<std::uint32_t>(Uint(4)); }
  std::uint64_t U64() { return Uint(8); }
  ByteSpan Take(std::uint64_t num_bytes);
  void Skip(std::uint64_t num_bytes) { Take(num_bytes); }
  // Text up to a NUL byte, which is skipped.
  std::string_view TextToNul();

  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] std::uint64_t at() const { return at_; }
  [[nodiscard]] std::uint64_t left() const { return bytes_.size(); }
  void Fail() { ok_ = false; }

 private:
  ByteSpan bytes_;
  std::uint64_t at_;
  bool ok_ = true;
};

// The checksum of HDF5's blocks: Bob Jenkins' lookup3 of 2006, from zero.
[[nodiscard]] std::uint32_t Lookup3(ByteSpan bytes);

class GlobalHeap;

// A file may begin with a block of another program, as those of MATLAB do: of 512 bytes, or twice
// as many, and so on. All addresses count from its end, where the superblock is; what is called an
// offset in the file does not.
//
// For one thread.
class StructureFile {
 public:
  // Looks for the superblock; without one the file has no such block. Errors: kIo.
  static Result<std::unique_ptr<StructureFile>> Open(std::shared_ptr<const ReadableFile> file);

  explicit StructureFile(std::shared_ptr<const ReadableFile> file, std::uint64_t user_block = 0);

  [[nodiscard]] const ReadableFile& file() const { return *file_; }
  [[nodiscard]] std::uint64_t user_block() const { return user_block_; }
  // From the superblock to the end.
  [[nodiscard]] std::uint64_t size_bytes() const { return file_->size_bytes() - user_block_; }
  // Errors: kOutOfRange (no file is so large).
  [[nodiscard]] Result<std::uint64_t> OffsetInFile(std::uint64_t address) const;
  [[nodiscard]] const std::shared_ptr<const ReadableFile>& shared() const { return file_; }

  // Errors: kOutOfRange (the block reaches past the file), kResource (too large, or blocks are read
  // so often that they must be entangled), kIo.
  Result<Bytes> Read(std::uint64_t offset, std::uint64_t length);
  // A block that begins with the four bytes `signature`. Errors: also kBadMetadata.
  Result<Bytes> ReadSigned(std::uint64_t offset, std::uint64_t length, std::string_view signature);
  // Counts bytes that are copied from blocks as if they were read: a small file may refer to a long
  // text any number of times. Errors: kResource.
  Status Charge(std::uint64_t num_bytes);
  // A block that is read once, however often it is asked for.
  Result<std::shared_ptr<const Bytes>> ReadShared(std::uint64_t offset, std::uint64_t length);

  // By address, those that were parsed. One that could not be read is null.
  [[nodiscard]] std::map<std::uint64_t, std::shared_ptr<const GlobalHeap>>& heaps() {
    return heaps_;
  }

  // kBadMetadata about the structure at `offset`.
  [[nodiscard]] Status Bad(std::uint64_t offset, std::string_view message) const;
  [[nodiscard]] Status Unsupported(std::uint64_t offset, std::string_view message) const;
  // Keeps a warning (kBadMetadata) about the structure at `offset`, which may be as it should: of
  // equal ones, the first.
  void Warn(std::uint64_t offset, std::string_view message);
  [[nodiscard]] std::vector<Problem> TakeWarnings() { return std::exchange(warnings_, {}); }
  // Compares the last four bytes of `block`, which was read at `offset`, with the checksum of the
  // bytes before them. Errors: kChecksum.
  [[nodiscard]] Status CheckSum(std::uint64_t offset, ByteSpan block) const;

 private:
  std::shared_ptr<const ReadableFile> file_;
  std::uint64_t user_block_;
  std::uint64_t budget_bytes_;
  std::vector<Problem> warnings_;
  std::map<std::uint64_t, std::shared_ptr<const Bytes>> shared_;
  std::map<std::uint64_t, std::shared_ptr<const GlobalHeap>> heaps_;
};

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_STRUCTURE_FILE_H_
