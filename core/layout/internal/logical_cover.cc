#include "core/layout/internal/logical_cover.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/tensor/box.h"

namespace ckpt::layout {
namespace {

// The part of a logical tensor that the naming has no names for.
void AddLeftOut(const ResolvedLogical& logical, const NamedNumbers& named_numbers,
                std::vector<Box>& boxes) {
  for (std::size_t axis = 0; axis < logical.axes.size(); ++axis) {
    const std::int64_t named = named_numbers(logical.axes[axis], logical.shape[axis]);
    const bool is_decided = logical.presence_axis == static_cast<int>(axis);
    for (std::int64_t i = named; i < logical.shape[axis]; ++i) {
      if (is_decided && !logical.presence[static_cast<std::size_t>(i)]) continue;
      Box left_out = WholeBox(logical.shape);
      left_out.offsets[axis] = i;
      left_out.sizes[axis] = 1;
      boxes.push_back(std::move(left_out));
    }
  }
}

}  // namespace

// A segment covers a box of its logical tensor, and the parts that the model lacks are boxes too.
// Together they must tile the logical index space.
Status ProveLogicalCover(const ResolvedLayout& layout, const NamedNumbers& named) {
  std::vector<std::vector<Box>> boxes(layout.logicals.size());
  for (const ResolvedTensor& tensor : layout.tensors) {
    if (tensor.derived) continue;
    for (const Segment& segment : tensor.segments) {
      if (segment.logical == kZeros) continue;
      Box box;
      for (const AxisPlace& place : segment.places) {
        const bool in_name = place.dim == AxisPlace::kInName;
        box.offsets.push_back(in_name ? place.index : 0);
        box.sizes.push_back(in_name ? 1 : place.extent);
      }
      boxes[segment.logical].push_back(std::move(box));
    }
  }
  Status problems;
  for (std::size_t id = 0; id < boxes.size(); ++id) {
    const ResolvedLogical& logical = layout.logicals[id];
    if (!logical.IsPresentAnywhere()) continue;
    if (logical.presence_axis >= 0) {
      const auto axis = static_cast<std::size_t>(logical.presence_axis);
      for (std::size_t i = 0; i < logical.presence.size(); ++i) {
        if (logical.presence[i]) continue;
        Box absent = WholeBox(logical.shape);
        absent.offsets[axis] = static_cast<std::int64_t>(i);
        absent.sizes[axis] = 1;
        boxes[id].push_back(std::move(absent));
      }
    }
    AddLeftOut(logical, named, boxes[id]);
    const CoverProof proof = ProveCover(logical.shape, boxes[id]);
    const std::string axes = fmt::format("[{}]", fmt::join(logical.axes, " "));
    if (proof.missing) {
      problems.Add(
          Error(ErrorKind::kCoverage,
                "naming " + layout.naming + " has no tensor for part of the model")
              .Tensor(logical.name)
              .Actual(fmt::format("nothing at {} of {}", FormatBox(*proof.missing), axes)));
    }
    if (proof.overlap || proof.duplicates > 0) {
      problems.Add(
          Error(ErrorKind::kOverlap, "naming " + layout.naming + " holds a part of the model twice")
              .Tensor(logical.name)
              .Hint("mark the copy `derived`"));
    }
  }
  return problems;
}

}  // namespace ckpt::layout
