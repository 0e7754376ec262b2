#include "core/plan/round_trip.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

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

std::optional<TensorRecipe> ThroughTarget(const TensorRecipe& read, const MadeOf& made_of) {
  TensorRecipe through = {.nests = {}, .source_dtype = read.source_dtype};
  for (const layout::Nest& outer : read.nests) {
    const TensorRecipe* const made = outer.is_zero_fill() ? nullptr : made_of(outer.source);
    if (made == nullptr || made->source_dtype != read.source_dtype) return std::nullopt;
    for (const layout::Nest& inner : made->nests) {
      std::optional<std::vector<layout::Nest>> parts = layout::ComposeNests(outer, inner);
      if (!parts) return std::nullopt;
      std::ranges::move(*parts, std::back_inserter(through.nests));
    }
  }
  return through;
}

}  // namespace ckpt
