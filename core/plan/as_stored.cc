#include "core/plan/as_stored.h"

#include <algorithm>

#include "core/layout/affine.h"

namespace ckpt {
namespace {

// Whether every element keeps its coordinates.
bool KeepsPlaces(const layout::Nest& nest) {
  return nest.target_origin == nest.source_origin &&
         std::ranges::all_of(nest.loops, [](const layout::Loop& loop) {
           return loop.target_dim == loop.source_dim && loop.target_step == loop.source_step;
         });
}

}  // namespace

std::optional<std::uint32_t> TensorAsStored(const TensorRecipe& recipe, DimsView shape,
                                            const CheckpointIndex& source) {
  if (recipe.nests.empty() || recipe.nests.front().is_zero_fill()) return std::nullopt;
  const std::uint32_t position = recipe.nests.front().source;
  const GlobalTensor& stored = source.tensors()[position];
  if (!SameDims(stored.shape, shape) || stored.dtype != recipe.source_dtype) return std::nullopt;
  const bool is_as_stored = std::ranges::all_of(recipe.nests, [&](const layout::Nest& nest) {
    return nest.source == position && KeepsPlaces(nest);
  });
  return is_as_stored ? std::optional(position) : std::nullopt;
}

}  // namespace ckpt
