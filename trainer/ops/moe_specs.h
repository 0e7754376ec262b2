// How tokens choose experts.
#ifndef CKPT_TRAINER_OPS_MOE_SPECS_H_
#define CKPT_TRAINER_OPS_MOE_SPECS_H_

#include <cstdint>

namespace ckpt::trainer {

enum class ScoreFunction : std::uint8_t {
  kSoftmax,      // over all experts; the weights of the chosen are their probabilities
  kSoftmaxTopK,  // over the chosen experts' logits only (top-k first)
  kSigmoid,
};

enum class GroupScore : std::uint8_t {
  kMax,        // a group's best score (DeepSeek-V2)
  kTopTwoSum,  // the sum of its two best (DeepSeek-V3)
};

struct RouterForm {
  ScoreFunction score = ScoreFunction::kSoftmax;
  std::int64_t topk = 1;
  // Only experts of the `group_topk` best of `num_groups` equal groups are eligible; 1 group: no
  // limit.
  std::int64_t num_groups = 1;
  std::int64_t group_topk = 1;
  GroupScore group_score = GroupScore::kTopTwoSum;
  bool normalize = false;  // weights /= Σ of the chosen (+ 1e-20 for sigmoid scores)
  double scaling = 1;      // weights *= scaling, last

  bool operator==(const RouterForm&) const = default;
};

enum class AuxLoss : std::uint8_t {
  kNone,
  kBatch,     // over the micro-batch: coefficient·E/(K·T²)·Σ_i count_i·Σ_t p_ti
  kSequence,  // the same of every sequence (T = S), averaged over the sequences
};

// Probabilities p are the softmax of the logits, for sigmoid scores the scores divided by their sum
// over the experts. T counts the tokens that are routed: padding is none of them, and a sequence of
// nothing else is no sequence.
struct AuxLossForm {
  AuxLoss kind = AuxLoss::kNone;
  double coefficient = 0;
  double z_coefficient = 0;  // z_coefficient · mean over tokens of logsumexp(logits)²
  std::int64_t seq = 1;      // tokens of a sequence

  bool operator==(const AuxLossForm&) const = default;
};

enum class DropPolicy : std::uint8_t {
  kProbability,  // an expert keeps the heaviest
  kPosition,     // an expert keeps the first
};

struct DropForm {
  std::int64_t num_experts = 1;
  std::int64_t capacity = 0;  // rows per expert; 0: as many as come
  DropPolicy policy = DropPolicy::kProbability;
  bool pad = false;  // every expert has exactly `capacity` rows
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_MOE_SPECS_H_
