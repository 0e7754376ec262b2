// Affine copies between two tensors: loop nests with a step on each side.
//
// Fusing, splitting, interleaving, stacking and transposing are all such copies.
#ifndef CKPT_CORE_LAYOUT_AFFINE_H_
#define CKPT_CORE_LAYOUT_AFFINE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/tensor/box.h"
#include "core/tensor/shape.h"

namespace ckpt::layout {

// One loop of a nest: each iteration moves by a step along one dim of each side.
struct Loop {
  std::int64_t extent = 1;
  int target_dim = 0;
  std::int64_t target_step = 1;
  int source_dim = 0;
  std::int64_t source_step = 1;

  friend bool operator==(const Loop&, const Loop&) = default;
};

// target[target_origin + Σ iₖ·target_stepₖ] = source[source_origin + Σ iₖ·source_stepₖ] for every
// (i₀, i₁, …).
//
// Invariants of every nest that this library makes: extents are at least 2. Loops are ordered by
// target dim, then by decreasing target step. On each side, the loops along one dim form a mixed
// radix: a step is larger than everything that the finer loops of that dim reach together. So no
// element is visited twice.
struct Nest {
  // `source` of a nest that fills the target with zeros. Such a nest has an empty source_origin and
  // source steps of 0.
  static constexpr std::uint32_t kZeroFill = 0xffffffff;

  std::uint32_t source = 0;  // which source tensor: position in ResolvedLayout::tensors
  Dims target_origin;
  Dims source_origin;
  std::vector<Loop> loops;

  [[nodiscard]] bool is_zero_fill() const { return source == kZeroFill; }
  friend bool operator==(const Nest&, const Nest&) = default;
};

// How many elements the nest copies.
[[nodiscard]] std::int64_t Volume(const Nest& nest);

// Sorts the loops as above, drops loops of extent 1 and joins neighbours that are one loop on both
// sides.
void Normalize(Nest& nest);

// Copies a tensor to an equal one. REQUIRES: the shape was checked and has no zero.
[[nodiscard]] Nest IdentityNest(std::uint32_t source, DimsView shape);

// The parts of a nest whose target (source) elements lie in `box`, with unchanged coordinates.
// Exact: together they copy those elements and no others, each once. At most 2k-1 parts for k loops
// along a dim that the box cuts.
//
// REQUIRES: same ndim; for ClipToSource, not a zero fill.
[[nodiscard]] std::vector<Nest> ClipToTarget(const Nest& nest, const Box& box);
[[nodiscard]] std::vector<Nest> ClipToSource(const Nest& nest, const Box& box);

// The same copies in fewer nests: neighbours that differ by equal distances along one dim of each
// side, as gate and up of interleaved columns do, become one nest with a loop more.
[[nodiscard]] std::vector<Nest> JoinNests(std::vector<Nest> nests);

// The smallest box that holds every target (source) element of the nest.
[[nodiscard]] Box TargetBounds(const Nest& nest);
[[nodiscard]] Box SourceBounds(const Nest& nest);

// Text for plans and test failures: "target [0, 0] <- 3 [4, 0]: 2×(0+8, 0+4) 16×(1+1, 1+1)".
[[nodiscard]] std::string FormatNest(const Nest& nest);

}  // namespace ckpt::layout

#endif  // CKPT_CORE_LAYOUT_AFFINE_H_
