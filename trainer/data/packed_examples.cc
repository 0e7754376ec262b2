#include "trainer/data/packed_examples.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/check.h"
#include "trainer/data/internal/packing.h"

namespace ckpt::trainer {
namespace {

class PackedExamples final : public SampleSet {
 public:
  PackedExamples(std::shared_ptr<const JsonlFile> file, Packs packs, const PackOptions& options,
                 SourceFacts facts)
      : file_(std::move(file)),
        packs_(std::move(packs)),
        options_(options),
        facts_(std::move(facts)) {}

  std::int64_t seq_length() const override { return options_.seq_length; }
  std::int64_t num_samples() const override { return static_cast<std::int64_t>(packs_.size()); }

  SourceFacts facts() const override { return facts_; }

  Result<Sequence> ReadSample(std::int64_t sample) const override {
    CKPT_CHECK(sample >= 0 && sample < num_samples());
    const auto capacity = static_cast<std::size_t>(options_.seq_length);
    Sequence sequence;
    sequence.tokens.reserve(capacity);
    sequence.labels.reserve(capacity);
    sequence.positions.reserve(capacity);
    for (const std::uint32_t member : packs_[static_cast<std::size_t>(sample)]) {
      CKPT_ASSIGN_OR_RETURN(const Example example, file_->ReadExample(member));
      const auto places = static_cast<std::ptrdiff_t>(
          std::min(example.tokens.size() - 1, capacity - sequence.tokens.size()));
      const auto targets = example.targets.begin() + 1;
      sequence.tokens.insert(sequence.tokens.end(), example.tokens.begin(),
                             example.tokens.begin() + places);
      sequence.labels.insert(sequence.labels.end(), targets, targets + places);
      sequence.lengths.push_back(static_cast<std::int32_t>(places));
      for (std::ptrdiff_t place = 0; place < places; ++place) {
        sequence.positions.push_back(static_cast<std::int32_t>(place));
      }
    }
    sequence.tokens.resize(capacity, options_.pad_token);
    sequence.labels.resize(capacity, kNoLabel);
    sequence.positions.resize(capacity, kPaddingPosition);
    return sequence;
  }

 private:
  const std::shared_ptr<const JsonlFile> file_;
  const Packs packs_;
  const PackOptions options_;
  const SourceFacts facts_;
};

// Errors: kUsage (no token of any example is learned).
Result<SourceFacts> FactsOf(const JsonlFile& file, const PackOptions& options) {
  SourceFacts facts = {.examples = file.num_examples()};
  std::uint64_t tokens = 0;
  for (const std::uint32_t length : file.lengths()) {
    tokens += length;
    if (length - 1 > options.seq_length) ++facts.truncated;
  }
  for (const std::uint32_t label : file.first_labels()) {
    if (label == JsonlFile::kNoLabels || label > options.seq_length) ++facts.unlabelled;
  }
  facts.identity = fmt::format("{} examples of {} tokens in sequences of {}, {}", facts.examples,
                               tokens, options.seq_length, options.pack ? "packed" : "one in each");
  if (facts.unlabelled < facts.examples) return facts;
  return Error(ErrorKind::kUsage, "no token of the file would be learned")
      .File(file.file_name())
      .Expected("a label, within seq_length, that is not masked")
      .Actual(
          fmt::format("none in {} examples, {} of them truncated", facts.examples, facts.truncated))
      .Hint(facts.truncated > 0 ? "set a larger seq_length: labels at the end were cut off" : "");
}

}  // namespace

Result<std::unique_ptr<SampleSet>> MakePackedExamples(std::shared_ptr<const JsonlFile> file,
                                                      const PackOptions& options) {
  CKPT_CHECK(options.seq_length > 0 &&
             options.seq_length <= std::numeric_limits<std::int32_t>::max());
  const auto capacity = static_cast<std::uint32_t>(options.seq_length);
  if (file->num_examples() == 0) {
    return Error(ErrorKind::kUsage, "the file has no example").File(file->file_name());
  }
  std::vector<std::uint32_t> places;
  places.reserve(file->lengths().size());
  for (const std::uint32_t length : file->lengths()) {
    if (length - 1 > capacity && options.long_examples == LongExamples::kRefuse) {
      return Error(ErrorKind::kOutOfRange, "the example is longer than a sequence")
          .File(file->Where(static_cast<std::int64_t>(places.size())))
          .Expected(fmt::format("at most {} tokens, one more than seq_length", capacity + 1ULL))
          .Actual(fmt::format("{} tokens", length))
          .Hint("set a larger seq_length, or let long examples be truncated");
    }
    places.push_back(std::min(length - 1, capacity));
  }
  CKPT_ASSIGN_OR_RETURN(SourceFacts facts, FactsOf(*file, options));
  Packs packs = options.pack ? PackBestFit(places, capacity) : PackAlone(places.size());
  return std::unique_ptr<SampleSet>(std::make_unique<PackedExamples>(
      std::move(file), std::move(packs), options, std::move(facts)));
}

}  // namespace ckpt::trainer
