#include "tools/ckpt-train/experiment/internal/samples.h"

#include <algorithm>
#include <span>

namespace ckpt::train {
namespace {

Hash128 ContentOf(const trainer::Sequence& sequence) {
  return HashXxh3(std::as_bytes(std::span(sequence.tokens)), 0) +
         HashXxh3(std::as_bytes(std::span(sequence.labels)), 1);
}

}  // namespace

Result<trainer::Sequence> RecordingSource::Read(std::int64_t global_sample) const {
  CKPT_ASSIGN_OR_RETURN(trainer::Sequence sequence, source_->Read(global_sample));
  const Hash128 content = ContentOf(sequence);
  const MutexLock lock(mutex_);
  samples_.push_back({global_sample, content});
  return sequence;
}

std::vector<ReadSample> RecordingSource::Samples() const {
  const MutexLock lock(mutex_);
  std::vector<ReadSample> samples = samples_;
  std::ranges::sort(samples, {}, &ReadSample::global_sample);
  return samples;
}

}  // namespace ckpt::train
