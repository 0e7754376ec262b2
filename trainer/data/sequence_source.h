// SequenceSource: what a run trains on, as a function of the number of a sample and of nothing else.
#ifndef CKPT_TRAINER_DATA_SEQUENCE_SOURCE_H_
#define CKPT_TRAINER_DATA_SEQUENCE_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace ckpt::trainer {

// A label that does not count.
inline constexpr std::int32_t kNoLabel = -1;

// The position of a token that fills a sequence up: it takes no part in anything.
inline constexpr std::int32_t kPaddingPosition = -1;

// Tokens and what should follow each of them: labels are shifted already, kNoLabel where nothing is learned.
struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;  // as many
  // As many; kPaddingPosition behind the last example. Empty in all sequences of a source: the tokens' places.
  std::vector<std::int32_t> positions = {};
  // Tokens of the examples, or documents, one behind another: attention does not leave them. Empty in all sequences of a
  // source: each is one.
  std::vector<std::int32_t> lengths = {};

  bool operator==(const Sequence&) const = default;
};

// What a source was made of.
struct SourceFacts {
  // Sizes, length of the sequences and order: where they are the same, the number of a sample means the same. Knows no content
  // and no path. Empty: nothing is known.
  std::string identity = {};
  std::int64_t examples = 0;    // that were packed
  std::int64_t truncated = 0;   // of them: longer than a sequence
  std::int64_t unlabelled = 0;  // of them: nothing is learned of them, for no label is left
};

// An endless row of sequences of one length. The same number gives the same sequence in every process, on every mesh
// and after every restart, so the place in the data is one number: how many samples were consumed.
//
// Where several documents or examples share a sequence, its source says what keeps them apart: labels, positions, the
// bounds of attention.
//
// Thread-safety: all methods may run concurrently.
class SequenceSource {
 public:
  virtual ~SequenceSource() = default;

  // Tokens of every sequence.
  [[nodiscard]] virtual std::int64_t seq_length() const = 0;
  // Sequences of an epoch: what global samples 0 to num_samples() - 1 go over once. At least 1.
  [[nodiscard]] virtual std::int64_t num_samples() const = 0;

  [[nodiscard]] virtual SourceFacts facts() const { return {}; }

  // REQUIRES: global_sample >= 0.
  // Errors: those of the files behind it.
  [[nodiscard]] virtual Result<Sequence> Read(std::int64_t global_sample) const = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_SEQUENCE_SOURCE_H_
