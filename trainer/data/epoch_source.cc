#include "trainer/data/epoch_source.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "trainer/data/internal/permutation.h"
#include "trainer/random/philox.h"

namespace ckpt::trainer {
namespace {

class EpochSource final : public SequenceSource {
 public:
  EpochSource(std::shared_ptr<const SampleSet> samples, const EpochOptions& options)
      : samples_(std::move(samples)), options_(options) {}

  std::int64_t seq_length() const override { return samples_->seq_length(); }
  std::int64_t num_samples() const override { return samples_->num_samples(); }

  SourceFacts facts() const override {
    SourceFacts facts = samples_->facts();
    facts.identity += options_.shuffle ? fmt::format(", shuffled by seed {}", options_.seed)
                                       : std::string(", in their own order");
    return facts;
  }

  Result<Sequence> Read(std::int64_t global_sample) const override {
    const EpochPlace place = PlaceOf(global_sample, samples_->num_samples(), options_);
    Result<Sequence> sequence = samples_->ReadSample(place.sample);
    if (sequence.ok()) return sequence;
    return std::move(sequence).status().While(
        fmt::format("reading global sample {} (sample {} of epoch {})", global_sample, place.sample,
                    place.epoch));
  }

 private:
  const std::shared_ptr<const SampleSet> samples_;
  const EpochOptions options_;
};

class OneEpoch final : public SequenceSource {
 public:
  explicit OneEpoch(std::shared_ptr<const SequenceSource> source) : source_(std::move(source)) {}

  std::int64_t seq_length() const override { return source_->seq_length(); }
  std::int64_t num_samples() const override { return source_->num_samples(); }

  Result<Sequence> Read(std::int64_t global_sample) const override {
    CKPT_ASSIGN_OR_RETURN(Sequence sequence, source_->Read(global_sample));
    if (sequence.positions.empty()) {
      sequence.positions.resize(sequence.tokens.size());
      std::iota(sequence.positions.begin(), sequence.positions.end(), 0);
    }
    if (global_sample >= num_samples()) {
      std::ranges::fill(sequence.labels, kNoLabel);
      std::ranges::fill(sequence.positions, kPaddingPosition);
    }
    return sequence;
  }

 private:
  const std::shared_ptr<const SequenceSource> source_;
};

}  // namespace

EpochPlace PlaceOf(std::int64_t global_sample, std::int64_t num_samples,
                   const EpochOptions& options) {
  CKPT_CHECK(global_sample >= 0 && num_samples > 0);
  EpochPlace place = {.epoch = global_sample / num_samples, .sample = global_sample % num_samples};
  if (options.shuffle) {
    const Permutation order(StreamKey(options.seed, "data.samples"),
                            static_cast<std::uint64_t>(place.epoch),
                            static_cast<std::uint64_t>(num_samples));
    place.sample = static_cast<std::int64_t>(order[static_cast<std::uint64_t>(place.sample)]);
  }
  return place;
}

std::unique_ptr<SequenceSource> MakeEpochSource(std::shared_ptr<const SampleSet> samples,
                                                const EpochOptions& options) {
  return std::make_unique<EpochSource>(std::move(samples), options);
}

std::shared_ptr<const SequenceSource> OneEpochOf(std::shared_ptr<const SequenceSource> source) {
  return std::make_shared<OneEpoch>(std::move(source));
}

}  // namespace ckpt::trainer
