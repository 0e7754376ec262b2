#include "trainer/params/flat_layout.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>

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

std::int64_t AlignUp(std::int64_t position, std::int64_t alignment) {
  const std::int64_t excess = position % alignment;
  return excess == 0 ? position : position + (alignment - excess);
}

std::int64_t RowElems(const Dims& shape) {
  return shape.empty() ? 1 : NumElements(DimsView(shape).subspan(1));
}

// Where the array of `num_elems` elements ends once it is divided into aligned shards of whole
// rows.
std::int64_t PaddedElems(std::int64_t num_elems, std::int64_t row_multiple,
                         const FlatLayoutOptions& options) {
  std::int64_t step = CommonMultiple(row_multiple, options.alignment_elems);
  CKPT_CHECK(CheckedMul(step, static_cast<std::int64_t>(options.num_shards), &step));
  return AlignUp(num_elems, step);
}

// Tensors that may share an array, as far as grouping looks at them.
struct Gathered {
  std::int64_t num_elems = 0;
  std::int64_t row_multiple = 1;
  std::set<std::int64_t> rows = {};  // distinct sizes

  // An upper bound: a row that divides all longer ones leaves no gap before it.
  [[nodiscard]] std::int64_t Padding(const FlatLayoutOptions& options) const {
    std::int64_t gaps = 0;
    for (auto row = rows.begin(); row != rows.end(); ++row) {
      const bool is_aligned =
          std::all_of(row, rows.end(), [row](std::int64_t longer) { return longer % *row == 0; });
      if (!is_aligned) gaps += *row - 1;
    }
    return PaddedElems(num_elems + gaps, row_multiple, options) - num_elems;
  }
};

// Both together, if that is worth one array instead of two.
std::optional<Gathered> Join(const Gathered& a, const Gathered& b,
                             const FlatLayoutOptions& options) {
  Gathered both = a;
  both.num_elems += b.num_elems;
  both.row_multiple = CommonMultiple(a.row_multiple, b.row_multiple);
  both.rows.insert(b.rows.begin(), b.rows.end());
  const std::int64_t longest_row = *both.rows.rbegin();
  if (both.row_multiple > std::max(kMaxCommonMultiple, longest_row)) return std::nullopt;
  const std::int64_t padding = both.Padding(options);
  const std::int64_t apart = a.Padding(options) + b.Padding(options);
  const std::int64_t least = options.num_shards * options.alignment_elems;
  if (padding > both.num_elems / 100 * kMaxPaddingPercent && padding > apart + least) {
    return std::nullopt;
  }
  return both;
}

// An array that grows at its end, and the gaps that alignment left before it.
class Placement {
 public:
  // Where a tensor goes: the first gap that holds it, else the end.
  std::int64_t Place(std::int64_t num_elems, std::int64_t row) {
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      const std::int64_t begin = AlignUp(gap->begin, row);
      if (begin + num_elems > gap->end) continue;
      const Gap rest = {begin + num_elems, gap->end};
      gap->end = begin;
      gap = gaps_.insert(gap + 1, rest);
      std::erase_if(gaps_, [](const Gap& g) { return g.begin == g.end; });
      return begin;
    }
    const std::int64_t begin = AlignUp(end_, row);
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
    const std::int64_t row = RowElems(shapes[t]);
    const Gathered tensor = {NumElements(shapes[t]), row, {row}};
    std::size_t g = 0;
    for (; g < groups.size(); ++g) {
      if (const std::optional<Gathered> both = Join(gathered[g], tensor, options)) {
        gathered[g] = *both;
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

  // Long rows first: what follows a multiple of a long row is often aligned for a short one
  // already.
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
    layout.offsets[t] = placement.Place(layout.num_elems[t], layout.row_elems[t]);
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
