// Which samples a run read, and what was in them.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_SAMPLES_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_SAMPLES_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/hash.h"
#include "core/base/mutex.h"
#include "core/base/result.h"
#include "trainer/data/sequence_source.h"

namespace ckpt::train {

struct ReadSample {
  std::int64_t global_sample = 0;
  Hash128 content;  // of tokens and labels

  friend bool operator==(const ReadSample&, const ReadSample&) = default;
};

// Hands on what another source has, and remembers it. All ranks of a run may share it: it is
// thread-safe.
class RecordingSource final : public trainer::SequenceSource {
 public:
  explicit RecordingSource(std::shared_ptr<const trainer::SequenceSource> source)
      : source_(std::move(source)) {}

  [[nodiscard]] std::int64_t seq_length() const override { return source_->seq_length(); }
  [[nodiscard]] std::int64_t num_samples() const override { return source_->num_samples(); }
  [[nodiscard]] Result<trainer::Sequence> Read(std::int64_t global_sample) const override
      CKPT_EXCLUDES(mutex_);

  // Everything that was read, by number; what was read twice is there twice.
  [[nodiscard]] std::vector<ReadSample> Samples() const CKPT_EXCLUDES(mutex_);

 private:
  const std::shared_ptr<const trainer::SequenceSource> source_;
  mutable Mutex mutex_;
  mutable std::vector<ReadSample> samples_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_SAMPLES_H_
