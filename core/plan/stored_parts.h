// Which stored chunks a nest reads, and by which copies: what readers do and what plans of reading
// count.
#ifndef CKPT_CORE_PLAN_STORED_PARTS_H_
#define CKPT_CORE_PLAN_STORED_PARTS_H_

#include <cstddef>
#include <functional>
#include <span>

#include "core/base/status.h"
#include "core/checkpoint/index.h"
#include "core/layout/affine.h"
#include "core/tensor/strided_copy.h"

namespace ckpt {

// Calls `visit` for every chunk of `chunks` that holds elements of the nest, with its box and with
// the parts of the nest that lie in it. Together these copy each element once: of a box that is
// stored several times, as ranks that have the same elements may do, copy number `copy` is taken,
// or the first where there are fewer. `chunks` are those of `tensor`, the nest's source, at least
// all that can hold elements of the nest.
//
// Errors: those of `visit`; kCoverage (no chunk holds part of the nest).
Status ForEachStoredPart(const CheckpointIndex& index, const GlobalTensor& tensor,
                         std::span<const Chunk> chunks, const layout::Nest& nest, std::size_t copy,
                         const std::function<Status(const Chunk& chunk, const Box& stored,
                                                    std::span<const layout::Nest> parts)>& visit);

// The copy for a part: from a chunk whose box is `stored` and whose elements lie `strides` (in
// elements) apart, into the C order of the target box `box`. Offsets count from the first element
// of each.
[[nodiscard]] StridedCopy CopyOfPart(const layout::Nest& part, const Box& stored, DimsView strides,
                                     DType dtype, const Box& box);

}  // namespace ckpt

#endif  // CKPT_CORE_PLAN_STORED_PARTS_H_
