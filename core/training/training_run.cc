#include "core/training/training_run.h"

#include <algorithm>
#include <array>

namespace ckpt {

bool IsHowComputed(std::string_view member) {
  static constexpr std::array<std::string_view, 4> kImplementations = {
      "foreach", "fused", "capturable", "differentiable"};
  return std::ranges::find(kImplementations, member) != kImplementations.end();
}

bool AreOneWithoutExperts(ParamGroup a, ParamGroup b) {
  a.is_expert_parallel = b.is_expert_parallel = false;
  return a == b;
}

const layout::Value* FindArg(const TrainingRun& run, std::string_view name) {
  const auto found =
      std::ranges::find(run.args, name, &std::pair<std::string, layout::Value>::first);
  return found == run.args.end() ? nullptr : &found->second;
}

void SetArg(std::string_view name, layout::Value value, TrainingRun& run) {
  const auto found =
      std::ranges::find(run.args, name, &std::pair<std::string, layout::Value>::first);
  if (found != run.args.end()) {
    found->second = std::move(value);
  } else {
    run.args.emplace_back(name, std::move(value));
  }
}

double LargestDecay(const std::vector<ParamGroup>& groups) {
  double largest = 0;
  for (const ParamGroup& group : groups) largest = std::max(largest, group.weight_decay);
  return largest;
}

}  // namespace ckpt
