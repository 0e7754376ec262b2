#include "tests/trainer/data/indexed_dataset_writer.h"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "core/base/endian.h"
#include "tests/trainer/data/token_type_names.h"
#include "trainer/data/internal/indexed_dataset.h"

namespace ckpt::trainer {
namespace {

constexpr std::size_t kBufferBytes = 1 << 20;

template <typename T>
bool AppendToken(std::int32_t token, Bytes& out) {
  const auto stored = static_cast<T>(token);
  AppendLe(stored, out);
  return std::cmp_equal(static_cast<std::int64_t>(stored), token);
}

// False if the token does not fit the type.
bool AppendToken(TokenType type, std::int32_t token, Bytes& out) {
  switch (type) {
    case TokenType::kUint8:
      return AppendToken<std::uint8_t>(token, out);
    case TokenType::kInt8:
      return AppendToken<std::int8_t>(token, out);
    case TokenType::kInt16:
      return AppendToken<std::int16_t>(token, out);
    case TokenType::kInt32:
      return AppendToken<std::int32_t>(token, out);
    case TokenType::kInt64:
      return AppendToken<std::int64_t>(token, out);
    case TokenType::kUint16:
      return AppendToken<std::uint16_t>(token, out);
  }
  return false;
}

Bytes SerializeIndex(TokenType type, const std::vector<std::int32_t>& lengths,
                     const std::vector<std::int64_t>& documents) {
  Bytes out;
  out.reserve(kDatasetHeaderBytes + lengths.size() * 12 + documents.size() * 8);
  Append(kDatasetMagic, out);
  AppendLe(kDatasetVersion, out);
  AppendLe(static_cast<std::uint8_t>(type), out);
  AppendLe(std::uint64_t{lengths.size()}, out);
  AppendLe(std::uint64_t{documents.size()}, out);
  for (const std::int32_t length : lengths) AppendLe(length, out);
  std::uint64_t offset = 0;
  for (const std::int32_t length : lengths) {
    AppendLe(offset, out);
    offset += static_cast<std::uint64_t>(length) * TokenBytes(type);
  }
  for (const std::int64_t first : documents) AppendLe(first, out);
  return out;
}

}  // namespace

Result<std::unique_ptr<IndexedDatasetWriter>> IndexedDatasetWriter::Create(Storage& storage,
                                                                           const Path& prefix,
                                                                           TokenType type) {
  CKPT_ASSIGN_OR_RETURN(const FileStat index, storage.Stat(DatasetIndexPath(prefix)));
  if (index.type != FileType::kMissing) {
    return Error(ErrorKind::kAlreadyExists, "a dataset of this name exists already")
        .File(DatasetIndexPath(prefix).string());
  }
  CKPT_ASSIGN_OR_RETURN(auto bin, storage.Create(DatasetBinPath(prefix)));
  return std::unique_ptr<IndexedDatasetWriter>(
      new IndexedDatasetWriter(storage, prefix, type, std::move(bin)));
}

IndexedDatasetWriter::IndexedDatasetWriter(Storage& storage, Path prefix, TokenType type,
                                           std::unique_ptr<WritableFile> bin)
    : storage_(storage), prefix_(std::move(prefix)), type_(type), bin_(std::move(bin)) {}

Status IndexedDatasetWriter::AddSequence(std::span<const std::int32_t> tokens) {
  if (tokens.size() > std::numeric_limits<std::int32_t>::max()) {
    return Error(ErrorKind::kOutOfRange, "a sequence of 2^31 tokens or more").File(bin_->name());
  }
  for (const std::int32_t token : tokens) {
    if (!AppendToken(type_, token, buffer_)) {
      return Error(ErrorKind::kOutOfRange, "the token does not fit the type")
          .File(bin_->name())
          .Expected(TokenTypeName(type_))
          .Actual(fmt::format("{}", token));
    }
    if (buffer_.size() >= kBufferBytes) CKPT_RETURN_IF_ERROR(Flush());
  }
  lengths_.push_back(static_cast<std::int32_t>(tokens.size()));
  return OkStatus();
}

void IndexedDatasetWriter::EndDocument() {
  documents_.push_back(static_cast<std::int64_t>(lengths_.size()));
}

Status IndexedDatasetWriter::AddDocument(std::span<const std::int32_t> tokens) {
  CKPT_CHECK(documents_.back() == static_cast<std::int64_t>(lengths_.size()));
  CKPT_RETURN_IF_ERROR(AddSequence(tokens));
  EndDocument();
  return OkStatus();
}

Status IndexedDatasetWriter::Finish() {
  CKPT_CHECK(bin_ != nullptr && documents_.back() == static_cast<std::int64_t>(lengths_.size()));
  CKPT_RETURN_IF_ERROR(Flush());
  CKPT_RETURN_IF_ERROR(bin_->Sync());
  CKPT_RETURN_IF_ERROR(std::exchange(bin_, nullptr)->Close());
  const Path index = DatasetIndexPath(prefix_);
  const Path unfinished = index.string() + ".unfinished";
  CKPT_RETURN_IF_ERROR(storage_.RemoveAll(unfinished));
  CKPT_RETURN_IF_ERROR(
      WriteSmallFile(storage_, unfinished, SerializeIndex(type_, lengths_, documents_)));
  CKPT_RETURN_IF_ERROR(storage_.Rename(unfinished, index));
  return storage_.SyncDirectory(index.has_parent_path() ? index.parent_path() : Path("."));
}

Status IndexedDatasetWriter::Flush() {
  CKPT_RETURN_IF_ERROR(bin_->WriteAt(written_bytes_, buffer_));
  written_bytes_ += buffer_.size();
  buffer_.clear();
  return OkStatus();
}

}  // namespace ckpt::trainer
