#include "trainer/data/batch_ahead.h"

namespace ckpt::trainer {

Result<BatchAhead::Batch> BatchAhead::Take(std::int64_t consumed) {
  const bool is_read = reading_.valid() && next_ == consumed;
  if (!is_read) reading_ = {};  // of another step
  Result<Batch> batch = is_read ? reading_.get() : reader_.ReadStep(consumed);
  next_ = consumed + reader_.SamplesOf(1);
  if (batch.ok() && next_ < end_) {
    // Where the system gives no thread, Take reads it.
    reading_ = std::async(std::launch::async | std::launch::deferred,
                          [this, begin = next_] { return reader_.ReadStep(begin); });
  }
  return batch;
}

}  // namespace ckpt::trainer
