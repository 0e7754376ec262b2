#include "core/exec/internal/journal.h"

#include <optional>
#include <string_view>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/base/units.h"

namespace ckpt {
namespace {

constexpr std::string_view kMagic = "CKPTJNL4";
constexpr std::size_t kHashDigits = 32;
constexpr std::size_t kHeaderBytes = kMagic.size() + kHashDigits;
constexpr std::size_t kFrameBytes = 4 + 4;  // length, CRC-32C of the body
constexpr std::size_t kFixedBodyBytes = 4 + 8 + kHashDigits + 4 + 4;
constexpr std::size_t kPieceBytes = 4 + 8 + 4 + 4 + 4;
constexpr std::size_t kItemBytes = 8 + 8 + 4;
constexpr std::uint64_t kMaxJournalBytes = 4 * kGiB;

Bytes Header(const std::string& plan_hash) {
  CKPT_CHECK(plan_hash.size() == kHashDigits);
  Bytes header;
  Append(kMagic, header);
  Append(plan_hash, header);
  return header;
}

Bytes EncodeBody(const JournalRecord& record) {
  CKPT_CHECK(record.digest.size() == kHashDigits);
  Bytes body;
  body.reserve(kFixedBodyBytes + kPieceBytes * record.pieces.size() +
               kItemBytes * record.items.size());
  AppendLe(record.tensor, body);
  AppendLe(record.cast_overflows, body);
  Append(record.digest, body);
  AppendLe(static_cast<std::uint32_t>(record.pieces.size()), body);
  AppendLe(static_cast<std::uint32_t>(record.items.size()), body);
  for (const auto& [file, piece] : record.pieces) {
    AppendLe(file, body);
    AppendLe(piece.offset_bytes, body);
    AppendLe(piece.length_bytes, body);
    AppendLe(piece.crc32c, body);
    AppendLe(piece.crc32, body);
  }
  for (const WrittenItem& item : record.items) {
    AppendLe(item.extent.offset_bytes, body);
    AppendLe(item.extent.size_bytes, body);
    AppendLe(item.payload_crc32, body);
  }
  return body;
}

std::optional<JournalRecord> DecodeBody(ByteSpan body) {
  if (body.size() < kFixedBodyBytes) return std::nullopt;
  JournalRecord record;
  const std::byte* at = body.data();
  record.tensor = LoadLe<std::uint32_t>(at);
  record.cast_overflows = LoadLe<std::uint64_t>(at + 4);
  record.digest = AsText(body.subspan(12, kHashDigits));
  const auto pieces = LoadLe<std::uint32_t>(at + 12 + kHashDigits);
  const auto items = LoadLe<std::uint32_t>(at + 16 + kHashDigits);
  if (body.size() !=
      kFixedBodyBytes + kPieceBytes * std::size_t{pieces} + kItemBytes * std::size_t{items}) {
    return std::nullopt;
  }
  at += kFixedBodyBytes;
  for (std::uint32_t i = 0; i < pieces; ++i, at += kPieceBytes) {
    record.pieces.emplace_back(LoadLe<std::uint32_t>(at),
                               ChecksumPiece{.offset_bytes = LoadLe<std::uint64_t>(at + 4),
                                             .length_bytes = LoadLe<std::uint32_t>(at + 12),
                                             .crc32c = LoadLe<std::uint32_t>(at + 16),
                                             .crc32 = LoadLe<std::uint32_t>(at + 20)});
  }
  for (std::uint32_t i = 0; i < items; ++i, at += kItemBytes) {
    record.items.push_back({.extent = {.offset_bytes = LoadLe<std::uint64_t>(at),
                                       .size_bytes = LoadLe<std::uint64_t>(at + 8)},
                            .payload_crc32 = LoadLe<std::uint32_t>(at + 16)});
  }
  return record;
}

// Decodes the record at the start of `rest`, if its checksum is right, and returns its framed
// length.
std::optional<std::pair<std::size_t, JournalRecord>> DecodeRecord(ByteSpan rest) {
  if (rest.size() < kFrameBytes + kFixedBodyBytes) return std::nullopt;
  const auto length = LoadLe<std::uint32_t>(rest.data());
  if (!RangeFits(kFrameBytes, length, rest.size())) return std::nullopt;
  const ByteSpan body = rest.subspan(kFrameBytes, length);
  if (Crc32c(body) != LoadLe<std::uint32_t>(rest.data() + 4)) return std::nullopt;
  std::optional<JournalRecord> record = DecodeBody(body);
  if (!record) return std::nullopt;
  return std::pair(kFrameBytes + std::size_t{length}, std::move(*record));
}

}  // namespace

Result<std::unique_ptr<Journal>> Journal::Create(Storage& storage, const Path& path,
                                                 const std::string& plan_hash) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, storage.Create(path));
  CKPT_RETURN_IF_ERROR(file->WriteAt(0, Header(plan_hash)));
  return std::unique_ptr<Journal>(new Journal(std::move(file), kHeaderBytes));
}

Result<std::unique_ptr<Journal>> Journal::Resume(Storage& storage, const Path& path,
                                                 const std::string& plan_hash,
                                                 std::vector<JournalRecord>& records) {
  CKPT_ASSIGN_OR_RETURN(const std::string content, ReadSmallFile(storage, path, kMaxJournalBytes));
  const Bytes header = Header(plan_hash);
  if (!std::string_view(content).starts_with(AsText(header))) {
    return Error(ErrorKind::kNotFound, "the journal belongs to another plan").File(path.string());
  }
  ByteSpan rest = AsBytes(content).subspan(kHeaderBytes);
  while (auto decoded = DecodeRecord(rest)) {
    rest = rest.subspan(decoded->first);
    records.push_back(std::move(decoded->second));
  }
  const std::uint64_t end = content.size() - rest.size();
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, storage.OpenForUpdate(path));
  CKPT_RETURN_IF_ERROR(file->Resize(end));
  return std::unique_ptr<Journal>(new Journal(std::move(file), end));
}

Result<std::optional<std::string>> Journal::PlanHashOf(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.type == FileType::kMissing) return std::optional<std::string>();
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, storage.Open(path));
  if (file->size_bytes() < kHeaderBytes) return std::optional<std::string>();
  Bytes header(kHeaderBytes);
  CKPT_RETURN_IF_ERROR(file->ReadAt(0, header));
  const std::string_view text = AsText(header);
  const std::string_view hash = text.substr(kMagic.size());
  // After a power failure, parts of a new file may be zeros.
  const bool is_begun = text.starts_with(kMagic) && hash.find('\0') == std::string_view::npos;
  return is_begun ? std::optional(std::string(hash)) : std::nullopt;
}

Status Journal::Append(const JournalRecord& record) {
  const Bytes body = EncodeBody(record);
  Bytes framed;
  framed.reserve(8 + body.size());
  AppendLe(static_cast<std::uint32_t>(body.size()), framed);
  AppendLe(Crc32c(body), framed);
  ckpt::Append(body, framed);
  const MutexLock lock(mutex_);
  CKPT_RETURN_IF_ERROR(file_->WriteAt(end_, framed));
  end_ += framed.size();
  return OkStatus();
}

Status Journal::Sync() {
  const MutexLock lock(mutex_);
  return file_->Sync();
}

}  // namespace ckpt
