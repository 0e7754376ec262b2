// Writes what a run stores beside weights and moments as a torch.distributed.checkpoint folder.
//
//   run-state-peer DIR SEED

#include <cstdio>
#include <cstdlib>

#include "core/checkpoint/memory_source.h"
#include "core/exec/executor.h"
#include "core/io/posix_storage.h"
#include "core/io/staged_directory.h"
#include "core/layout/affine.h"
#include "core/plan/plan_check.h"
#include "formats/dcp/writer.h"
#include "formats/fsdp_dtensor/internal/run_objects.h"

namespace {

using ckpt::Result;
using ckpt::Status;
using ckpt::TrainingRun;

TrainingRun SomeState(std::uint64_t seed) {
  TrainingRun state;
  state.args = {{"num_layers", 2}, {"lr", 0.004},
                {"bf16", true},    {"moe_layer_freq", ckpt::layout::Value::List{0, 1}},
                {"load", {}},      {"optimizer", "adam"}};
  state.iteration = 3;
  state.groups = {{.weight_decay = 0.1, .step = 3}, {.wd_mult = 0, .step = 3}};
  state.group_of = {{"output_layer.weight", 0}, {"decoder.final_layernorm.weight", 1}};
  state.seed = seed;
  return state;
}

// Every target tensor is a copy of the source's.
ckpt::TensorRecipe CopyOf(const ckpt::CheckpointIndex& source, const ckpt::TargetTensor& target) {
  const ckpt::GlobalTensor* tensor = source.FindTensor(target.key);
  ckpt::TensorRecipe recipe;
  recipe.source_dtype = tensor->dtype;
  const auto position = static_cast<std::uint32_t>(tensor - source.tensors().data());
  recipe.nests.push_back(ckpt::layout::IdentityNest(position, tensor->shape));
  return recipe;
}

Status Save(const ckpt::Path& directory, const TrainingRun& state) {
  std::vector<ckpt::MemoryTensor> tensors = ckpt::fsdp_dtensor::RunTensors(state);
  std::vector<ckpt::TargetTensor> targets;
  for (const ckpt::MemoryTensor& tensor : tensors) {
    targets.push_back({.key = tensor.key, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  CKPT_ASSIGN_OR_RETURN(const auto source, ckpt::MakeMemorySource(std::move(tensors)));
  ckpt::dcp::WriterOptions options;
  options.objects = ckpt::fsdp_dtensor::RunObjects(state);
  options.path_of = &ckpt::fsdp_dtensor::RunPath;
  ckpt::ConversionPlan plan;
  CKPT_ASSIGN_OR_RETURN(plan.write, ckpt::dcp::PlanDcp(std::move(targets), options));
  for (const ckpt::TargetTensor& target : plan.write.tensors) {
    plan.recipes.push_back(CopyOf(source->index(), target));
  }
  CKPT_RETURN_IF_ERROR(CheckPlan(plan, source->index()));
  ckpt::Storage& storage = ckpt::PosixStorage();
  CKPT_ASSIGN_OR_RETURN(ckpt::StagedDirectory staged,
                        ckpt::StagedDirectory::Open(storage, directory, {}));
  CKPT_RETURN_IF_ERROR(Execute(plan, *source, storage, staged.path(), {}).status());
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(staged.path() / ckpt::kJournalName));
  return staged.Publish();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: run-state-peer DIR SEED\n");
    return 2;
  }
  const Status status = Save(argv[1], SomeState(std::strtoull(argv[2], nullptr, 10)));
  if (!status.ok()) std::fprintf(stderr, "error: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 3;
}
