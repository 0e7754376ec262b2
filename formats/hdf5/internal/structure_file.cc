#include "formats/hdf5/internal/structure_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/base/units.h"

namespace ckpt::hdf5 {
namespace {

// A compact group of a million data sets stays below it.
constexpr std::uint64_t kMaxBlockBytes = 256 * kMiB;
// What may be read more than once, and what every read costs besides its bytes.
constexpr std::uint64_t kTimesRead = 4;
constexpr std::uint64_t kBytesOfARead = 8;

}  // namespace

std::uint64_t FieldReader::Uint(std::size_t num_bytes) {
  std::array<std::byte, sizeof(std::uint64_t)> raw = {};
  const ByteSpan bytes = Take(num_bytes);
  std::ranges::copy(bytes.first(std::min(bytes.size(), raw.size())), raw.begin());
  return LoadLe<std::uint64_t>(raw.data());
}

ByteSpan FieldReader::Take(std::uint64_t num_bytes) {
  if (!ok_ || num_bytes > bytes_.size()) {
    ok_ = false;
    return {};
  }
  const ByteSpan taken = bytes_.first(num_bytes);
  bytes_ = bytes_.subspan(num_bytes);
  at_ += num_bytes;
  return taken;
}

std::string_view FieldReader::TextToNul() {
  const std::size_t end = AsText(bytes_).find('\0');
  if (end == std::string_view::npos) {
    ok_ = false;
    return {};
  }
  const std::string_view text = AsText(Take(end));
  Skip(1);
  return text;
}

std::uint32_t Lookup3(ByteSpan bytes) {
  constexpr std::size_t kStep = 12;
  std::uint32_t a = 0xdeadbeef + static_cast<std::uint32_t>(bytes.size());
  std::uint32_t b = a;
  std::uint32_t c = a;
  if (bytes.empty()) return c;
  const auto add = [&](ByteSpan part) {
    std::array<std::byte, kStep> raw = {};
    std::ranges::copy(part, raw.begin());
    a += LoadLe<std::uint32_t>(raw.data());
    b += LoadLe<std::uint32_t>(raw.data() + 4);
    c += LoadLe<std::uint32_t>(raw.data() + 8);
  };
  while (bytes.size() > kStep) {
    add(bytes.first(kStep));
    bytes = bytes.subspan(kStep);
    a -= c, a ^= std::rotl(c, 4), c += b;
    b -= a, b ^= std::rotl(a, 6), a += c;
    c -= b, c ^= std::rotl(b, 8), b += a;
    a -= c, a ^= std::rotl(c, 16), c += b;
    b -= a, b ^= std::rotl(a, 19), a += c;
    c -= b, c ^= std::rotl(b, 4), b += a;
  }
  add(bytes);
  c ^= b, c -= std::rotl(b, 14);
  a ^= c, a -= std::rotl(c, 11);
  b ^= a, b -= std::rotl(a, 25);
  c ^= b, c -= std::rotl(b, 16);
  a ^= c, a -= std::rotl(c, 4);
  b ^= a, b -= std::rotl(a, 14);
  c ^= b, c -= std::rotl(b, 24);
  return c;
}

Result<std::unique_ptr<StructureFile>> StructureFile::Open(
    std::shared_ptr<const ReadableFile> file) {
  constexpr std::uint64_t kSmallestUserBlock = 512;
  std::array<std::byte, kSignature.size()> head = {};
  std::uint64_t at = 0;
  while (RangeFits(at, head.size(), file->size_bytes())) {
    CKPT_RETURN_IF_ERROR(file->ReadAt(at, head));
    if (AsText(head) == kSignature) return std::make_unique<StructureFile>(std::move(file), at);
    at = std::max(2 * at, kSmallestUserBlock);
  }
  return std::make_unique<StructureFile>(std::move(file));
}

StructureFile::StructureFile(std::shared_ptr<const ReadableFile> file, std::uint64_t user_block)
    : file_(std::move(file)), user_block_(user_block), budget_bytes_(kMiB) {
  std::uint64_t allowed = 0;
  const bool fits = CheckedMul(file_->size_bytes(), kTimesRead, &allowed) &&
                    CheckedAdd(allowed, budget_bytes_, &allowed);
  budget_bytes_ = fits ? allowed : kUndefined;
}

Result<std::uint64_t> StructureFile::OffsetInFile(std::uint64_t address) const {
  std::uint64_t offset = 0;
  if (CheckedAdd(address, user_block_, &offset)) return offset;
  return Error(ErrorKind::kOutOfRange, "an address lies outside the file")
      .File(file_->name())
      .Actual(std::to_string(address));
}

Result<Bytes> StructureFile::Read(std::uint64_t offset, std::uint64_t length) {
  const auto where = [&] { return DescribeRange(file_->name(), user_block_ + offset, length); };
  if (!RangeFits(offset, length, size_bytes())) {
    return Error(ErrorKind::kOutOfRange, "a block of the structure lies outside the file")
        .File(where())
        .Actual(fmt::format("{} bytes in the file", file_->size_bytes()));
  }
  if (length > kMaxBlockBytes) {
    return Error(ErrorKind::kResource, "a block of the structure is too large").File(where());
  }
  if (Status status = Charge(length + kBytesOfARead); !status.ok()) {
    return std::move(status).File(where());
  }
  Bytes bytes(length);
  CKPT_RETURN_IF_ERROR(file_->ReadAt(user_block_ + offset, bytes));
  return bytes;
}

Status StructureFile::Charge(std::uint64_t num_bytes) {
  if (num_bytes > budget_bytes_) {
    return Error(ErrorKind::kResource, "the blocks of the structure point at each other too often")
        .File(file_->name());
  }
  budget_bytes_ -= num_bytes;
  return OkStatus();
}

Result<Bytes> StructureFile::ReadSigned(std::uint64_t offset, std::uint64_t length,
                                        std::string_view signature) {
  CKPT_ASSIGN_OR_RETURN(Bytes bytes, Read(offset, length));
  if (AsText(bytes).starts_with(signature)) return bytes;
  return Bad(offset, fmt::format("no {} block where one is announced", signature));
}

Result<std::shared_ptr<const Bytes>> StructureFile::ReadShared(std::uint64_t offset,
                                                               std::uint64_t length) {
  const auto found = shared_.find(offset);
  if (found != shared_.end() && found->second->size() == length) return found->second;
  CKPT_ASSIGN_OR_RETURN(Bytes bytes, Read(offset, length));
  auto block = std::make_shared<const Bytes>(std::move(bytes));
  shared_[offset] = block;
  return block;
}

Status StructureFile::Bad(std::uint64_t offset, std::string_view message) const {
  return Error(ErrorKind::kBadMetadata, message)
      .File(fmt::format("{} [{}]", file_->name(), user_block_ + offset));
}

Status StructureFile::Unsupported(std::uint64_t offset, std::string_view message) const {
  return Error(ErrorKind::kUnsupported, message)
      .File(fmt::format("{} [{}]", file_->name(), user_block_ + offset));
}

void StructureFile::Warn(std::uint64_t offset, std::string_view message) {
  if (std::ranges::find(warnings_, message, &Problem::message) != warnings_.end()) return;
  Problem warning = Bad(offset, message).first();
  warning.severity = Severity::kWarning;
  warnings_.push_back(std::move(warning));
}

Status StructureFile::CheckSum(std::uint64_t offset, ByteSpan block) const {
  if (block.size() < kChecksumBytes) return Bad(offset, "a block is too small for its checksum");
  const ByteSpan body = block.first(block.size() - kChecksumBytes);
  const auto stored = LoadLe<std::uint32_t>(block.data() + body.size());
  const std::uint32_t computed = Lookup3(body);
  if (stored == computed) return OkStatus();
  return Error(ErrorKind::kChecksum, "the checksum of a block of the structure differs")
      .File(DescribeRange(file_->name(), user_block_ + offset, block.size()))
      .Expected(fmt::format("{:08x}", stored))
      .Actual(fmt::format("{:08x}", computed));
}

}  // namespace ckpt::hdf5
