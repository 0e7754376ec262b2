// SampleSet: the numbered sequences that a data set is cut into, in no particular order.
#ifndef CKPT_TRAINER_DATA_SAMPLE_SET_H_
#define CKPT_TRAINER_DATA_SAMPLE_SET_H_

#include <cstdint>

#include "core/base/result.h"
#include "trainer/data/sequence_source.h"

namespace ckpt::trainer {

// Thread-safety: all methods may run concurrently.
class SampleSet {
 public:
  virtual ~SampleSet() = default;

  [[nodiscard]] virtual std::int64_t seq_length() const = 0;
  // At least 1.
  [[nodiscard]] virtual std::int64_t num_samples() const = 0;

  // Without the order, which a set does not know.
  [[nodiscard]] virtual SourceFacts facts() const { return {}; }

  // REQUIRES: 0 <= sample < num_samples().
  [[nodiscard]] virtual Result<Sequence> ReadSample(std::int64_t sample) const = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_SAMPLE_SET_H_
