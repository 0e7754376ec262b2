#include "core/tensor/box.h"

#include <algorithm>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"

namespace ckpt {
namespace {

// Proves that `boxes` tile `region`, looking only at dims >= `dim`: in the dims before it all of
// them span the region.
//
// Boxes are sorted along `dim` and cut into slabs: maximal groups whose ranges chain together. A
// slab of equal ranges is a problem with one dim fewer. A slab of staggered ranges is split at
// every range bound, which keeps the recursion exact for any arrangement.
class CoverSearch {
 public:
  explicit CoverSearch(CoverProof& proof) : proof_(proof) {}

  void Prove(const Box& region, std::span<const Box*> boxes, std::size_t dim) {
    if (!proof_.exact() || IsEmpty(region)) return;
    if (boxes.empty()) {
      proof_.missing = region;
      return;
    }
    if (dim == region.sizes.size()) {
      if (boxes.size() > 1) proof_.overlap = {*boxes[0], *boxes[1]};
      return;
    }
    std::sort(boxes.begin(), boxes.end(), [dim](const Box* a, const Box* b) {
      return std::pair(a->offsets[dim], a->sizes[dim]) < std::pair(b->offsets[dim], b->sizes[dim]);
    });
    const std::int64_t region_end = region.offsets[dim] + region.sizes[dim];
    std::int64_t at = region.offsets[dim];
    for (std::size_t begin = 0; begin < boxes.size() && proof_.exact();) {
      const std::int64_t lo = boxes[begin]->offsets[dim];
      if (lo > at) {
        proof_.missing = Slab(region, dim, at, lo);
        return;
      }
      std::int64_t hi = lo + boxes[begin]->sizes[dim];
      bool equal = true;
      std::size_t end = begin + 1;
      for (; end < boxes.size() && boxes[end]->offsets[dim] < hi; ++end) {
        equal = equal && boxes[end]->offsets[dim] == lo &&
                boxes[end]->offsets[dim] + boxes[end]->sizes[dim] == hi;
        hi = std::max(hi, boxes[end]->offsets[dim] + boxes[end]->sizes[dim]);
      }
      const std::span<const Box*> slab = boxes.subspan(begin, end - begin);
      if (equal) {
        Prove(Slab(region, dim, lo, hi), slab, dim + 1);
      } else {
        ProveStaggered(region, slab, dim, lo, hi);
      }
      at = hi;
      begin = end;
    }
    if (proof_.exact() && at < region_end) proof_.missing = Slab(region, dim, at, region_end);
  }

 private:
  static Box Slab(const Box& region, std::size_t dim, std::int64_t lo, std::int64_t hi) {
    Box slab = region;
    slab.offsets[dim] = lo;
    slab.sizes[dim] = hi - lo;
    return slab;
  }

  void ProveStaggered(const Box& region, std::span<const Box*> boxes, std::size_t dim,
                      std::int64_t lo, std::int64_t hi) {
    std::vector<std::int64_t> cuts = {lo, hi};
    for (const Box* box : boxes) {
      cuts.push_back(box->offsets[dim]);
      cuts.push_back(box->offsets[dim] + box->sizes[dim]);
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    for (std::size_t i = 0; i + 1 < cuts.size() && proof_.exact(); ++i) {
      std::vector<const Box*> crossing;
      for (const Box* box : boxes) {
        const std::int64_t begin = box->offsets[dim];
        if (begin <= cuts[i] && begin + box->sizes[dim] >= cuts[i + 1]) crossing.push_back(box);
      }
      Prove(Slab(region, dim, cuts[i], cuts[i + 1]), crossing, dim + 1);
    }
  }

  CoverProof& proof_;
};

}  // namespace

Box WholeBox(DimsView shape) { return {Dims(shape.size(), 0), Dims(shape.begin(), shape.end())}; }

std::string FormatBox(const Box& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < box.offsets.size(); ++d) {
    text +=
        fmt::format("{}{}:{}", d == 0 ? "" : ", ", box.offsets[d], box.offsets[d] + box.sizes[d]);
  }
  return text + "]";
}

bool IsEmpty(const Box& box) {
  return std::any_of(box.sizes.begin(), box.sizes.end(), [](std::int64_t n) { return n == 0; });
}

std::optional<Box> Intersect(const Box& a, const Box& b) {
  Box common;
  common.offsets.resize(a.offsets.size());
  common.sizes.resize(a.offsets.size());
  for (std::size_t d = 0; d < a.offsets.size(); ++d) {
    const std::int64_t lo = std::max(a.offsets[d], b.offsets[d]);
    const std::int64_t hi = std::min(a.offsets[d] + a.sizes[d], b.offsets[d] + b.sizes[d]);
    if (hi <= lo) return std::nullopt;
    common.offsets[d] = lo;
    common.sizes[d] = hi - lo;
  }
  return common;
}

Status CheckInside(const Box& box, DimsView shape) {
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

CoverProof ProveCover(DimsView shape, std::vector<Box> boxes) {
  CoverProof proof;
  std::vector<const Box*> solid;
  solid.reserve(boxes.size());
  for (const Box& box : boxes) {
    if (!IsEmpty(box)) solid.push_back(&box);
  }
  const auto less = [](const Box* a, const Box* b) {
    return std::tie(a->offsets, a->sizes) < std::tie(b->offsets, b->sizes);
  };
  std::sort(solid.begin(), solid.end(), less);
  const auto last =
      std::unique(solid.begin(), solid.end(), [](const Box* a, const Box* b) { return *a == *b; });
  proof.duplicates = static_cast<std::size_t>(solid.end() - last);
  solid.erase(last, solid.end());
  CoverSearch(proof).Prove(WholeBox(shape), solid, 0);
  return proof;
}

}  // namespace ckpt
