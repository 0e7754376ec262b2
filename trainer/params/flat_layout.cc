#include "trainer/params/flat_layout.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "core/base/check.h"
#include "core/base/checked_math.h"

namespace ckpt::trainer {
namespace {

constexpr std::int64_t kMaxCommonMultiple = 64 * 1024;
constexpr std::int64_t kMaxPaddingPercent = 3;

std::int64_t CommonMultiple(std::int64_t a, std::int64_t b) {
  std::int64_t multiple = 0;
  CKPT_CHECK(CheckedMul(a / std::gcd(a, b), b, &multiple));
  return multiple;
}

std::int64_t RowElems(const Dims& shape) {
  return shape.empty() ? 1 : NumElements(DimsView(shape).subspan(1));
}

// The end of an array of `num_elems` elements after padding it so that its shards are equal,
// aligned and of whole rows.
std::int64_t PaddedElems(std::int64_t num_elems, std::int64_t row_multiple,
                         const FlatLayoutOptions& options) {
  std::int64_t step = CommonMultiple(row_multiple, options.alignment_elems);
  CKPT_CHECK(CheckedMul(step, static_cast<std::int64_t>(options.num_shards), &step));
  return AlignUp(num_elems, step);
}

// Tensors that share an array: what grouping needs to know.
struct Gathered {
  std::vector<Dims> shapes;
  std::int64_t num_elems = 0;
  std::int64_t row_multiple = 1;
  std::int64_t longest_row = 0;
  std::int64_t padding = 0;
};

Gathered Gather(std::vector<Dims> shapes, const FlatLayoutOptions& options) {
  Gathered gathered = {.shapes = std::move(shapes)};
  for (const Dims& shape : gathered.shapes) {
    const std::int64_t row = RowElems(shape);
    gathered.num_elems += NumElements(shape);
    gathered.row_multiple = CommonMultiple(gathered.row_multiple, row);
    gathered.longest_row = std::max(gathered.longest_row, row);
  }
  gathered.padding = LayOut(gathered.shapes, options).total_elems - gathered.num_elems;
  return gathered;
}

// Both together, if one array is better than two.
std::optional<Gathered> Join(const Gathered& a, const Gathered& b,
                             const FlatLayoutOptions& options) {
  const std::int64_t row_multiple = CommonMultiple(a.row_multiple, b.row_multiple);
  const std::int64_t longest_row = std::max(a.longest_row, b.longest_row);
  if (row_multiple > std::max(kMaxCommonMultiple, longest_row)) return std::nullopt;
  std::vector<Dims> shapes = a.shapes;
  shapes.insert(shapes.end(), b.shapes.begin(), b.shapes.end());
  Gathered both = Gather(std::move(shapes), options);
  const std::int64_t least = options.num_shards * options.alignment_elems;
  if (both.padding > both.num_elems / 100 * kMaxPaddingPercent &&
      both.padding > a.padding + b.padding + least) {
    return std::nullopt;
  }
  return both;
}

// An array that grows at its end, with the gaps that alignment left.
class Placement {
 public:
  // Returns where a tensor goes: at a multiple of `unit`, in the first gap that holds it, or at the
  // end.
  std::int64_t Place(std::int64_t num_elems, std::int64_t unit) {
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      const std::int64_t begin = AlignUp(gap->begin, unit);
      if (begin + num_elems > gap->end) continue;
      const Gap rest = {begin + num_elems, gap->end};
      gap->end = begin;
      gap = gaps_.insert(gap + 1, rest);
      std::erase_if(gaps_, [](const Gap& g) { return g.begin == g.end; });
      return begin;
    }
    const std::int64_t begin = AlignUp(end_, unit);
    if (begin > end_) gaps_.push_back({end_, begin});
    end_ = begin + num_elems;
    return begin;
  }

  [[nodiscard]] std::int64_t end() const { return end_; }

 private:
  struct Gap {
    std::int64_t begin;
    std::int64_t end;
  };

  std::vector<Gap> gaps_;
  std::int64_t end_ = 0;
};

}  // namespace

std::vector<std::vector<std::size_t>> GroupTensors(std::span<const Dims> shapes,
                                                   const FlatLayoutOptions& options) {
  std::vector<std::vector<std::size_t>> groups;
  std::vector<Gathered> gathered;  // of each group
  for (std::size_t t = 0; t < shapes.size(); ++t) {
    const Gathered tensor = Gather({shapes[t]}, options);
    std::size_t g = 0;
    for (; g < groups.size(); ++g) {
      if (std::optional<Gathered> both = Join(gathered[g], tensor, options)) {
        gathered[g] = std::move(*both);
        break;
      }
    }
    if (g == groups.size()) {
      groups.emplace_back();
      gathered.push_back(tensor);
    }
    groups[g].push_back(t);
  }
  return groups;
}

FlatLayout LayOut(std::span<const Dims> shapes, const FlatLayoutOptions& options) {
  CKPT_CHECK(options.num_shards > 0 && options.alignment_elems > 0);
  FlatLayout layout;
  layout.num_shards = options.num_shards;
  layout.offsets.resize(shapes.size());
  std::int64_t row_multiple = 1;
  for (const Dims& shape : shapes) {
    layout.row_elems.push_back(RowElems(shape));
    layout.num_elems.push_back(NumElements(shape));
    CKPT_CHECK(layout.num_elems.back() > 0);
    row_multiple = CommonMultiple(row_multiple, layout.row_elems.back());
  }

  // Long rows first: after a multiple of a long row, the place is often already aligned for a short
  // one.
  std::vector<std::size_t> order(shapes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&layout](std::size_t a, std::size_t b) {
    if (layout.row_elems[a] != layout.row_elems[b]) {
      return layout.row_elems[a] > layout.row_elems[b];
    }
    return layout.num_elems[a] > layout.num_elems[b];
  });
  Placement placement;
  for (const std::size_t t : order) {
    layout.offsets[t] = placement.Place(
        layout.num_elems[t], CommonMultiple(layout.row_elems[t], options.alignment_elems));
  }
  layout.total_elems = PaddedElems(placement.end(), row_multiple, options);
  return layout;
}

std::vector<FlatGap> ListGaps(const FlatLayout& layout) {
  std::vector<FlatGap> gaps;
  std::int64_t end = 0;
  for (const RowRange& tensor : RowsWithin(layout, 0, layout.total_elems)) {
    if (tensor.flat_begin > end) gaps.push_back({end, tensor.flat_begin - end});
    end = tensor.flat_begin + tensor.elems;
  }
  if (layout.total_elems > end) gaps.push_back({end, layout.total_elems - end});
  return gaps;
}

std::vector<RowRange> RowsWithin(const FlatLayout& layout, std::int64_t begin, std::int64_t end) {
  CKPT_CHECK(0 <= begin && begin <= end && end <= layout.total_elems);
  std::vector<RowRange> ranges;
  for (std::size_t t = 0; t < layout.offsets.size(); ++t) {
    const std::int64_t offset = layout.offsets[t];
    const std::int64_t row = layout.row_elems[t];
    const std::int64_t lo = std::max(begin, offset);
    const std::int64_t hi = std::min(end, offset + layout.num_elems[t]);
    if (lo >= hi) continue;
    CKPT_CHECK((lo - offset) % row == 0 && (hi - lo) % row == 0);
    ranges.push_back(
        {static_cast<std::int64_t>(t), (lo - offset) / row, (hi - lo) / row, lo, hi - lo});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const RowRange& a, const RowRange& b) { return a.flat_begin < b.flat_begin; });
  return ranges;
}

}  // namespace ckpt::trainer
