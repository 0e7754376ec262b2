#include "core/plan/as_stored.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "core/layout/affine.h"
#include "core/layout/cover.h"

namespace ckpt {
namespace {

// Whether every element keeps its coordinates.
bool KeepsPlaces(const layout::Nest& nest) {
  return nest.target_origin == nest.source_origin &&
         std::ranges::all_of(nest.loops, [](const layout::Loop& loop) {
           return loop.target_dim == loop.source_dim && loop.target_step == loop.source_step;
         });
}

// Puts back what the nest took. The result's `source` means nothing.
layout::Nest TheOtherWay(layout::Nest nest) {
  std::swap(nest.target_origin, nest.source_origin);
  for (layout::Loop& loop : nest.loops) {
    std::swap(loop.target_dim, loop.source_dim);
    std::swap(loop.target_step, loop.source_step);
  }
  layout::Normalize(nest);
  return nest;
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

std::set<std::uint32_t> TensorsTakenApart(std::span<const TargetTensor> tensors,
                                          std::span<const TensorRecipe> recipes,
                                          const CheckpointIndex& source) {
  std::map<std::uint32_t, std::vector<layout::Nest>> takers;  // by what they take from
  std::set<std::uint32_t> as_stored;
  for (std::size_t t = 0; t < recipes.size(); ++t) {
    if (const auto stored = TensorAsStored(recipes[t], tensors[t].shape, source)) {
      as_stored.insert(*stored);
      continue;
    }
    for (const layout::Nest& nest : recipes[t].nests) {
      if (!nest.is_zero_fill()) takers[nest.source].push_back(TheOtherWay(nest));
    }
  }
  std::set<std::uint32_t> apart;
  for (const auto& [position, nests] : takers) {
    if (as_stored.contains(position)) continue;
    if (layout::ProveExactCover(source.tensors()[position].shape, nests).ok()) {
      apart.insert(position);
    }
  }
  return apart;
}

}  // namespace ckpt
