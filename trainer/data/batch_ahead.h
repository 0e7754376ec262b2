// BatchAhead: reads a step's batch while the step before it runs.
#ifndef CKPT_TRAINER_DATA_BATCH_AHEAD_H_
#define CKPT_TRAINER_DATA_BATCH_AHEAD_H_

#include <cstdint>
#include <future>
#include <vector>

#include "core/base/result.h"
#include "trainer/data/batch_reader.h"

namespace ckpt::trainer {

// Batches and errors are those of BatchReader::ReadStep. Thread-safety: one thread.
class BatchAhead {
 public:
  using Batch = std::vector<HostMicroBatch>;

  // No step that begins at sample `end` or later is read before it is asked for. `reader` outlives
  // it.
  BatchAhead(const BatchReader& reader, std::int64_t end) : reader_(reader), end_(end) {}
  BatchAhead(const BatchAhead&) = delete;
  BatchAhead& operator=(const BatchAhead&) = delete;

  // The batch of the step that begins after `consumed` samples. Then begins to read the step after
  // it, on another thread.
  Result<Batch> Take(std::int64_t consumed);

 private:
  const BatchReader& reader_;
  const std::int64_t end_;
  std::int64_t next_ = 0;               // where the step that is being read begins
  std::future<Result<Batch>> reading_;  // its destructor waits for the thread
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_BATCH_AHEAD_H_
