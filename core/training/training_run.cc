#include "core/training/training_run.h"

#include <algorithm>
#include <array>

#include "core/training/run_format.h"
#include "core/training/run_settings.h"

namespace ckpt {
namespace {

bool KeepsMoments(const ParamGroup& group) { return !group.sgd || group.sgd->momentum != 0; }

}  // namespace

bool IsHowComputed(std::string_view member) {
  static constexpr std::array<std::string_view, 4> kImplementations = {
      "foreach", "fused", "capturable", "differentiable"};
  return std::ranges::find(kImplementations, member) != kImplementations.end() ||
         IsWhereComputed(member);
}

bool IsWhereComputed(std::string_view member) {
  static constexpr std::array<std::string_view, 7> kOffloading = {"offload_fraction",
                                                                  "cpu_optimizer_cls",
                                                                  "gpu_optimizer_cls",
                                                                  "param_update_in_fp32",
                                                                  "pin_cpu_grads",
                                                                  "pin_cpu_params",
                                                                  "overlap_cpu_optimizer_d2h_h2d"};
  return std::ranges::find(kOffloading, member) != kOffloading.end();
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

Status CheckKeepsMoments(const StoredRun& stored) {
  const TrainingRun& run = stored.run;
  if (std::ranges::none_of(run.groups, &KeepsMoments)) return OkStatus();
  if (stored.moments.empty() && run.finished_updates() > 0) {
    return Error(ErrorKind::kMissing,
                 "the optimizer updated the weights, and what it keeps of them is not there")
        .Expected(run.uses_sgd() ? std::string(kMomentOfSgd) : "exp_avg and exp_avg_sq")
        .Hint(std::string(kTakeWeightsAlone));
  }
  if (stored.moments.empty() || std::ranges::all_of(run.groups, &KeepsMoments)) return OkStatus();
  return Error(ErrorKind::kUnsupported,
               "the optimizer keeps moments of one group of parameters and none of another")
      .Hint(std::string(kTakeWeightsAlone));
}

}  // namespace ckpt
