// SequenceSource: what a run trains on, as a pure function of the sample number.
#ifndef CKPT_TRAINER_DATA_SEQUENCE_SOURCE_H_
#define CKPT_TRAINER_DATA_SEQUENCE_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace ckpt::trainer {

// A label that is not learned.
inline constexpr std::int32_t kNoLabel = -1;

// The position of a token that only fills up a sequence: attention and loss ignore it.
inline constexpr std::int32_t kPaddingPosition = -1;

// Tokens and, for each, the token that should follow it. Labels are shifted already; kNoLabel where
// nothing is learned.
struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;  // as many
  // As many; kPaddingPosition after the last example. Empty, in all sequences of a source: the
  // tokens are at 0, 1, 2, ….
  std::vector<std::int32_t> positions = {};
  // Lengths in tokens of the examples or documents, in order: attention stays within each. Empty,
  // in all sequences of a source: the whole sequence is one.
  std::vector<std::int32_t> lengths = {};

  bool operator==(const Sequence&) const = default;
};

// What a source was made of.
struct SourceFacts {
  // Sizes, sequence length and order. If it is equal for two sources, sample numbers mean the same
  // in both. It contains no content and no path. Empty: unknown.
  std::string identity = {};
  std::int64_t examples = 0;    // packed examples
  std::int64_t truncated = 0;   // of those, longer than a sequence
  std::int64_t unlabelled = 0;  // of those, without a label left, so nothing is learned from them
};

// An endless series of sequences of one length. The same number gives the same sequence in every
// process, on every mesh and after every restart. So the place in the data is one number: the
// samples consumed so far.
//
// Where documents or examples share a sequence, the source says what separates them: labels,
// positions, the bounds of attention.
//
// Thread-safety: all methods may run concurrently.
class SequenceSource {
 public:
  virtual ~SequenceSource() = default;

  // Tokens of every sequence.
  [[nodiscard]] virtual std::int64_t seq_length() const = 0;
  // Sequences of an epoch: global samples 0 to num_samples() - 1 visit each of them once. At least
  // 1.
  [[nodiscard]] virtual std::int64_t num_samples() const = 0;

  [[nodiscard]] virtual SourceFacts facts() const { return {}; }

  // REQUIRES: global_sample >= 0.
  // Errors: those of reading its files.
  [[nodiscard]] virtual Result<Sequence> Read(std::int64_t global_sample) const = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_SEQUENCE_SOURCE_H_
