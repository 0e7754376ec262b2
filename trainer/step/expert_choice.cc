#include "trainer/step/expert_choice.h"

#include <algorithm>

#include <fmt/format.h>

namespace ckpt::trainer {
namespace {

constexpr int kRanksOfAHost = 8;

// What follows is calculated, and rounded, for a layer of hidden size h in bfloat16, forward and
// backward, on eight H200s of a host: 7/8 of what is sent or gathered comes from other GPUs.
// Experts multiply at 600 TFLOP/s, copies carry 390 GB/s and kernels that read the links 330.
// Measured are 644 TFLOP/s (docs/bench/2026-11-23-cuda-experts.md), 393 and 333 GB/s
// (docs/bench/2026-11-25-cuda-two-gpus.md). For m1, a forecast from measured kernels chooses the
// same (docs/bench/2026-11-26-cluster-forecast.md, "Experts divided").
//
// The products take 18·h·f operations for each token and expert that it meets.

// Elements: if experts have this width f and a token is sent once for each of its experts, sending
// takes as long as the products. Of 8·h bytes (four ways), by kernels.
constexpr double kEvenWidth = 700;
// Tokens of a rank that each expert gets: then gathers and reductions take as long as the products.
// Of 12·h·f bytes an expert by copies (weights, twice) and 6·h·f by kernels (gradients).
constexpr double kEvenTokens = 1500;
// Tokens of a rank that each expert gets: from here on a layer's computing hides the gathers. It is
// an estimate: the layer computes for kEvenTokens / kHiddenTokens = 1.5 times what the products
// take; in a step of m1 all that is computed, without the update, takes 3 times as long as these.
constexpr double kHiddenTokens = 1000;

}  // namespace

ExpertChoice ChooseExpertParallel(const ModelConfig& model, const MeshConfig& mesh,
                                  Dispatcher dispatcher, std::int64_t tokens) {
  ExpertChoice choice = {.tokens = tokens};
  if (!model.moe || mesh.world_size % mesh.num_instances != 0) return choice;
  const int instance = mesh.world_size / mesh.num_instances;
  for (int ranks = 1; ranks <= std::min(instance, kRanksOfAHost); ++ranks) {
    if (instance % ranks == 0 && model.moe->num_experts % ranks == 0) choice.candidate = ranks;
  }
  if (choice.candidate == 1) return choice;
  const std::int64_t topk = model.moe->router.topk;
  const std::int64_t num_experts = model.moe->num_experts;
  const double experts_a_choice = static_cast<double>(num_experts) / static_cast<double>(topk);
  choice.exchange_time = kEvenWidth *
                         RowsPerToken(dispatcher, num_experts, topk, choice.candidate) /
                         static_cast<double>(topk * model.moe->ffn_hidden_size);
  choice.gather_time = kEvenTokens * experts_a_choice / static_cast<double>(tokens);
  choice.hidden_tokens = kHiddenTokens * experts_a_choice;
  const double exposed_gathers = std::max(0.0, choice.gather_time - kEvenTokens / kHiddenTokens);
  if (exposed_gathers > choice.exchange_time) choice.expert_parallel = choice.candidate;
  return choice;
}

std::string ExpertChoice::Reason() const {
  if (candidate == 1) {
    return "experts stay whole on every rank: no ranks of an instance can divide them";
  }
  const std::string gathers = fmt::format(
      "gathering their weights takes {:.2f} of the time of their products and is hidden from "
      "{:.0f} tokens of a micro-batch on, of which there are {}",
      gather_time, hidden_tokens, tokens);
  const std::string exchange = fmt::format(
      "sending tokens to {} ranks takes {:.2f}, which nothing hides", candidate, exchange_time);
  return expert_parallel > 1
             ? fmt::format("{} ranks divide the experts: {}; {}", expert_parallel, gathers,
                           exchange)
             : fmt::format("experts are not divided, their weights are: {}; {}", gathers, exchange);
}

}  // namespace ckpt::trainer
