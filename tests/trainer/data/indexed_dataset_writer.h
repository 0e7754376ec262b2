// Writes Megatron's indexed datasets, byte for byte as its builder does: for tests, which read
// them.
#ifndef CKPT_TESTS_TRAINER_DATA_INDEXED_DATASET_WRITER_H_
#define CKPT_TESTS_TRAINER_DATA_INDEXED_DATASET_WRITER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "trainer/data/internal/dataset_index.h"

namespace ckpt::trainer {

// The index appears last, by one rename: until `Finish` the dataset does not exist. A writer that
// is destroyed before Finish leaves PREFIX.bin for the user to remove. After an error, only destroy
// the writer. One thread.
//
//   CKPT_ASSIGN_OR_RETURN(
//       auto writer, IndexedDatasetWriter::Create(storage, prefix, TokenType::kUint16));
//   CKPT_RETURN_IF_ERROR(writer->AddDocument(tokens));
//   CKPT_RETURN_IF_ERROR(writer->Finish());
class IndexedDatasetWriter {
 public:
  // Errors: kAlreadyExists (one of the two files), kNoSpace, kIo.
  static Result<std::unique_ptr<IndexedDatasetWriter>> Create(Storage& storage, const Path& prefix,
                                                              TokenType type);

  // Adds to the open document. Errors: kOutOfRange (a token that does not fit the type, 2³¹ tokens
  // or more), kNoSpace, kIo.
  Status AddSequence(std::span<const std::int32_t> tokens);
  // Ends the open document, which may be empty.
  void EndDocument();
  // A document of one sequence. REQUIRES: no document is open.
  Status AddDocument(std::span<const std::int32_t> tokens);

  // Makes both files durable, the index last. REQUIRES: no document is open, Finish was not called.
  // Errors: kAlreadyExists, kNoSpace, kIo.
  Status Finish();

 private:
  IndexedDatasetWriter(Storage& storage, Path prefix, TokenType type,
                       std::unique_ptr<WritableFile> bin);
  Status Flush();

  Storage& storage_;
  Path prefix_;
  TokenType type_;
  std::unique_ptr<WritableFile> bin_;
  Bytes buffer_;
  std::uint64_t written_bytes_ = 0;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> documents_ = {0};
};

}  // namespace ckpt::trainer

#endif  // CKPT_TESTS_TRAINER_DATA_INDEXED_DATASET_WRITER_H_
