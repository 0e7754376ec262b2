// The elements of an item: gathered from the source, cast, and written.
#ifndef CKPT_CORE_EXEC_INTERNAL_PRODUCE_PAYLOAD_H_
#define CKPT_CORE_EXEC_INTERNAL_PRODUCE_PAYLOAD_H_

#include <cstdint>
#include <memory>

#include "core/base/hash.h"
#include "core/base/result.h"
#include "core/base/scratch.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/codec/zstd.h"
#include "core/exec/executor.h"
#include "core/exec/internal/item_writer.h"
#include "core/exec/internal/journal.h"
#include "core/exec/nest_reader.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

// One thread's memory, allocated once and reused for every tensor.
struct Worker {
  Worker(const CheckpointSource& source, std::uint64_t budget_bytes);

  std::uint64_t window_bytes;
  NestReader reader;
  Scratch gathered;  // a window in the source's dtype
  Scratch cast;      // the same in the target's dtype
  ItemBuffers buffers;
  std::unique_ptr<ZstdEncoder> encoder;  // null: items are not compressed
};

// What the thread that writes a tensor keeps from one item to the next.
struct TensorInProgress {
  JournalRecord record;
  Hasher hasher{HashAlgorithm::kXxh3};
  std::uint64_t written_bytes = 0;
};

// Writes the elements of an item of the plan, window by window. Returns their zip checksum; 0 if
// nothing needs it. Errors: those of NestReader::ReadInOrder and ItemWriter::Write, kCancelled.
Result<std::uint32_t> ProducePayload(const ConversionPlan& plan, const WriteItem& item,
                                     const ExecuteOptions& options, Worker& worker,
                                     ItemWriter& writer, TensorInProgress& tensor);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_PRODUCE_PAYLOAD_H_
