// Proves that loop nests fill a tensor exactly once.
#ifndef CKPT_CORE_LAYOUT_COVER_H_
#define CKPT_CORE_LAYOUT_COVER_H_

#include <span>

#include "core/base/result.h"
#include "core/layout/affine.h"
#include "core/tensor/shape.h"

namespace ckpt::layout {

// Checks that the nests' targets tile `shape`: they lie inside it, do not overlap and leave nothing
// out. Looks at the nests only, not at the table they came from.
//
// Errors: kOutOfRange (a nest reaches outside), kOverlap (elements written twice), kCoverage
// (elements never written), kResource (too irregular to decide at low cost).
// Cost: per dim, its elements divided by what all nests have in common. A row block costs nothing.
Status ProveExactCover(DimsView shape, std::span<const Nest> nests);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_COVER_H_
