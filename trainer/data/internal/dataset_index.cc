#include "trainer/data/internal/dataset_index.h"

#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/base/quote.h"

namespace ckpt::trainer {
namespace {

constexpr std::uint64_t kLengthBytes = sizeof(std::int32_t);
constexpr std::uint64_t kOffsetBytes = sizeof(std::int64_t);
constexpr std::uint64_t kDocumentBytes = sizeof(std::int64_t);
constexpr std::uint8_t kFloat64Code = 6;
constexpr std::uint8_t kFloat32Code = 7;

struct TypeRow {
  TokenType type;
  std::size_t size_bytes;
};
constexpr std::array<TypeRow, 6> kTypes = {{{TokenType::kUint8, 1},
                                            {TokenType::kInt8, 1},
                                            {TokenType::kInt16, 2},
                                            {TokenType::kInt32, 4},
                                            {TokenType::kInt64, 8},
                                            {TokenType::kUint16, 2}}};

const TypeRow& RowOf(TokenType type) {
  for (const TypeRow& row : kTypes) {
    if (row.type == type) return row;
  }
  CKPT_CHECK(false);
}

Result<TokenType> TypeOfCode(std::uint8_t code) {
  for (const TypeRow& row : kTypes) {
    if (static_cast<std::uint8_t>(row.type) == code) return row.type;
  }
  Status unknown = Error(ErrorKind::kUnsupported, "the type of elements cannot hold tokens")
                       .Expected("a code of an integer type: 1 to 5 or 8");
  if (code == kFloat64Code) return std::move(unknown).Actual("code 6 (float64)");
  if (code == kFloat32Code) return std::move(unknown).Actual("code 7 (float32)");
  return std::move(unknown).Actual(fmt::format("code {}", code));
}

// Sets `end` to the bytes of the header and the tables, without modes. False if the number
// overflows.
bool TablesEnd(std::uint64_t num_sequences, std::uint64_t num_entries, std::uint64_t* end) {
  std::uint64_t sequences = 0;
  std::uint64_t documents = 0;
  return CheckedMul(num_sequences, kLengthBytes + kOffsetBytes, &sequences) &&
         CheckedMul(num_entries, kDocumentBytes, &documents) &&
         CheckedAdd(sequences, documents, end) && CheckedAdd(*end, kDatasetHeaderBytes, end);
}

}  // namespace

std::size_t TokenBytes(TokenType type) { return RowOf(type).size_bytes; }

Result<DatasetIndex> DatasetIndex::Parse(ByteSpan bytes, std::uint64_t bin_bytes,
                                         std::string_view name) {
  if (bytes.size() < kDatasetHeaderBytes) {
    return Error(ErrorKind::kTruncated, "shorter than the header of a dataset index")
        .File(name)
        .Expected(fmt::format("at least {} bytes", kDatasetHeaderBytes))
        .Actual(fmt::format("{} bytes", bytes.size()));
  }
  if (AsText(bytes.first(kDatasetMagic.size())) != kDatasetMagic) {
    return Error(ErrorKind::kBadMetadata, "not a dataset index")
        .File(name)
        .Expected("MMIDIDX and two zero bytes first")
        .Actual(Quote(AsText(bytes.first(kDatasetMagic.size()))));
  }
  const std::byte* at = bytes.data() + kDatasetMagic.size();
  const auto version = LoadLe<std::uint64_t>(at);
  if (version != kDatasetVersion) {
    return Error(ErrorKind::kUnsupported, "unknown version of a dataset index")
        .File(name)
        .Expected(fmt::format("version {}", kDatasetVersion))
        .Actual(fmt::format("version {}", version));
  }
  DatasetIndex index;
  Result<TokenType> type = TypeOfCode(LoadLe<std::uint8_t>(at + 8));
  if (!type.ok()) return std::move(type).status().File(name);
  index.type_ = *type;

  const auto num_sequences = LoadLe<std::uint64_t>(at + 9);
  const auto num_entries = LoadLe<std::uint64_t>(at + 17);
  std::uint64_t end = 0;
  if (!TablesEnd(num_sequences, num_entries, &end) || end > bytes.size()) {
    return Error(ErrorKind::kTruncated, "the tables of a dataset index reach beyond its end")
        .File(name)
        .Expected(
            fmt::format("{} sequences and {} entries of documents", num_sequences, num_entries))
        .Actual(fmt::format("{} bytes", bytes.size()));
  }
  // Datasets of several modalities end with one mode byte per sequence, which is ignored.
  if (bytes.size() != end && bytes.size() != end + num_sequences) {
    return Error(ErrorKind::kSizeMismatch, "extra bytes after the tables of a dataset index")
        .File(name)
        .Expected(fmt::format("{} bytes, or {} with modes", end, end + num_sequences))
        .Actual(fmt::format("{} bytes", bytes.size()));
  }
  if (num_entries == 0) {
    return Error(ErrorKind::kBadMetadata, "the table of documents is empty")
        .File(name)
        .Expected("at least the entry 0");
  }
  index.num_sequences_ = static_cast<std::int64_t>(num_sequences);
  index.num_documents_ = static_cast<std::int64_t>(num_entries) - 1;
  index.lengths_ = bytes.data() + kDatasetHeaderBytes;
  index.offsets_ = index.lengths_ + num_sequences * kLengthBytes;
  index.documents_ = index.offsets_ + num_sequences * kOffsetBytes;
  if (Status status = index.CheckSequences(bin_bytes); !status.ok())
    return std::move(status).File(name);
  if (Status status = index.CheckDocuments(); !status.ok()) return std::move(status).File(name);
  return index;
}

Status DatasetIndex::CheckSequences(std::uint64_t bin_bytes) {
  const std::uint64_t token_bytes = TokenBytes(type_);
  for (std::int64_t i = 0; i < num_sequences_; ++i) {
    const std::int64_t length = SequenceLength(i);
    if (length < 0) {
      return Error(ErrorKind::kBadMetadata, fmt::format("sequence {} has a negative length", i))
          .Actual(fmt::format("{}", length));
    }
    // A negative offset is a huge number here. The product is below 2³¹ · 8 and cannot overflow.
    const std::uint64_t size_bytes = static_cast<std::uint64_t>(length) * token_bytes;
    if (!RangeFits(SequenceOffset(i), size_bytes, bin_bytes)) {
      return Error(ErrorKind::kOutOfRange, fmt::format("sequence {} lies outside the .bin file", i))
          .Expected(fmt::format("within {} bytes", bin_bytes))
          .Actual(
              fmt::format("[{}, +{})", static_cast<std::int64_t>(SequenceOffset(i)), size_bytes))
          .Hint("check that .bin and .idx belong together and that both are complete");
    }
    if (!CheckedAdd(num_tokens_, length, &num_tokens_)) {
      return Error(ErrorKind::kResource, "more than 2^63 tokens");
    }
  }
  return OkStatus();
}

Status DatasetIndex::CheckDocuments() const {
  if (FirstSequence(0) != 0) {
    return Error(ErrorKind::kBadMetadata, "the first document does not begin with sequence 0")
        .Actual(fmt::format("{}", FirstSequence(0)));
  }
  for (std::int64_t i = 0; i < num_documents_; ++i) {
    if (FirstSequence(i + 1) < FirstSequence(i)) {
      return Error(ErrorKind::kBadMetadata, fmt::format("document {} ends before it begins", i))
          .Actual(fmt::format("sequences [{}, {})", FirstSequence(i), FirstSequence(i + 1)));
    }
  }
  if (FirstSequence(num_documents_) != num_sequences_) {
    return Error(ErrorKind::kBadMetadata, "the last document does not end with the last sequence")
        .Expected(fmt::format("{}", num_sequences_))
        .Actual(fmt::format("{}", FirstSequence(num_documents_)))
        .Hint("end every document before the index is written");
  }
  return OkStatus();
}

std::int64_t DatasetIndex::SequenceLength(std::int64_t sequence) const {
  return LoadLe<std::int32_t>(lengths_ + static_cast<std::uint64_t>(sequence) * kLengthBytes);
}

std::uint64_t DatasetIndex::SequenceOffset(std::int64_t sequence) const {
  return LoadLe<std::uint64_t>(offsets_ + static_cast<std::uint64_t>(sequence) * kOffsetBytes);
}

std::int64_t DatasetIndex::FirstSequence(std::int64_t document) const {
  return LoadLe<std::int64_t>(documents_ + static_cast<std::uint64_t>(document) * kDocumentBytes);
}

}  // namespace ckpt::trainer
