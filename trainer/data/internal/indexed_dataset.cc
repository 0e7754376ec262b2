#include "trainer/data/internal/indexed_dataset.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/endian.h"

namespace ckpt::trainer {
namespace {

// Numbers of one width, widened to 64 bits. REQUIRES: bytes.size() is a multiple of the width.
template <typename T>
void Widen(ByteSpan bytes, std::span<std::int64_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = LoadLe<T>(bytes.data() + i * sizeof(T));
}

void WidenTokens(TokenType type, ByteSpan bytes, std::span<std::int64_t> out) {
  switch (type) {
    case TokenType::kUint8:
      return Widen<std::uint8_t>(bytes, out);
    case TokenType::kInt8:
      return Widen<std::int8_t>(bytes, out);
    case TokenType::kInt16:
      return Widen<std::int16_t>(bytes, out);
    case TokenType::kInt32:
      return Widen<std::int32_t>(bytes, out);
    case TokenType::kInt64:
      return Widen<std::int64_t>(bytes, out);
    case TokenType::kUint16:
      return Widen<std::uint16_t>(bytes, out);
  }
}

}  // namespace

Path DatasetIndexPath(const Path& prefix) { return prefix.string() + ".idx"; }
Path DatasetBinPath(const Path& prefix) { return prefix.string() + ".bin"; }

Result<std::unique_ptr<IndexedDataset>> IndexedDataset::Open(Storage& storage, const Path& prefix,
                                                             std::int64_t vocab_size) {
  CKPT_ASSIGN_OR_RETURN(const auto index_file, storage.Open(DatasetIndexPath(prefix)));
  CKPT_ASSIGN_OR_RETURN(auto bin, storage.Open(DatasetBinPath(prefix)));
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<FileView> view, index_file->View());
  CKPT_ASSIGN_OR_RETURN(DatasetIndex index,
                        DatasetIndex::Parse(view->bytes(), bin->size_bytes(), index_file->name()));
  return std::unique_ptr<IndexedDataset>(
      new IndexedDataset(std::move(view), index, std::move(bin), vocab_size));
}

IndexedDataset::IndexedDataset(std::unique_ptr<FileView> index_bytes, DatasetIndex index,
                               std::shared_ptr<const ReadableFile> bin, std::int64_t vocab_size)
    : index_bytes_(std::move(index_bytes)),
      index_(index),
      bin_(std::move(bin)),
      vocab_size_(vocab_size) {}

std::int64_t IndexedDataset::DocumentLength(std::int64_t document) const {
  std::int64_t length = 0;
  const std::int64_t end = index_.FirstSequence(document + 1);
  for (std::int64_t s = index_.FirstSequence(document); s < end; ++s) {
    length += index_.SequenceLength(s);
  }
  return length;
}

Status IndexedDataset::ReadTokens(std::int64_t document, std::int64_t begin,
                                  std::span<std::int32_t> out) const {
  for (std::int64_t s = index_.FirstSequence(document); !out.empty(); ++s) {
    const std::int64_t length = index_.SequenceLength(s);
    if (begin < length) {
      const auto count = std::min(static_cast<std::size_t>(length - begin), out.size());
      CKPT_RETURN_IF_ERROR(ReadSequence(s, begin, out.first(count)));
      out = out.subspan(count);
    }
    begin = std::max<std::int64_t>(begin - length, 0);
  }
  return OkStatus();
}

Status IndexedDataset::ReadSequence(std::int64_t sequence, std::int64_t begin,
                                    std::span<std::int32_t> out) const {
  const std::size_t width = TokenBytes(index_.type());
  const std::uint64_t offset =
      index_.SequenceOffset(sequence) + static_cast<std::uint64_t>(begin) * width;
  Bytes bytes(out.size() * width);
  CKPT_RETURN_IF_ERROR(bin_->ReadAt(offset, bytes));
  std::vector<std::int64_t> tokens(out.size());
  WidenTokens(index_.type(), bytes, tokens);
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= vocab_size_) {
      return Error(ErrorKind::kOutOfRange, "token outside the vocabulary")
          .File(DescribeRange(bin_->name(), offset + i * width, width))
          .Expected(fmt::format("[0, {})", vocab_size_))
          .Actual(fmt::format("{}, token {} of sequence {}", tokens[i],
                              begin + static_cast<std::int64_t>(i), sequence))
          .Hint("check that the data was made with the model's tokenizer");
    }
    out[i] = static_cast<std::int32_t>(tokens[i]);
  }
  return OkStatus();
}

}  // namespace ckpt::trainer
