#include "formats/torch_dist/internal/common_state.h"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/training/run_settings.h"
#include "formats/torch_dist/internal/param_groups.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/writer.h"

namespace ckpt::torch_dist {
namespace {

using pickle::PickleWriter;

void WriteBeginning(const megatron::NamedValues& args, std::int64_t iteration,
                    PickleWriter& pickle) {
  pickle.Text("args");
  megatron::WriteNamespace(args, pickle);
  pickle.Text("checkpoint_version").Float(3.0);
  pickle.Text(kIteration).Int(iteration);
}

// How Megatron-Core is told to read the rest: halves of a gated projection are one tensor, and
// several optimizers are not told apart by a prefix.
void WriteContentMetadata(std::optional<std::string_view> optimizer_form, PickleWriter& pickle) {
  pickle.Text("content_metadata").BeginDict();
  if (optimizer_form) {
    pickle.Text("distrib_optim_sharding_type").Text(*optimizer_form);
    if (*optimizer_form == kFullyReshardable) {
      pickle.Text("distrib_optim_fully_reshardable_mem_efficient").Bool(false);
    }
  }
  pickle.Text("singleton_local_shards").Bool(false);
  pickle.Text("chained_optim_avoid_prefix").Bool(true);
  pickle.EndDict();
}

// What an optimizer stores that is no tensor of its own. Beside buffers, each group of ranks has
// it.
void WriteOptimizer(const std::vector<ParamGroup>& groups, std::string_view form,
                    PickleWriter& pickle) {
  pickle.BeginDict();
  if (form != kDpReshardable) {
    pickle.Text("optimizer");
    WriteParamGroups(groups, pickle);
  }
  pickle.Text("param_state_sharding_type").Text(form);
  pickle.EndDict();
}

void WriteSchedule(const RunSchedule& schedule, PickleWriter& pickle) {
  pickle.Text("opt_param_scheduler").BeginDict();
  VisitSchedule(schedule, megatron::WriteEntries{pickle});
  pickle.EndDict();
}

}  // namespace

void WriteModelState(const megatron::NamedValues& args, PickleWriter& pickle) {
  pickle.BeginDict();
  WriteBeginning(args, 0, pickle);
  WriteContentMetadata(/*optimizer_form=*/std::nullopt, pickle);
  pickle.EndDict();
}

void WriteRunState(const TrainingRun& run, ExpertOptimizer experts, std::string_view form,
                   PickleWriter& pickle) {
  pickle.BeginDict();
  WriteBeginning(run.args, run.iteration, pickle);
  pickle.Text("optimizer");
  const std::vector<ParamGroup> of_experts = GroupsOf(run, /*of_experts=*/true);
  if (experts == ExpertOptimizer::kSeparate && !of_experts.empty()) {
    pickle.BeginDict();
    pickle.Int(0);
    WriteOptimizer(GroupsOf(run, /*of_experts=*/false), form, pickle);
    pickle.Int(1);
    WriteOptimizer(of_experts, form, pickle);
    pickle.EndDict();
  } else {
    WriteOptimizer(run.groups, form, pickle);
  }
  WriteSchedule(run.schedule, pickle);
  pickle.Text(kOperations).Float(run.num_floating_point_operations);
  WriteContentMetadata(form, pickle);
  pickle.EndDict();
}

}  // namespace ckpt::torch_dist
