// Finds which parameters lie where in a buffer of Megatron's distributed optimizer.
#ifndef CKPT_FORMATS_TORCH_DIST_INTERNAL_BUFFER_SEARCH_H_
#define CKPT_FORMATS_TORCH_DIST_INTERNAL_BUFFER_SEARCH_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "formats/torch_dist/internal/local_parameter.h"

namespace ckpt::torch_dist {

// An element of a bucket. Buckets follow one another.
struct BufferPosition {
  std::size_t bucket = 0;
  std::int64_t elem = 0;

  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const BufferPosition&, const BufferPosition&) = default;
};

// A parameter that may lie somewhere, and where the one behind it in the buffer then begins.
struct BufferStep {
  std::size_t parameter = 0;
  BufferPosition next;
};
using BufferSteps = std::map<BufferPosition, std::vector<BufferStep>>;

struct PlacedParameter {
  BufferPosition begin;
  std::size_t parameter = 0;

  friend bool operator==(const PlacedParameter&, const PlacedParameter&) = default;
};

// The way from the begin of the buffer to `end` that a rank can have taken: from the last
// parameter of its module to the first, all of one tensor rank, gated or not, in layers of which it
// has more. What values alone leave open, equal vectors such as new norms, follows so from what
// lies around them.
//
// Numbers of parameters are positions in `parameters`. Errors: kNotFound (there is no way),
// kUnsupported (there are several; two parameters between which nothing decides).
Result<std::vector<PlacedParameter>> FindOrder(const BufferSteps& steps, BufferPosition end,
                                               std::span<const LocalParameter> parameters);

}  // namespace ckpt::torch_dist

#endif  // CKPT_FORMATS_TORCH_DIST_INTERNAL_BUFFER_SEARCH_H_
