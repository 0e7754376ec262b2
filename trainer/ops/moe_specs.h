// How tokens choose experts.
#ifndef CKPT_TRAINER_OPS_MOE_SPECS_H_
#define CKPT_TRAINER_OPS_MOE_SPECS_H_

#include <cstdint>

namespace ckpt::trainer {

enum class ScoreFunction : std::uint8_t {
  kSoftmax,      // over all experts; the weights are the probabilities of the chosen
  kSoftmaxTopK,  // only over the logits of the chosen experts (top-k first)
  kSigmoid,
};

enum class GroupScore : std::uint8_t {
  kMax,        // the best score of a group (DeepSeek-V2)
  kTopTwoSum,  // the sum of the two best scores of a group (DeepSeek-V3)
};

struct RouterForm {
  ScoreFunction score = ScoreFunction::kSoftmax;
  std::int64_t topk = 1;
  // Only experts in the `group_topk` best of `num_groups` equal groups are eligible. With 1 group
  // all are.
  std::int64_t num_groups = 1;
  std::int64_t group_topk = 1;
  GroupScore group_score = GroupScore::kTopTwoSum;
  bool normalize = false;  // weights /= Σ of the chosen (+ 1e-20 for sigmoid scores)
  double scaling = 1;      // weights *= scaling, last
  // The experts are given, and the router only weighs them. A token with the expert -1 is padding.
  bool is_assigned = false;

  bool operator==(const RouterForm&) const = default;
};

enum class AuxLoss : std::uint8_t {
  kNone,
  kBatch,     // over the micro-batch: coefficient·E/(K·T²)·Σ_i count_i·Σ_t p_ti
  kSequence,  // the same for every sequence (T = S), averaged over the sequences
};

// The probabilities p are the softmax of the logits; for sigmoid scores, the scores divided by
// their sum over the experts. T counts only routed tokens: padding is not counted, nor is a
// sequence that consists of padding.
struct AuxLossForm {
  AuxLoss kind = AuxLoss::kNone;
  double coefficient = 0;
  double z_coefficient = 0;  // z_coefficient · mean over tokens of logsumexp(logits)²
  std::int64_t seq = 1;      // tokens per sequence

  bool operator==(const AuxLossForm&) const = default;
};

enum class DropPolicy : std::uint8_t {
  kProbability,  // an expert keeps the choices with the largest weights
  kPosition,     // an expert keeps the first choices
};

// Which choices get rows: those of the experts [first_expert, first_expert + num_experts).
struct SortForm {
  std::int64_t first_expert = 0;
  std::int64_t num_experts = 1;
  std::int64_t capacity = 0;  // rows per expert; 0: no limit
  DropPolicy policy = DropPolicy::kProbability;
  bool pad = false;  // every expert has exactly `capacity` rows
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_MOE_SPECS_H_
