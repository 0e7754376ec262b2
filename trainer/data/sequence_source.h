// SequenceSource: what a run trains on, as a function of the number of a sample and of nothing else.
#ifndef CKPT_TRAINER_DATA_SEQUENCE_SOURCE_H_
#define CKPT_TRAINER_DATA_SEQUENCE_SOURCE_H_

#include <cstdint>
#include <vector>

#include "core/base/result.h"

namespace ckpt::trainer {

// A label that does not count.
inline constexpr std::int32_t kNoLabel = -1;

// Tokens and what should follow each of them: labels are shifted already, kNoLabel where nothing is learned.
struct Sequence {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> labels;  // as many

  bool operator==(const Sequence&) const = default;
};

// An endless row of sequences of one length. The same number gives the same sequence in every process, on every mesh
// and after every restart, so the place in the data is one number: how many samples were consumed.
//
// Attention runs over the whole sequence: where several documents or examples share one, later ones see the earlier.
// Only labels are kept apart, as the source says.
//
// Thread-safety: all methods may run concurrently.
class SequenceSource {
 public:
  virtual ~SequenceSource() = default;

  // Tokens of every sequence.
  [[nodiscard]] virtual std::int64_t seq_length() const = 0;
  // Sequences of an epoch: what global samples 0 to num_samples() - 1 go over once. At least 1.
  [[nodiscard]] virtual std::int64_t num_samples() const = 0;

  // REQUIRES: global_sample >= 0.
  // Errors: those of the files behind it.
  [[nodiscard]] virtual Result<Sequence> Read(std::int64_t global_sample) const = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DATA_SEQUENCE_SOURCE_H_
