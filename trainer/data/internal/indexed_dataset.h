// Megatron's indexed datasets, PREFIX.bin and PREFIX.idx, as documents.
#ifndef CKPT_TRAINER_DATA_INTERNAL_INDEXED_DATASET_H_
#define CKPT_TRAINER_DATA_INTERNAL_INDEXED_DATASET_H_

#include <cstdint>
#include <memory>
#include <span>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "trainer/data/document_set.h"
#include "trainer/data/internal/dataset_index.h"

namespace ckpt::trainer {

// The index is mapped; tokens are read on request. Do not change the files meanwhile: truncating
// the mapped index raises SIGBUS, as FileView says.
class IndexedDataset final : public DocumentSet {
 public:
  // Reading a token that is negative, or `vocab_size` or more, is an error.
  // Errors: kNotFound, kIo, those of DatasetIndex::Parse.
  static Result<std::unique_ptr<IndexedDataset>> Open(Storage& storage, const Path& prefix,
                                                      std::int64_t vocab_size);

  [[nodiscard]] const DatasetIndex& index() const { return index_; }

  [[nodiscard]] std::int64_t num_documents() const override { return index_.num_documents(); }
  [[nodiscard]] std::int64_t DocumentLength(std::int64_t document) const override;
  // Errors: kOutOfRange (a token outside the vocabulary), kTruncated, kIo.
  Status ReadTokens(std::int64_t document, std::int64_t begin,
                    std::span<std::int32_t> out) const override;

 private:
  IndexedDataset(std::unique_ptr<FileView> index_bytes, DatasetIndex index,
                 std::shared_ptr<const ReadableFile> bin, std::int64_t vocab_size);
  Status ReadSequence(std::int64_t sequence, std::int64_t begin, std::span<std::int32_t> out) const;

  std::unique_ptr<FileView> index_bytes_;  // what `index_` views
  DatasetIndex index_;
  std::shared_ptr<const ReadableFile> bin_;
  std::int64_t vocab_size_;
};

// PREFIX.idx and PREFIX.bin.
[[nodiscard]] Path DatasetIndexPath(const Path& prefix);
[[nodiscard]] Path DatasetBinPath(const Path& prefix);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_INTERNAL_INDEXED_DATASET_H_
