// Opens the data of a run: a file, the kind of its content, and how sequences are made from it.
#ifndef CKPT_TRAINER_DATA_OPEN_SOURCE_H_
#define CKPT_TRAINER_DATA_OPEN_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/result.h"
#include "core/io/path.h"
#include "core/io/storage.h"
#include "trainer/data/packed_examples.h"
#include "trainer/data/sequence_source.h"
#include "trainer/data/token_windows.h"

namespace ckpt::trainer {

enum class DataKind : std::uint8_t {
  kIndexed,         // Megatron's PREFIX.bin and PREFIX.idx: documents
  kText,            // JSONL, "text": documents of bytes
  kTokenDocuments,  // JSONL, "input_ids": documents
  kTokenExamples,   // JSONL, "input_ids" with "labels" or "loss_mask": examples
  kPrompts,         // JSONL, "prompt" and "completion": examples of bytes
  kMessages,        // JSONL, "messages": examples of bytes
};

// Documents are joined and cut into windows (token_windows.h). Examples are packed
// (packed_examples.h).
struct DataConfig {
  Path path = {};  // for kIndexed without .bin or .idx
  DataKind kind = DataKind::kIndexed;
  std::int64_t seq_length = 0;
  std::int64_t vocab_size = 0;  // the model's; a token outside is an error
  std::uint64_t seed = 1234;
  bool shuffle = true;  // documents once, then windows in every epoch; packs in every epoch

  // For documents.
  std::optional<DocumentEnds> ends = {};

  // For examples.
  bool pack = true;
  LongExamples long_examples = LongExamples::kRefuse;
  std::int32_t pad_token = 0;  // for kTokenExamples; bytes have their own
};

// Errors: kUsage (seq_length or vocab_size is not positive or exceeds 31 bits, a pad token outside
// the vocabulary, too little data), those of the file.
Result<std::unique_ptr<SequenceSource>> OpenSource(Storage& storage, const DataConfig& config);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_OPEN_SOURCE_H_
