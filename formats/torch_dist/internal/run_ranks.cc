#include "formats/torch_dist/internal/run_ranks.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "formats/torch_dist/internal/run_arguments.h"
#include "formats/torch_dist/internal/weight_key.h"

namespace ckpt::torch_dist {

RunRanks RunRanks::Of(const layout::Configuration& args) {
  // More ranks than any run has would overflow products.
  constexpr std::int64_t kMost = 1 << 16;
  constexpr std::string_view kTensorRanks = "tensor_model_parallel_size";
  const RunArguments arguments(args);
  const auto number = [&](std::string_view name) -> std::optional<std::int64_t> {
    const std::optional<std::int64_t> value = arguments.Number(name);
    return value ? std::optional(std::clamp<std::int64_t>(*value, 1, kMost)) : std::nullopt;
  };
  RunRanks ranks;
  ranks.is_gated = arguments.IsTrue("swiglu") || arguments.IsTrue("quick_geglu");
  ranks.joins_experts = arguments.JoinsExperts();
  ranks.are_named = number(kTensorRanks).has_value();
  ranks.tensor = number(kTensorRanks).value_or(1);
  ranks.pipeline = number("pipeline_model_parallel_size").value_or(1);
  ranks.expert = number("expert_model_parallel_size").value_or(1);
  ranks.expert_tensor = number("expert_tensor_parallel_size").value_or(ranks.tensor);
  const std::int64_t of_stage =
      number("world_size").value_or(ranks.tensor * ranks.pipeline) / ranks.pipeline;
  ranks.data = std::max<std::int64_t>(of_stage / ranks.tensor, 1);
  if (const auto asked = number("data_parallel_size")) {
    ranks.data = *asked * number("context_parallel_size").value_or(1);
  }
  ranks.expert_data =
      std::max<std::int64_t>(ranks.data * ranks.tensor / (ranks.expert_tensor * ranks.expert), 1);
  return ranks;
}

std::int64_t RunRanks::TensorRanks(std::string_view key) const {
  return IsOfExperts(key) ? expert_tensor : tensor;
}

}  // namespace ckpt::torch_dist
