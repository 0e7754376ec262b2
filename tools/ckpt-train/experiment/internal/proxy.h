// What `experiment reshard` trains: DeepSeek-V3 in small, on a language made for it.
#ifndef CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_PROXY_H_
#define CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_PROXY_H_

#include <cstdint>
#include <string>

#include "core/layout/value.h"

namespace ckpt::train {

// Eight layers, three of them dense, five with eight experts of which a token takes four: sigmoid
// scores, four groups of which two are chosen, a correction bias, a shared expert, a balancing loss
// of sequences; latent attention; bytes as tokens. Batch, optimizer and schedule too, the latter
// for a run of `train_iters` steps: a step has one sequence a rank of eight.
[[nodiscard]] layout::Configuration ProxySettings(std::int64_t train_iters);

// JSON lines of text: short sentences and sums of a small vocabulary, drawn from a fixed seed. The
// same bytes always, few enough that a run of some hundred steps goes through them more than once.
[[nodiscard]] std::string ProxyText();

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_EXPERIMENT_INTERNAL_PROXY_H_
