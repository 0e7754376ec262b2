#include "core/tensor/box.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"

namespace ckpt {
namespace {

// Orders boxes dim by dim, so that the boxes of a grid are sorted by the first dim, then by the
// second, and so on.
int Compare(const BoxView& a, const BoxView& b) {
  for (std::size_t d = 0; d < a.offsets.size(); ++d) {
    if (a.offsets[d] != b.offsets[d]) return a.offsets[d] < b.offsets[d] ? -1 : 1;
    if (a.sizes[d] != b.sizes[d]) return a.sizes[d] < b.sizes[d] ? -1 : 1;
  }
  return 0;
}

Box Copy(const BoxView& box) {
  return {Dims(box.offsets.begin(), box.offsets.end()), Dims(box.sizes.begin(), box.sizes.end())};
}

// Finds elements of a region that no box holds, and elements that two boxes hold.
//
// Along a dim, boxes form groups whose ranges overlap or touch in a chain. Between two groups the
// whole region can be cut, and each part is a smaller problem of the same kind. If no dim separates
// the boxes, the region is cut at every range bound of one dim, and a box that a cut divides goes
// to both sides. At the end a cell holds one box, which fills it or does not, or several boxes that
// all span it.
class CoverSearch {
 public:
  CoverSearch(DimsView shape, std::size_t num_boxes, CoverProof& proof)
      : region_(WholeBox(shape)), work_left_(20'000'000 + 32 * num_boxes), proof_(proof) {}

  // Leaves `region_` unchanged. Reorders `boxes`; each of them shares elements with the region.
  void Prove(std::span<BoxView> boxes) {
    if (Stop(boxes.size())) return;
    if (boxes.size() == 1) return ProveOne(boxes[0]);
    for (std::size_t dim = 0; dim < region_.sizes.size(); ++dim) {
      if (Separate(boxes, dim)) return;
    }
    Dissect(boxes);
  }

 private:
  struct Range {
    std::int64_t lo;
    std::int64_t hi;
  };

  [[nodiscard]] Range RegionRange(std::size_t dim) const {
    return {region_.offsets[dim], region_.offsets[dim] + region_.sizes[dim]};
  }
  // The part of a box's range that lies in the region.
  [[nodiscard]] Range RangeOf(const BoxView& box, std::size_t dim) const {
    const Range region = RegionRange(dim);
    return {std::max(box.offsets[dim], region.lo),
            std::min(box.offsets[dim] + box.sizes[dim], region.hi)};
  }

  // Whether the search ends: everything was found, or the work limit is reached.
  bool Stop(std::size_t work) {
    if (proof_.missing && proof_.overlap) return true;
    if (work_left_ < work) {
      proof_.undecided = !proof_.missing && !proof_.overlap;
      work_left_ = 0;
      return true;
    }
    work_left_ -= work;
    return false;
  }

  void SetRegion(std::size_t dim, Range range) {
    region_.offsets[dim] = range.lo;
    region_.sizes[dim] = range.hi - range.lo;
  }

  void ReportMissing(std::size_t dim, Range range) {
    if (proof_.missing) return;
    const Range saved = RegionRange(dim);
    SetRegion(dim, range);
    proof_.missing = region_;
    SetRegion(dim, saved);
  }

  void ProveOne(const BoxView& box) {
    for (std::size_t dim = 0; dim < region_.sizes.size(); ++dim) {
      const Range region = RegionRange(dim);
      const Range range = RangeOf(box, dim);
      if (range.lo > region.lo) return ReportMissing(dim, {region.lo, range.lo});
      if (range.hi < region.hi) return ReportMissing(dim, {range.hi, region.hi});
    }
  }

  // Proves group by group, or returns false if one group spans the region.
  bool Separate(std::span<BoxView> boxes, std::size_t dim) {
    const auto before = [dim](const BoxView& a, const BoxView& b) {
      return a.offsets[dim] < b.offsets[dim];
    };
    if (!std::is_sorted(boxes.begin(), boxes.end(), before)) {
      std::sort(boxes.begin(), boxes.end(), before);
    }
    const Range region = RegionRange(dim);
    std::int64_t at = region.lo;
    for (std::size_t begin = 0; begin < boxes.size();) {
      Range group = RangeOf(boxes[begin], dim);
      std::size_t end = begin + 1;
      for (; end < boxes.size() && boxes[end].offsets[dim] < group.hi; ++end) {
        group.hi = std::max(group.hi, RangeOf(boxes[end], dim).hi);
      }
      if (end - begin == boxes.size() && group.lo == region.lo && group.hi == region.hi)
        return false;
      if (group.lo > at) ReportMissing(dim, {at, group.lo});
      SetRegion(dim, group);
      Prove(boxes.subspan(begin, end - begin));
      SetRegion(dim, region);
      at = group.hi;
      begin = end;
    }
    if (at < region.hi) ReportMissing(dim, {at, region.hi});
    return true;
  }

  // Every bound of the boxes' ranges, including the region's own.
  [[nodiscard]] std::vector<std::int64_t> BoundsAlong(std::span<const BoxView> boxes,
                                                      std::size_t dim) const {
    std::vector<std::int64_t> bounds;
    bounds.reserve(boxes.size() * 2);
    for (const BoxView& box : boxes) {
      const Range range = RangeOf(box, dim);
      bounds.push_back(range.lo);
      bounds.push_back(range.hi);
    }
    std::sort(bounds.begin(), bounds.end());
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    return bounds;
  }

  // Cuts along the dim with the fewest bounds. REQUIRES: at least two boxes, and no dim separates
  // them.
  void Dissect(std::span<BoxView> boxes) {
    std::size_t dim = 0;
    std::vector<std::int64_t> bounds;
    for (std::size_t d = 0; d < region_.sizes.size(); ++d) {
      std::vector<std::int64_t> along = BoundsAlong(boxes, d);
      if (along.size() > 2 && (bounds.empty() || along.size() < bounds.size())) {
        bounds = std::move(along);
        dim = d;
      }
    }
    if (bounds.empty()) {  // all of them span the region
      if (!proof_.overlap) proof_.overlap.emplace(Copy(boxes[0]), Copy(boxes[1]));
      return;
    }
    std::sort(boxes.begin(), boxes.end(), [dim](const BoxView& a, const BoxView& b) {
      return a.offsets[dim] < b.offsets[dim];
    });
    const Range region = RegionRange(dim);
    std::vector<BoxView> crossing;
    std::size_t next = 0;
    for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
      if (Stop(crossing.size())) break;
      std::erase_if(crossing, [&](const BoxView& box) {
        return box.offsets[dim] + box.sizes[dim] <= bounds[i];
      });
      while (next < boxes.size() && boxes[next].offsets[dim] <= bounds[i]) {
        crossing.push_back(boxes[next++]);
      }
      SetRegion(dim, {bounds[i], bounds[i + 1]});
      std::vector<BoxView> cell = crossing;
      Prove(cell);
      SetRegion(dim, region);
    }
  }

  Box region_;
  std::uint64_t work_left_;
  CoverProof& proof_;
};

}  // namespace

Box WholeBox(DimsView shape) { return {Dims(shape.size(), 0), Dims(shape.begin(), shape.end())}; }

std::string FormatBox(const BoxView& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < box.offsets.size(); ++d) {
    // Wrong boxes are printed too: their ends may exceed 63 bits.
    const std::uint64_t end =
        static_cast<std::uint64_t>(box.offsets[d]) + static_cast<std::uint64_t>(box.sizes[d]);
    const bool is_negative = box.offsets[d] < 0 || box.sizes[d] < 0;
    text += fmt::format("{}{}:", d == 0 ? "" : ", ", box.offsets[d]);
    text +=
        is_negative ? fmt::format("{}", static_cast<std::int64_t>(end)) : fmt::format("{}", end);
  }
  return text + "]";
}

bool IsEmpty(const BoxView& box) {
  return std::any_of(box.sizes.begin(), box.sizes.end(), [](std::int64_t n) { return n == 0; });
}

std::optional<Box> Intersect(const BoxView& a, const BoxView& b) {
  const std::size_t ndim = a.offsets.size();
  const auto begin = [&](std::size_t d) { return std::max(a.offsets[d], b.offsets[d]); };
  const auto end = [&](std::size_t d) {
    return std::min(a.offsets[d] + a.sizes[d], b.offsets[d] + b.sizes[d]);
  };
  // A tensor may have thousands of chunks, of which a small box needs one.
  for (std::size_t d = 0; d < ndim; ++d) {
    if (end(d) <= begin(d)) return std::nullopt;
  }
  Box common{.offsets = Dims(ndim), .sizes = Dims(ndim)};
  for (std::size_t d = 0; d < ndim; ++d) {
    common.offsets[d] = begin(d);
    common.sizes[d] = end(d) - begin(d);
  }
  return common;
}

Status CheckInside(const BoxView& box, DimsView shape) {
  if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size()) {
    return Error(ErrorKind::kBadMetadata, "chunk and tensor have different numbers of dims")
        .Expected(fmt::format("{} dims", shape.size()))
        .Actual(
            fmt::format("offsets {}, sizes {}", FormatDims(box.offsets), FormatDims(box.sizes)));
  }
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::int64_t end = 0;
    if (box.sizes[d] < 0) {
      return Error(ErrorKind::kBadMetadata, "negative chunk size").Actual(FormatDims(box.sizes));
    }
    if (box.offsets[d] < 0) {
      return Error(ErrorKind::kOutOfRange, "negative chunk offset").Actual(FormatDims(box.offsets));
    }
    if (!CheckedAdd(box.offsets[d], box.sizes[d], &end) || end > shape[d]) {
      return Error(ErrorKind::kOutOfRange, "chunk lies outside its tensor")
          .Expected("inside " + FormatDims(shape))
          .Actual(
              fmt::format("offsets {}, sizes {}", FormatDims(box.offsets), FormatDims(box.sizes)));
    }
  }
  return OkStatus();
}

CoverProof ProveCover(DimsView shape, std::vector<BoxView> boxes) {
  CoverProof proof;
  std::erase_if(boxes, [](const BoxView& box) { return IsEmpty(box); });
  const auto less = [](const BoxView& a, const BoxView& b) { return Compare(a, b) < 0; };
  // Metadata mostly lists chunks in this order.
  if (!std::is_sorted(boxes.begin(), boxes.end(), less))
    std::sort(boxes.begin(), boxes.end(), less);
  const auto last = std::unique(boxes.begin(), boxes.end(), [](const BoxView& a, const BoxView& b) {
    return Compare(a, b) == 0;
  });
  proof.duplicates = static_cast<std::size_t>(boxes.end() - last);
  boxes.erase(last, boxes.end());

  const Box whole = WholeBox(shape);
  if (IsEmpty(whole)) return proof;
  if (boxes.empty()) {
    proof.missing = whole;
  } else {
    CoverSearch(shape, boxes.size(), proof).Prove(boxes);
  }
  return proof;
}

CoverProof ProveCover(DimsView shape, const std::vector<Box>& boxes) {
  return ProveCover(shape, std::vector<BoxView>(boxes.begin(), boxes.end()));
}

}  // namespace ckpt
