// Compose: from two layouts of one model, the copies that turn one into the other.
#ifndef CKPT_CORE_LAYOUT_COMPOSE_H_
#define CKPT_CORE_LAYOUT_COMPOSE_H_

#include <vector>

#include "core/base/result.h"
#include "core/layout/affine.h"
#include "core/layout/resolve.h"

namespace ckpt::layout {

// The copies that fill each tensor of the target, in the order of ResolvedLayout::tensors.
// `Nest::source` is a position in the source layout's `tensors`, and never that of a derived
// tensor.
struct Composition {
  std::vector<std::vector<Nest>> nests;
};

// target ∘ source⁻¹. Proves that every target tensor, derived ones included, is written exactly
// once.
//
// REQUIRES: both layouts come from the same table.
// Errors (all of them, not only the first): kUnsupported (the layouts describe different models),
// kCoverage (part of a target tensor has no source), kOverlap, kResource.
Result<Composition> Compose(const ResolvedLayout& source, const ResolvedLayout& target);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_COMPOSE_H_
