// The proof that loop nests fill a tensor exactly once.
#ifndef CKPT_CORE_LAYOUT_COVER_H_
#define CKPT_CORE_LAYOUT_COVER_H_

#include <span>

#include "core/base/result.h"
#include "core/layout/affine.h"
#include "core/tensor/shape.h"

namespace ckpt::layout {

// Whether the nests' targets tile `shape`: inside it, disjoint, nothing left out. Looks at the nests only, not at the
// table they came from.
//
// Errors: kOutOfRange (a nest reaches outside), kOverlap (elements written twice), kCoverage (elements never written),
//         kResource (an arrangement too irregular to decide cheaply).
// Cost: per dim, once over its elements divided by what all nests have in common; a row block costs nothing.
Status ProveExactCover(DimsView shape, std::span<const Nest> nests);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_COVER_H_
