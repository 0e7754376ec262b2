// The `.idx` half of a Megatron indexed dataset: where sequences and documents are in the `.bin`
// half.
//
// docs/formats/indexed_dataset.md describes the bytes.
#ifndef CKPT_TRAINER_DATA_INTERNAL_DATASET_INDEX_H_
#define CKPT_TRAINER_DATA_INTERNAL_DATASET_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace ckpt::trainer {

// "MMIDIDX" and two zero bytes, version, type, number of sequences, number of entries of the
// document table.
inline constexpr std::string_view kDatasetMagic = {"MMIDIDX\0", 9};
inline constexpr std::uint64_t kDatasetVersion = 1;
inline constexpr std::uint64_t kDatasetHeaderBytes = 9 + 8 + 1 + 8 + 8;

// Types of tokens, with their codes on disk. Codes 6 and 7 are float64 and float32, which cannot
// hold tokens.
enum class TokenType : std::uint8_t {
  kUint8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kUint16 = 8,
};
[[nodiscard]] std::size_t TokenBytes(TokenType type);

// A checked view of an index. The bytes must outlive the view.
class DatasetIndex {
 public:
  // Checks everything: afterwards every range of the index lies within the `.bin` file of
  // `bin_bytes`. Cost: one pass.
  //
  // `name` (a path) appears in errors. Errors: kTruncated, kBadMetadata (magic, a negative length
  // or offset, a document table that does not ascend from 0 to the number of sequences),
  // kUnsupported (version, type), kSizeMismatch (bytes after the last table), kOutOfRange (a
  // sequence that reaches beyond the `.bin` file).
  static Result<DatasetIndex> Parse(ByteSpan bytes, std::uint64_t bin_bytes, std::string_view name);

  [[nodiscard]] TokenType type() const { return type_; }
  [[nodiscard]] std::int64_t num_sequences() const { return num_sequences_; }
  [[nodiscard]] std::int64_t num_documents() const { return num_documents_; }
  [[nodiscard]] std::int64_t num_tokens() const { return num_tokens_; }

  // REQUIRES: 0 <= sequence < num_sequences().
  [[nodiscard]] std::int64_t SequenceLength(std::int64_t sequence) const;   // tokens
  [[nodiscard]] std::uint64_t SequenceOffset(std::int64_t sequence) const;  // bytes into the `.bin`
  // The first sequence of a document; FirstSequence(num_documents()) is the end of the last
  // document.
  // REQUIRES: 0 <= document <= num_documents().
  [[nodiscard]] std::int64_t FirstSequence(std::int64_t document) const;

 private:
  DatasetIndex() = default;
  Status CheckSequences(std::uint64_t bin_bytes);
  Status CheckDocuments() const;

  TokenType type_ = TokenType::kInt32;
  std::int64_t num_sequences_ = 0;
  std::int64_t num_documents_ = 0;
  std::int64_t num_tokens_ = 0;
  // Tables of i32, i64 and i64, unaligned.
  const std::byte* lengths_ = nullptr;
  const std::byte* offsets_ = nullptr;
  const std::byte* documents_ = nullptr;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_INTERNAL_DATASET_INDEX_H_
