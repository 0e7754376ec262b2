#include "core/layout/compose.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/layout/cover.h"

namespace ckpt::layout {
namespace {

struct SegmentRef {
  std::uint32_t tensor = 0;
  const Segment* segment = nullptr;
};

// The segments of one logical tensor whose rules bind the same axes by name, indexed by the numbers
// of those axes.
struct SegmentGroup {
  std::vector<bool> in_name;  // one per axis
  std::map<Dims, SegmentRef> by_numbers;
};

class Composer {
 public:
  Composer(const ResolvedLayout& source, const ResolvedLayout& target)
      : source_(source), target_(target), groups_(source.logicals.size()) {}

  Result<Composition> Run() {
    CKPT_RETURN_IF_ERROR(CheckSameModel());
    IndexSource();
    Composition composition;
    Status problems;
    for (const ResolvedTensor& tensor : target_.tensors) {
      std::vector<Nest> nests;
      for (const Segment& segment : tensor.segments) AppendNests(segment, nests);
      problems.Add(ProveExactCover(tensor.shape, nests).Tensor(target_.Key(tensor)));
      composition.nests.push_back(std::move(nests));
    }
    CKPT_RETURN_IF_ERROR(problems);
    return composition;
  }

 private:
  Status CheckSameModel() const {
    bool same = source_.logicals.size() == target_.logicals.size();
    for (std::size_t i = 0; same && i < source_.logicals.size(); ++i) {
      const ResolvedLogical& a = source_.logicals[i];
      const ResolvedLogical& b = target_.logicals[i];
      if (a.name == b.name && a.axes == b.axes && a.shape == b.shape && a.presence == b.presence) {
        continue;
      }
      return Error(ErrorKind::kUnsupported, "source and target describe different models")
          .Tensor(a.name)
          .Expected(FormatDims(a.shape))
          .Actual(FormatDims(b.shape));
    }
    if (!same) return Error(ErrorKind::kUnsupported, "source and target use different tables");
    return OkStatus();
  }

  void IndexSource() {
    for (std::uint32_t t = 0; t < source_.tensors.size(); ++t) {
      if (source_.tensors[t].derived) continue;
      for (const Segment& segment : source_.tensors[t].segments) {
        if (segment.logical == kZeros) continue;
        std::vector<bool> in_name;
        Dims numbers;
        for (const AxisPlace& place : segment.places) {
          in_name.push_back(place.dim == AxisPlace::kInName);
          if (in_name.back()) numbers.push_back(place.index);
        }
        GroupOf(segment.logical, in_name)
            .by_numbers.emplace(std::move(numbers), SegmentRef{t, &segment});
      }
    }
  }
  SegmentGroup& GroupOf(LogicalId logical, const std::vector<bool>& in_name) {
    std::vector<SegmentGroup>& groups = groups_[logical];
    const auto found = std::find_if(groups.begin(), groups.end(),
                                    [&](const SegmentGroup& g) { return g.in_name == in_name; });
    if (found != groups.end()) return *found;
    groups.push_back({in_name, {}});
    return groups.back();
  }

  void AppendNests(const Segment& segment, std::vector<Nest>& nests) const {
    if (std::any_of(segment.places.begin(), segment.places.end(),
                    [](const AxisPlace& place) { return place.extent == 0; })) {
      return;
    }
    if (segment.logical == kZeros) {
      nests.push_back(ZeroFill(segment));
      return;
    }
    for (const SegmentGroup& group : groups_[segment.logical]) {
      Dims numbers;
      Enumerate(segment, group, 0, numbers, nests);
    }
  }

  static Nest ZeroFill(const Segment& segment) {
    Nest nest;
    nest.source = Nest::kZeroFill;
    nest.target_origin = segment.origin;
    for (const AxisPlace& place : segment.places) {
      nest.loops.push_back({place.extent, place.dim, place.step, 0, 0});
    }
    Normalize(nest);
    return nest;
  }

  // Completes the numbers of the axes that the source binds by name. If the target has such an axis
  // in its shape, each number is another source tensor.
  void Enumerate(const Segment& segment, const SegmentGroup& group, std::size_t axis, Dims& numbers,
                 std::vector<Nest>& nests) const {
    while (axis < group.in_name.size() && !group.in_name[axis]) ++axis;
    if (axis == group.in_name.size()) {
      const auto found = group.by_numbers.find(numbers);
      if (found != group.by_numbers.end() && Meet(segment, *found->second.segment)) {
        nests.push_back(CopyBetween(segment, found->second, group, numbers));
      }
      return;
    }
    const AxisPlace& place = segment.places[axis];
    const bool is_bound = place.dim == AxisPlace::kInName;
    const std::int64_t begin = is_bound ? place.index : 0;
    const std::int64_t end = is_bound ? place.index + 1 : place.extent;
    for (std::int64_t number = begin; number < end; ++number) {
      numbers.push_back(number);
      Enumerate(segment, group, axis + 1, numbers, nests);
      numbers.pop_back();
    }
  }

  // Whether the source's shape has the numbers that the target's name says. Along a shape lie the
  // first numbers of an axis, not necessarily all.
  static bool Meet(const Segment& to, const Segment& from) {
    for (std::size_t axis = 0; axis < to.places.size(); ++axis) {
      const AxisPlace& target = to.places[axis];
      const AxisPlace& source = from.places[axis];
      if (target.dim == AxisPlace::kInName && source.dim != AxisPlace::kInName &&
          target.index >= source.extent) {
        return false;
      }
    }
    return true;
  }

  static Nest CopyBetween(const Segment& to, const SegmentRef& from, const SegmentGroup& group,
                          const Dims& numbers) {
    Nest nest;
    nest.source = from.tensor;
    nest.target_origin = to.origin;
    nest.source_origin = from.segment->origin;
    std::size_t next_number = 0;
    for (std::size_t axis = 0; axis < to.places.size(); ++axis) {
      const AxisPlace& target = to.places[axis];
      const AxisPlace& source = from.segment->places[axis];
      if (group.in_name[axis]) {
        const std::int64_t number = numbers[next_number++];
        if (target.dim != AxisPlace::kInName) {
          nest.target_origin[static_cast<std::size_t>(target.dim)] += number * target.step;
        }
      } else if (target.dim == AxisPlace::kInName) {
        nest.source_origin[static_cast<std::size_t>(source.dim)] += target.index * source.step;
      } else {
        nest.loops.push_back({std::min(target.extent, source.extent), target.dim, target.step,
                              source.dim, source.step});
      }
    }
    Normalize(nest);
    return nest;
  }

  const ResolvedLayout& source_;
  const ResolvedLayout& target_;
  std::vector<std::vector<SegmentGroup>> groups_;  // by logical tensor
};

}  // namespace

Result<Composition> Compose(const ResolvedLayout& source, const ResolvedLayout& target) {
  return Composer(source, target).Run();
}

}  // namespace ckpt::layout
