#include "core/layout/cover.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/checked_math.h"

namespace ckpt::layout {
namespace {

// If one dim has more positions than this, after dividing out what all sets share, it is refused.
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 24;
// At most this many nests are compared pair by pair, if no dim separates them.
constexpr std::size_t kMaxPairwise = 2048;

struct Stride {
  std::int64_t extent;
  std::int64_t step;
  // The check takes the 0 inside a defaulted <=> for a pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const Stride&, const Stride&) = default;
};

// The coordinates that a nest visits along one dim: origin + Σ i·step. A nest's target is the
// product of these sets.
struct StrideSet {
  std::int64_t origin = 0;
  std::vector<Stride> strides;  // coarsest first
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const StrideSet&, const StrideSet&) = default;

  [[nodiscard]] std::int64_t size() const {
    return std::accumulate(strides.begin(), strides.end(), std::int64_t{1},
                           [](std::int64_t n, const Stride& s) { return n * s.extent; });
  }
  // From the first to the last.
  [[nodiscard]] std::int64_t reach() const {
    return std::accumulate(
        strides.begin(), strides.end(), std::int64_t{0},
        [](std::int64_t n, const Stride& s) { return n + (s.extent - 1) * s.step; });
  }
};

StrideSet SetAlong(const Nest& nest, int dim) {
  StrideSet set;
  set.origin = nest.target_origin[static_cast<std::size_t>(dim)];
  for (const Loop& loop : nest.loops) {
    if (loop.target_dim == dim) set.strides.push_back({loop.extent, loop.target_step});
  }
  std::sort(set.strides.begin(), set.strides.end(),
            [](const Stride& a, const Stride& b) { return a.step > b.step; });
  return set;
}

// Checks that the set lies inside [0, size) and holds no coordinate twice.
Status CheckSet(const StrideSet& set, std::int64_t size) {
  std::int64_t reach = 0;
  for (auto stride = set.strides.rbegin(); stride != set.strides.rend(); ++stride) {
    if (stride->extent < 1 || stride->step <= reach) {
      return Error(ErrorKind::kOverlap, "a loop visits elements twice");
    }
    std::int64_t span = 0;
    if (!CheckedMul(stride->extent - 1, stride->step, &span) || !CheckedAdd(reach, span, &reach)) {
      return Error(ErrorKind::kOutOfRange, "a loop leaves the tensor");
    }
  }
  if (set.origin < 0 || reach >= size || set.origin >= size - reach) {
    return Error(ErrorKind::kOutOfRange, "a loop leaves the tensor")
        .Expected(fmt::format("coordinates below {}", size))
        .Actual(fmt::format("{} … {}", set.origin, set.origin + reach));
  }
  return OkStatus();
}

// Removes what all sets of a dim share: the finest unit in which they all move, and the coarsest
// period with which they all repeat. Returns the number of positions that remain.
std::int64_t Quotient(std::vector<StrideSet>& sets, std::int64_t size) {
  std::int64_t unit = size;
  for (const StrideSet& set : sets) {
    unit = std::gcd(unit, set.origin);
    const bool has_run = !set.strides.empty() && set.strides.back().step == 1;
    unit = std::gcd(unit, has_run ? set.strides.back().extent : 1);
    const std::size_t above_run = set.strides.size() - (has_run ? 1 : 0);
    for (std::size_t k = 0; k < above_run; ++k) unit = std::gcd(unit, set.strides[k].step);
  }
  for (StrideSet& set : sets) {
    set.origin /= unit;
    if (unit > 1) {  // so the unit divides the last run of every set
      set.strides.back().extent /= unit;
      for (std::size_t k = 0; k + 1 < set.strides.size(); ++k) set.strides[k].step /= unit;
      if (set.strides.back().extent == 1) set.strides.pop_back();
    }
  }
  size /= unit;
  const auto period = [&](const StrideSet& set) {
    return !set.strides.empty() && set.strides[0].extent * set.strides[0].step == size
               ? set.strides[0].step
               : std::int64_t{0};
  };
  while (size > 1 && period(sets[0]) > 0 &&
         std::all_of(sets.begin(), sets.end(), [&](const StrideSet& set) {
           return period(set) == period(sets[0]) && set.origin < period(sets[0]);
         })) {
    size = period(sets[0]);
    for (StrideSet& set : sets) set.strides.erase(set.strides.begin());
  }
  return size;
}

// Calls visit(coordinate) for every element of the set until it returns false.
template <typename Visit>
bool ForEach(const StrideSet& set, std::size_t level, std::int64_t at, const Visit& visit) {
  if (level == set.strides.size()) return visit(at);
  for (std::int64_t i = 0; i < set.strides[level].extent; ++i) {
    if (!ForEach(set, level + 1, at + i * set.strides[level].step, visit)) return false;
  }
  return true;
}

enum class Arrangement : std::uint8_t { kTiles, kGaps, kStaggered };

// How distinct sets divide [0, size) of one dim among them.
Result<Arrangement> ArrangeTogether(std::vector<StrideSet> sets, std::int64_t size) {
  const std::int64_t positions = Quotient(sets, size);
  if (positions > kMaxPositions) {
    return Error(ErrorKind::kResource,
                 "copies are too irregular to prove that they cover the tensor")
        .Expected(fmt::format("at most {} positions in a dim", kMaxPositions))
        .Actual(fmt::format("{}", positions));
  }
  std::vector<bool> taken(static_cast<std::size_t>(positions), false);
  std::int64_t num_taken = 0;
  for (const StrideSet& set : sets) {
    const bool is_disjoint = ForEach(set, 0, set.origin, [&](std::int64_t at) {
      if (taken[static_cast<std::size_t>(at)]) return false;
      taken[static_cast<std::size_t>(at)] = true;
      ++num_taken;
      return true;
    });
    if (!is_disjoint) return Arrangement::kStaggered;
  }
  return num_taken == positions ? Arrangement::kTiles : Arrangement::kGaps;
}

// The same, where sets that lie apart are looked at apart: they share less, and most are runs.
Result<Arrangement> Arrange(std::vector<StrideSet> sets, std::int64_t size) {
  std::ranges::sort(sets, {}, &StrideSet::origin);
  bool has_gaps = false;
  std::int64_t behind = 0;
  for (std::size_t first = 0; first < sets.size();) {
    const std::int64_t begin = sets[first].origin;
    has_gaps = has_gaps || begin != behind;
    behind = begin;
    std::size_t last = first;
    for (; last < sets.size() && (last == first || sets[last].origin < behind); ++last) {
      behind = std::max(behind, sets[last].origin + sets[last].reach() + 1);
    }
    std::vector<StrideSet> together(sets.begin() + static_cast<std::ptrdiff_t>(first),
                                    sets.begin() + static_cast<std::ptrdiff_t>(last));
    first = last;
    if (together.size() == 1 && together[0].size() == behind - begin) continue;
    for (StrideSet& set : together) set.origin -= begin;
    CKPT_ASSIGN_OR_RETURN(const Arrangement arrangement,
                          ArrangeTogether(std::move(together), behind - begin));
    if (arrangement == Arrangement::kStaggered) return arrangement;
    has_gaps = has_gaps || arrangement == Arrangement::kGaps;
  }
  return has_gaps || behind != size ? Arrangement::kGaps : Arrangement::kTiles;
}

bool AreDisjoint(const StrideSet& a, const StrideSet& b, std::int64_t size, Status& status) {
  if (a == b) return false;
  Result<Arrangement> arrangement = Arrange({a, b}, size);
  if (!arrangement.ok()) {
    status.Add(std::move(arrangement).status());
    return false;
  }
  return *arrangement != Arrangement::kStaggered;
}

class CoverProver {
 public:
  explicit CoverProver(DimsView shape) : shape_(shape) {}

  // REQUIRES: `nests` visit the same coordinates along the dims before `dim`.
  Status Prove(std::vector<const Nest*> nests, std::size_t dim) const {
    if (dim == shape_.size()) {
      if (nests.size() == 1) return OkStatus();
      return Error(ErrorKind::kOverlap, "elements are written twice")
          .Expected(FormatNest(*nests[0]))
          .Actual(FormatNest(*nests[1]));
    }
    std::map<StrideSet, std::vector<const Nest*>> groups;
    for (const Nest* nest : nests) groups[SetAlong(*nest, static_cast<int>(dim))].push_back(nest);
    std::vector<StrideSet> sets;
    sets.reserve(groups.size());
    for (const auto& [set, group] : groups) sets.push_back(set);
    CKPT_ASSIGN_OR_RETURN(const Arrangement arrangement, Arrange(std::move(sets), shape_[dim]));
    if (arrangement == Arrangement::kStaggered) return ProvePairwise(nests, dim);
    if (arrangement == Arrangement::kGaps) {
      return Error(ErrorKind::kCoverage, "elements are never written")
          .Actual(fmt::format("gaps along dim {}", dim));
    }
    for (auto& [set, group] : groups) CKPT_RETURN_IF_ERROR(Prove(std::move(group), dim + 1));
    return OkStatus();
  }

 private:
  // Disjoint parts of the right total volume are a tiling.
  Status ProvePairwise(const std::vector<const Nest*>& nests, std::size_t first_dim) const {
    if (nests.size() > kMaxPairwise) {
      return Error(ErrorKind::kResource,
                   "copies are too irregular to prove that they cover the tensor")
          .Actual(fmt::format("{} interlocking pieces", nests.size()));
    }
    std::int64_t volume = 0;
    for (std::size_t i = 0; i < nests.size(); ++i) {
      std::int64_t piece = 1;
      for (std::size_t d = first_dim; d < shape_.size(); ++d) {
        piece *= SetAlong(*nests[i], static_cast<int>(d)).size();
      }
      volume += piece;
      for (std::size_t j = 0; j < i; ++j) {
        Status status;
        bool is_disjoint = false;
        for (std::size_t d = first_dim; d < shape_.size() && !is_disjoint; ++d) {
          const int dim = static_cast<int>(d);
          is_disjoint =
              AreDisjoint(SetAlong(*nests[i], dim), SetAlong(*nests[j], dim), shape_[d], status);
        }
        CKPT_RETURN_IF_ERROR(status);
        if (!is_disjoint) {
          return Error(ErrorKind::kOverlap, "elements are written twice")
              .Expected(FormatNest(*nests[j]))
              .Actual(FormatNest(*nests[i]));
        }
      }
    }
    std::int64_t wanted = 1;
    for (std::size_t d = first_dim; d < shape_.size(); ++d) wanted *= shape_[d];
    if (volume != wanted) {
      return Error(ErrorKind::kCoverage, "elements are never written")
          .Expected(fmt::format("{} elements", wanted))
          .Actual(fmt::format("{}", volume));
    }
    return OkStatus();
  }

  DimsView shape_;
};

}  // namespace

Status ProveExactCover(DimsView shape, std::span<const Nest> nests) {
  CKPT_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(shape));
  std::vector<const Nest*> pointers;
  for (const Nest& nest : nests) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      CKPT_RETURN_IF_ERROR(CheckSet(SetAlong(nest, static_cast<int>(d)), shape[d]));
    }
    pointers.push_back(&nest);
  }
  if (count == 0 && nests.empty()) return OkStatus();
  if (nests.empty()) return Error(ErrorKind::kCoverage, "elements are never written");
  return CoverProver(shape).Prove(std::move(pointers), 0);
}

}  // namespace ckpt::layout
