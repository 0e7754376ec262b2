#include "core/training/training_run.h"

#include <algorithm>

namespace ckpt {

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
