// Visits a set of samples epoch by epoch: every sample once per epoch, in a different order each
// time.
#ifndef CKPT_TRAINER_DATA_EPOCH_SOURCE_H_
#define CKPT_TRAINER_DATA_EPOCH_SOURCE_H_

#include <cstdint>
#include <memory>

#include "trainer/data/sample_set.h"
#include "trainer/data/sequence_source.h"

namespace ckpt::trainer {

struct EpochOptions {
  std::uint64_t seed = 1234;
  bool shuffle = true;  // otherwise every epoch visits the samples by ascending number
};

// Where a global sample is.
struct EpochPlace {
  std::int64_t epoch = 0;
  std::int64_t sample = 0;  // its number in the set
};

// With n samples, global sample g is the (g mod n)-th of epoch g / n. Epochs follow each other
// without a gap: a step may take the last samples of one epoch and the first of the next.
// REQUIRES: global_sample >= 0, num_samples > 0.
[[nodiscard]] EpochPlace PlaceOf(std::int64_t global_sample, std::int64_t num_samples,
                                 const EpochOptions& options);

[[nodiscard]] std::unique_ptr<SequenceSource> MakeEpochSource(
    std::shared_ptr<const SampleSet> samples, const EpochOptions& options);

// The first epoch of `source`. Sequences after it have no labels, so a batch that does not divide
// the epoch counts no sample twice.
[[nodiscard]] std::shared_ptr<const SequenceSource> OneEpochOf(
    std::shared_ptr<const SequenceSource> source);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_EPOCH_SOURCE_H_
