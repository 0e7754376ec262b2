#include "formats/torch_dist/internal/run_arguments.h"

#include <array>
#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/run_ranks.h"

namespace ckpt::torch_dist {
namespace {

constexpr std::array<std::string_view, 9> kCounts = {"tensor_model_parallel_size",
                                                     "pipeline_model_parallel_size",
                                                     "virtual_pipeline_model_parallel_size",
                                                     "expert_model_parallel_size",
                                                     "expert_tensor_parallel_size",
                                                     "context_parallel_size",
                                                     "data_parallel_size",
                                                     "world_size",
                                                     "num_layers"};
constexpr std::array<std::string_view, 16> kFlags = {"bf16",
                                                     "fp16",
                                                     "swiglu",
                                                     "quick_geglu",
                                                     "overlap_grad_reduce",
                                                     "overlap_param_gather_with_optimizer_step",
                                                     "grad_reduce_in_bf16",
                                                     "accumulate_allreduce_grads_in_fp32",
                                                     "ddp_pad_buckets_for_high_nccl_busbw",
                                                     "fp8_param_gather",
                                                     "fp4_param_gather",
                                                     "mla_down_proj_fusion",
                                                     "moe_grouped_gemm",
                                                     "moe_use_legacy_grouped_gemm",
                                                     "use_distributed_optimizer",
                                                     "standalone_embedding_stage"};

Status Refuse(std::string_view name, std::string expected, const layout::Value& found) {
  return Error(ErrorKind::kUnsupported, "the run's buffers do not follow from its arguments")
      .Tensor(fmt::format("args.{}", name))
      .Expected(std::move(expected))
      .Actual(FormatValue(found))
      .Hint(kOtherForm);
}

}  // namespace

Status CheckBufferArguments(const layout::Configuration& args) {
  constexpr std::int64_t kMostRanks = 1 << 16;
  const RunArguments arguments(args);
  for (const std::string_view name : kCounts) {
    if (!arguments.Has(name)) continue;
    const std::int64_t count = arguments.Number(name).value_or(0);
    if (count >= 1 && count <= kMostRanks) continue;
    return Refuse(name, fmt::format("a whole number from 1 to {}", kMostRanks),
                  *arguments.Find(name));
  }
  const RunRanks ranks = RunRanks::Of(args);
  for (const std::int64_t of_stage : {ranks.tensor, ranks.expert_tensor * ranks.expert}) {
    const std::int64_t all = of_stage * ranks.pipeline;
    if (all <= kMostRanks) continue;
    return Refuse("pipeline_model_parallel_size",
                  fmt::format("no more than {} ranks in all stages", kMostRanks), all);
  }
  for (const std::string_view name : kFlags) {
    const layout::Value* const value = arguments.Find(name);
    if (value == nullptr || *value == layout::Value(true) || *value == layout::Value(false)) {
      continue;
    }
    return Refuse(name, "True or False", *value);
  }
  if (arguments.Has("ddp_bucket_size") && arguments.Number("ddp_bucket_size").value_or(0) < 1) {
    return Refuse("ddp_bucket_size", "a positive whole number", *arguments.Find("ddp_bucket_size"));
  }
  const layout::Value* const implementation = arguments.Find("transformer_impl");
  if (implementation != nullptr && *implementation != layout::Value("local") &&
      *implementation != layout::Value("transformer_engine")) {
    return Refuse("transformer_impl", "local or transformer_engine", *implementation);
  }
  return OkStatus();
}

}  // namespace ckpt::torch_dist
