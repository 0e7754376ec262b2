#include "formats/mp_rank/internal/parameters.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/tensor/shape.h"
#include "core/training/weight_decay.h"
#include "formats/mp_rank/internal/global_name.h"

namespace ckpt::mp_rank {
namespace {

using torch_save::RankPart;

// How names of tensors end that modules keep and no optimizer updates.
constexpr std::array<std::string_view, 5> kBuffers = {
    "_extra_state", "router.expert_bias", "router.local_tokens_per_expert",
    "router.global_tokens_per_expert", "inv_freq"};

bool IsBuffer(std::string_view name) {
  return std::ranges::any_of(kBuffers,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

}  // namespace

bool HasExpertOptimizer(const Arguments& arguments) {
  return arguments.sizes.expert > 1 && arguments.num_experts > 0;
}

std::vector<Parameter> ListParameters(std::span<const RankPart> parts, const Arguments& arguments,
                                      std::int64_t stage) {
  const bool shares_embedding =
      (arguments.ties_head || arguments.predicts_further) && arguments.sizes.pipeline > 1;
  std::vector<Parameter> parameters;
  std::set<std::pair<const void*, std::uint64_t>> places;  // of those so far, in the file
  for (std::size_t position = 0; position < parts.size(); ++position) {
    const RankPart& part = parts[position];
    const std::optional<LocalName> local = ParseLocalName(part.key);
    if (!local || IsBuffer(local->name)) continue;
    // Of a tied parameter there are several names, and one array.
    const bool is_tied = NumElements(part.local.shape) > 0 &&
                         !places.emplace(part.local.storage, part.local.array.offset_bytes).second;
    if (is_tied) continue;
    const bool is_first_stage = stage == 0 && local->part == 0;
    const bool is_embedding = is_first_stage && local->name == kEmbeddingName;
    parameters.push_back(
        {.position = position,
         .key = part.key,
         .weight = part.local,
         .part = local->part,
         .is_expert = HasExpertOptimizer(arguments) && IsOfExpert(local->name),
         .decays = Decays(local->name, part.local.shape.size(), arguments.decays_qk_norms),
         .has_own_rate = arguments.decouples_rate && (is_embedding || local->name == kHeadName),
         .is_shared = shares_embedding && (local->name == kEmbeddingName ||
                                           (arguments.ties_head && local->name == kHeadName))});
  }
  return parameters;
}

}  // namespace ckpt::mp_rank
