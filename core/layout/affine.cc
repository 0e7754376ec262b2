#include "core/layout/affine.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace ckpt::layout {
namespace {

// The two sides of a nest differ only in the members that they use.
struct TargetSide {
  static Dims& Origin(Nest& nest) { return nest.target_origin; }
  static const Dims& Origin(const Nest& nest) { return nest.target_origin; }
  static int Dim(const Loop& loop) { return loop.target_dim; }
  static std::int64_t Step(const Loop& loop) { return loop.target_step; }
};
struct SourceSide {
  static Dims& Origin(Nest& nest) { return nest.source_origin; }
  static const Dims& Origin(const Nest& nest) { return nest.source_origin; }
  static int Dim(const Loop& loop) { return loop.source_dim; }
  static std::int64_t Step(const Loop& loop) { return loop.source_step; }
};

// Moves the origins to iteration `begin` of `loop`.
void Advance(Nest& nest, const Loop& loop, std::int64_t begin) {
  nest.target_origin[static_cast<std::size_t>(loop.target_dim)] += begin * loop.target_step;
  if (!nest.is_zero_fill()) {
    nest.source_origin[static_cast<std::size_t>(loop.source_dim)] += begin * loop.source_step;
  }
}

// Cuts a nest along one dim of one side.
template <typename Side>
class DimClipper {
 public:
  DimClipper(const Nest& nest, int dim, std::vector<Nest>& out) : dim_(dim), out_(out) {
    for (std::size_t k = 0; k < nest.loops.size(); ++k) {
      if (Side::Dim(nest.loops[k]) == dim) loops_.push_back(k);
    }
    // Coarsest first.
    std::sort(loops_.begin(), loops_.end(), [&](std::size_t a, std::size_t b) {
      return Side::Step(nest.loops[a]) > Side::Step(nest.loops[b]);
    });
  }

  // Keeps the coordinates in [lo, hi). Loops before `level` are already fixed or narrowed.
  void Clip(Nest nest, std::size_t level, std::int64_t lo, std::int64_t hi) {
    const std::int64_t begin = Side::Origin(nest)[static_cast<std::size_t>(dim_)];
    const std::int64_t last = begin + Reach(nest, level);
    if (last < lo || begin >= hi) return;
    if (begin >= lo && last < hi) {
      out_.push_back(std::move(nest));
      return;
    }
    // Here begin < last, so a loop is left. Its iteration i spans [begin + i·step, begin + i·step +
    // inner].
    const Loop loop = nest.loops[loops_[level]];
    const std::int64_t step = Side::Step(loop);
    const std::int64_t inner = Reach(nest, level + 1);
    const auto first_touching =
        [&](std::int64_t bound) {  // the smallest i with a coordinate >= bound
          return bound <= begin + inner ? 0 : (bound - begin - inner + step - 1) / step;
        };
    const auto first_inside =
        [&](std::int64_t bound) {  // the smallest i that starts at or past bound
          return bound <= begin ? 0 : (bound - begin + step - 1) / step;
        };
    const std::int64_t touched_begin = std::min(first_touching(lo), loop.extent);
    const std::int64_t touched_end = std::min(first_inside(hi), loop.extent);
    const std::int64_t whole_begin =
        std::min(std::max(first_inside(lo), touched_begin), touched_end);
    const std::int64_t whole_end = std::max(std::min(first_touching(hi), touched_end), whole_begin);
    for (std::int64_t i = touched_begin; i < whole_begin; ++i) {
      Clip(Narrow(nest, level, i, i + 1), level + 1, lo, hi);
    }
    if (whole_begin < whole_end) out_.push_back(Narrow(nest, level, whole_begin, whole_end));
    for (std::int64_t i = whole_end; i < touched_end; ++i) {
      Clip(Narrow(nest, level, i, i + 1), level + 1, lo, hi);
    }
  }

 private:
  // How far the loops from `level` on reach past the origin.
  [[nodiscard]] std::int64_t Reach(const Nest& nest, std::size_t level) const {
    std::int64_t reach = 0;
    for (std::size_t k = level; k < loops_.size(); ++k) {
      const Loop& loop = nest.loops[loops_[k]];
      reach += (loop.extent - 1) * Side::Step(loop);
    }
    return reach;
  }
  // Keeps the iterations [begin, end) of one loop. Loops of extent 1 stay until Normalize, so that
  // positions stay valid.
  [[nodiscard]] Nest Narrow(const Nest& nest, std::size_t level, std::int64_t begin,
                            std::int64_t end) const {
    Nest part = nest;
    Loop& loop = part.loops[loops_[level]];
    Advance(part, loop, begin);
    loop.extent = end - begin;
    return part;
  }

  int dim_;
  std::vector<Nest>& out_;
  std::vector<std::size_t> loops_;  // positions in Nest::loops
};

// Whether no element lies in the box. Most nests of a large recipe lie apart from a small box.
template <typename Side>
bool LiesApart(const Nest& nest, const Box& box) {
  for (std::size_t d = 0; d < box.offsets.size(); ++d) {
    std::int64_t last = Side::Origin(nest)[d];
    if (last >= box.offsets[d] + box.sizes[d]) return true;
    for (const Loop& loop : nest.loops) {
      if (static_cast<std::size_t>(Side::Dim(loop)) == d) {
        last += (loop.extent - 1) * Side::Step(loop);
      }
    }
    if (last < box.offsets[d]) return true;
  }
  return false;
}

template <typename Side>
std::vector<Nest> Clip(const Nest& nest, const Box& box) {
  if (LiesApart<Side>(nest, box)) return {};
  std::vector<Nest> parts = {nest};
  for (std::size_t d = 0; d < box.offsets.size() && !parts.empty(); ++d) {
    std::vector<Nest> cut;
    for (Nest& part : parts) {
      DimClipper<Side> clipper(part, static_cast<int>(d), cut);
      clipper.Clip(std::move(part), 0, box.offsets[d], box.offsets[d] + box.sizes[d]);
    }
    parts = std::move(cut);
  }
  for (Nest& part : parts) {
    if (part.loops != nest.loops) Normalize(part);
  }
  return parts;
}

template <typename Side>
Box Bounds(Nest nest) {
  Box box;
  box.offsets = Side::Origin(nest);
  box.sizes.assign(box.offsets.size(), 1);
  for (const Loop& loop : nest.loops) {
    box.sizes[static_cast<std::size_t>(Side::Dim(loop))] += (loop.extent - 1) * Side::Step(loop);
  }
  return box;
}

// The dim along which `b` lies further than `a`, and by how much. Nothing: not along one dim.
std::optional<std::pair<int, std::int64_t>> DistanceAlongDim(const Dims& a, const Dims& b) {
  if (a.size() != b.size()) return std::nullopt;
  const auto [at_a, at_b] = std::ranges::mismatch(a, b);
  if (at_a == a.end() || *at_b <= *at_a) return std::nullopt;
  if (!std::equal(at_a + 1, a.end(), at_b + 1, b.end())) return std::nullopt;
  return std::pair(static_cast<int>(at_a - a.begin()), *at_b - *at_a);
}

// The loop of two iterations that goes from `a` to `b`, if there is one.
std::optional<Loop> LoopBetween(const Nest& a, const Nest& b) {
  if (a.source != b.source || a.is_zero_fill() || a.loops != b.loops) return std::nullopt;
  const auto target = DistanceAlongDim(a.target_origin, b.target_origin);
  const auto source = DistanceAlongDim(a.source_origin, b.source_origin);
  if (!target || !source) return std::nullopt;
  return Loop{2, target->first, target->second, source->first, source->second};
}

// Whether the loops along `dim` are a mixed radix.
template <typename Side>
bool IsMixedRadix(std::vector<Loop> loops, int dim) {
  std::erase_if(loops, [&](const Loop& loop) { return Side::Dim(loop) != dim; });
  std::ranges::sort(loops, {}, [](const Loop& loop) { return Side::Step(loop); });
  std::int64_t reach = 0;
  for (const Loop& loop : loops) {
    if (Side::Step(loop) <= reach) return false;
    reach += (loop.extent - 1) * Side::Step(loop);
  }
  return true;
}

}  // namespace

std::int64_t Volume(const Nest& nest) {
  std::int64_t volume = 1;
  for (const Loop& loop : nest.loops) volume *= loop.extent;
  return volume;
}

void Normalize(Nest& nest) {
  std::erase_if(nest.loops, [](const Loop& loop) { return loop.extent == 1; });
  std::sort(nest.loops.begin(), nest.loops.end(), [](const Loop& a, const Loop& b) {
    return std::tuple(a.target_dim, -a.target_step) < std::tuple(b.target_dim, -b.target_step);
  });
  std::vector<Loop> joined;
  for (const Loop& loop : nest.loops) {
    if (!joined.empty()) {
      Loop& outer = joined.back();
      if (outer.target_dim == loop.target_dim && outer.source_dim == loop.source_dim &&
          outer.target_step == loop.extent * loop.target_step &&
          outer.source_step == loop.extent * loop.source_step) {
        outer = {outer.extent * loop.extent, loop.target_dim, loop.target_step, loop.source_dim,
                 loop.source_step};
        continue;
      }
    }
    joined.push_back(loop);
  }
  nest.loops = std::move(joined);
}

Nest IdentityNest(std::uint32_t source, DimsView shape) {
  Nest nest;
  nest.source = source;
  nest.target_origin.assign(shape.size(), 0);
  nest.source_origin.assign(shape.size(), 0);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const int dim = static_cast<int>(d);
    if (shape[d] > 1) nest.loops.push_back({shape[d], dim, 1, dim, 1});
  }
  return nest;
}

std::vector<Nest> ClipToTarget(const Nest& nest, const Box& box) {
  return Clip<TargetSide>(nest, box);
}
std::vector<Nest> ClipToSource(const Nest& nest, const Box& box) {
  return Clip<SourceSide>(nest, box);
}

std::vector<Nest> JoinNests(std::vector<Nest> nests) {
  std::vector<Nest> joined;
  for (std::size_t i = 0; i < nests.size();) {
    std::size_t end = i + 1;
    std::optional<Loop> loop;
    if (end < nests.size()) loop = LoopBetween(nests[i], nests[end]);
    if (loop) {
      ++end;
      while (end < nests.size() && LoopBetween(nests[end - 1], nests[end]) == loop) ++end;
      loop->extent = static_cast<std::int64_t>(end - i);
      Nest whole = nests[i];
      whole.loops.push_back(*loop);
      if (IsMixedRadix<TargetSide>(whole.loops, loop->target_dim) &&
          IsMixedRadix<SourceSide>(whole.loops, loop->source_dim)) {
        Normalize(whole);
        joined.push_back(std::move(whole));
        i = end;
        continue;
      }
    }
    joined.push_back(std::move(nests[i++]));
  }
  return joined;
}

Box TargetBounds(const Nest& nest) { return Bounds<TargetSide>(nest); }
Box SourceBounds(const Nest& nest) { return Bounds<SourceSide>(nest); }

std::string FormatNest(const Nest& nest) {
  std::string text = fmt::format("target {} <- ", FormatDims(nest.target_origin));
  text += nest.is_zero_fill() ? "zeros:"
                              : fmt::format("{} {}:", nest.source, FormatDims(nest.source_origin));
  for (const Loop& loop : nest.loops) {
    text += fmt::format(" {}×({}+{}, {}+{})", loop.extent, loop.target_dim, loop.target_step,
                        loop.source_dim, loop.source_step);
  }
  return text;
}

}  // namespace ckpt::layout
