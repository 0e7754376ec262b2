// How much arithmetic a model takes.
#ifndef CKPT_TRAINER_MODEL_FLOPS_H_
#define CKPT_TRAINER_MODEL_FLOPS_H_

#include <cstdint>

#include "trainer/model/model_config.h"

namespace ckpt::trainer {

// Floating-point operations of forward and backward for one token in sequences of `seq` tokens: six
// for each weight of a matrix that the token is multiplied with (of the experts, those that it
// chooses; not the embedding's table, but the output layer), and attention over half of the
// sequence, because it is causal. Recomputation does not count: this is the model's work, which MFU
// divides by what the device could do.
[[nodiscard]] double TrainingFlopsPerToken(const ModelConfig& config, std::int64_t seq);
// The part of attention in one layer.
[[nodiscard]] double AttentionFlopsPerToken(const ModelConfig& config, std::int64_t layer,
                                            std::int64_t seq);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_FLOPS_H_
