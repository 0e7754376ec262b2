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

}  // namespace ckpt
