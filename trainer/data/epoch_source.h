// A set of samples visited epoch by epoch: every sample once an epoch, each epoch in an order of its own.
#ifndef CKPT_TRAINER_DATA_EPOCH_SOURCE_H_
#define CKPT_TRAINER_DATA_EPOCH_SOURCE_H_

#include <cstdint>
#include <memory>

#include "trainer/data/sample_set.h"
#include "trainer/data/sequence_source.h"

namespace ckpt::trainer {

struct EpochOptions {
  std::uint64_t seed = 1234;
  bool shuffle = true;  // else every epoch is in the order of the numbers
};

// Where a global sample lies.
struct EpochPlace {
  std::int64_t epoch = 0;
  std::int64_t sample = 0;  // of the set
};

// Global sample g is the (g mod n)-th visited of epoch g / n, for n samples. Epochs follow each other without a gap: a
// step may take the last samples of one and the first of the next.
// REQUIRES: global_sample >= 0, num_samples > 0.
[[nodiscard]] EpochPlace PlaceOf(std::int64_t global_sample, std::int64_t num_samples,
                                 const EpochOptions& options);

[[nodiscard]] std::unique_ptr<SequenceSource> MakeEpochSource(
    std::shared_ptr<const SampleSet> samples, const EpochOptions& options);

// The first epoch of `source`; behind it nothing is learned, so that a batch which does not divide the epoch counts no
// sample twice.
[[nodiscard]] std::shared_ptr<const SequenceSource> OneEpochOf(
    std::shared_ptr<const SequenceSource> source);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_EPOCH_SOURCE_H_
