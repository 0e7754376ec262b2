#include "trainer/step/expert_choice.h"

#include <algorithm>

#include <fmt/format.h>

namespace ckpt::trainer {
namespace {

constexpr int kRanksOfAHost = 8;
constexpr double kExchange = 700;
constexpr double kGather = 1500;
constexpr double kHidden = 1000;

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
  choice.exchange_time = kExchange * RowsPerToken(dispatcher, num_experts, topk, choice.candidate) /
                         static_cast<double>(topk * model.moe->ffn_hidden_size);
  choice.gather_time = kGather * experts_a_choice / static_cast<double>(tokens);
  choice.hidden_tokens = kHidden * experts_a_choice;
  const double exposed_gathers = std::max(0.0, choice.gather_time - kGather / kHidden);
  if (exposed_gathers > choice.exchange_time) choice.expert_parallel = choice.candidate;
  return choice;
}

std::string ExpertChoice::Reason() const {
  if (candidate == 1)
    return "experts stay whole on every rank: no ranks of an instance can divide them";
  const std::string gathers = fmt::format(
      "gathering their weights takes {:.2f} of the time of their products and is hidden from "
      "{:.0f} "
      "tokens of a micro-batch on, of which there are {}",
      gather_time, hidden_tokens, tokens);
  const std::string exchange = fmt::format(
      "sending tokens to {} ranks takes {:.2f}, which nothing hides", candidate, exchange_time);
  return expert_parallel > 1
             ? fmt::format("{} ranks divide the experts: {}; {}", expert_parallel, gathers,
                           exchange)
             : fmt::format("experts are not divided, their weights are: {}; {}", gathers, exchange);
}

}  // namespace ckpt::trainer
