#include "core/tensor/internal/transposed_copy.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "core/base/scratch.h"

namespace ckpt::internal {
namespace {

constexpr std::size_t kVectorBytes = 16;  // every x86-64 and ARM has these
// Of a tile. A line of the source for each row, and some for each column of the target: a new page
// costs more than a new line.
constexpr std::size_t kColumnsBytes = kCacheLineBytes;
constexpr std::size_t kRowsBytes = 256;
constexpr std::int64_t kFewIndices = 64;  // of all loops along a side; a tile should have more

// Where an index of some loops lies.
struct Place {
  std::int64_t src = 0;
  std::int64_t dst = 0;
};

// The indices of some loops in order, the last loop fastest, a batch at a time.
class Places {
 public:
  explicit Places(std::vector<StrideLoop> loops)
      : loops_(std::move(loops)), indices_(loops_.size()) {}

  void Restart() {
    std::ranges::fill(indices_, 0);
    next_ = {};
    is_done_ = false;
  }

  // At most as many as `out` has. Empty: there are no more.
  std::span<const Place> Next(std::span<Place> out) {
    std::size_t count = 0;
    while (count < out.size() && !is_done_) {
      out[count++] = next_;
      Advance();
    }
    return out.first(count);
  }

 private:
  void Advance() {
    for (std::size_t d = loops_.size(); d-- > 0;) {
      const StrideLoop& loop = loops_[d];
      if (++indices_[d] < loop.extent) {
        next_.src += loop.src_step;
        next_.dst += loop.dst_step;
        return;
      }
      indices_[d] = 0;
      next_.src -= (loop.extent - 1) * loop.src_step;
      next_.dst -= (loop.extent - 1) * loop.dst_step;
    }
    is_done_ = true;
  }

  std::vector<StrideLoop> loops_;
  std::vector<std::int64_t> indices_;
  Place next_;
  bool is_done_ = false;
};

// The loops of a copy, by the side along which they run.
struct Sides {
  std::vector<StrideLoop> outer;
  std::vector<StrideLoop> rows;     // neighbours in the target
  std::vector<StrideLoop> columns;  // neighbours in the source
};

std::int64_t NumIndices(std::span<const StrideLoop> loops) {
  std::int64_t count = 1;
  for (const StrideLoop& loop : loops) count *= loop.extent;
  return count;
}

Sides Divide(const StridedCopy& copy) {
  Sides sides{.outer = copy.loops, .rows = {}, .columns = {}};
  const auto take = [&](auto step, std::vector<StrideLoop>& into) {
    const auto least = std::ranges::min_element(sides.outer, {}, step);
    into.insert(into.begin(), *least);
    sides.outer.erase(least);
  };
  take(&StrideLoop::dst_step, sides.rows);
  take(&StrideLoop::src_step, sides.columns);
  const auto extend = [&](auto step, std::vector<StrideLoop>& side) {
    while (!sides.outer.empty() && NumIndices(side) < kFewIndices) {
      take(step, side);
    }
  };
  extend(&StrideLoop::src_step, sides.columns);
  extend(&StrideLoop::dst_step, sides.rows);
  return sides;
}

// Copies as many rows of as many columns as a vector has elements.
template <typename T>
class Square {
 public:
  static constexpr std::size_t kSize = kVectorBytes / sizeof(T);

  void Load(std::size_t row, const std::byte* at) { std::memcpy(&rows_[row], at, kVectorBytes); }
  void Store(std::size_t column, std::byte* at) const {
    std::memcpy(at, &rows_[column], kVectorBytes);
  }

  // Rows become columns: each round halves the distance between what belongs together.
  void Transpose() {
    for (std::size_t distance = 1; distance < kSize; distance *= 2) {
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): Zip writes every element
      std::array<Vector, kSize> zipped;
      for (std::size_t i = 0; i < kSize / 2; ++i) {
        Zip(rows_[i].of, rows_[i + kSize / 2].of, zipped[2 * i].of, zipped[2 * i + 1].of,
            std::make_index_sequence<kSize>());
      }
      rows_ = zipped;
    }
  }

 private:
  using Elements [[gnu::vector_size(kVectorBytes)]] = T;
  struct Vector {
    Elements of;
  };

  template <std::size_t... kIndex>
  static void Zip(const Elements& a, const Elements& b, Elements& low, Elements& high,
                  std::index_sequence<kIndex...> /*all*/) {
    low = __builtin_shufflevector(a, b, (kIndex / 2 + kIndex % 2 * kSize)...);
    high = __builtin_shufflevector(a, b, (kSize / 2 + kIndex / 2 + kIndex % 2 * kSize)...);
  }

  std::array<Vector, kSize> rows_;
};

template <typename T>
bool AreNeighbours(std::span<const Place> places, std::int64_t Place::*side) {
  for (std::size_t i = 1; i < places.size(); ++i) {
    if (places[i].*side - places[i - 1].*side != sizeof(T)) return false;
  }
  return true;
}

template <typename T>
void CopyElements(std::span<const Place> rows, std::span<const Place> columns, const std::byte* src,
                  std::byte* dst) {
  for (const Place& column : columns) {
    for (const Place& row : rows) {
      std::memcpy(dst + column.dst + row.dst, src + column.src + row.src, sizeof(T));
    }
  }
}

// Asks the memory for the lines of a tile's target, so that they are there when they are written.
// Inlined: gcc takes a function that only prefetches for one without effects, and drops the calls.
template <typename T>
[[gnu::always_inline]] inline void FetchTarget(std::span<const Place> rows,
                                               std::span<const Place> columns, std::byte* dst) {
  if (!AreNeighbours<T>(rows, &Place::dst)) return;
  for (const Place& column : columns) {
    std::byte* const first = dst + column.dst + rows.front().dst;
    const std::byte* const last = dst + column.dst + rows.back().dst;
    for (std::byte* line = first; line < last; line += kCacheLineBytes) __builtin_prefetch(line, 1);
    __builtin_prefetch(last, 1);
  }
}

template <typename T>
void CopyTile(std::span<const Place> rows, std::span<const Place> columns, const std::byte* src,
              std::byte* dst) {
  constexpr std::size_t kSize = Square<T>::kSize;
  const bool is_dense =
      AreNeighbours<T>(rows, &Place::dst) && AreNeighbours<T>(columns, &Place::src);
  const std::size_t num_rows = is_dense ? rows.size() / kSize * kSize : 0;
  const std::size_t num_columns = num_rows == 0 ? 0 : columns.size() / kSize * kSize;
  for (std::size_t c = 0; c < num_columns; c += kSize) {
    for (std::size_t r = 0; r < num_rows; r += kSize) {
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): the loop writes every row
      Square<T> square;
      for (std::size_t i = 0; i < kSize; ++i) {
        square.Load(i, src + rows[r + i].src + columns[c].src);
      }
      square.Transpose();
      for (std::size_t i = 0; i < kSize; ++i) {
        square.Store(i, dst + rows[r].dst + columns[c + i].dst);
      }
    }
    CopyElements<T>(rows.subspan(num_rows), columns.subspan(c, kSize), src, dst);
  }
  CopyElements<T>(rows, columns.subspan(num_columns), src, dst);
}

template <typename T>
void CopyTiles(const StridedCopy& copy, const std::byte* src, std::byte* dst) {
  Sides sides = Divide(copy);
  Places outer(std::move(sides.outer));
  Places rows(std::move(sides.rows));
  Places columns(std::move(sides.columns));
  std::array<Place, 1> outer_batch;
  std::array<Place, kRowsBytes / sizeof(T)> row_batch;
  std::array<Place, kColumnsBytes / sizeof(T)> column_batch;
  std::array<Place, kColumnsBytes / sizeof(T)> next_column_batch;
  for (auto at = outer.Next(outer_batch); !at.empty(); at = outer.Next(outer_batch)) {
    rows.Restart();
    for (auto r = rows.Next(row_batch); !r.empty(); r = rows.Next(row_batch)) {
      columns.Restart();
      std::size_t num_columns = columns.Next(column_batch).size();
      while (num_columns != 0) {
        const std::span<const Place> next = columns.Next(next_column_batch);
        FetchTarget<T>(r, next, dst + at[0].dst);
        CopyTile<T>(r, std::span(column_batch).first(num_columns), src + at[0].src,
                    dst + at[0].dst);
        num_columns = next.size();
        std::swap(column_batch, next_column_batch);
      }
    }
  }
}

}  // namespace

bool IsTransposed(const StridedCopy& copy) {
  if (copy.loops.size() < 2 || copy.run_bytes > 8 || (copy.run_bytes & (copy.run_bytes - 1)) != 0) {
    return false;
  }
  return std::ranges::min_element(copy.loops, {}, &StrideLoop::src_step) !=
         std::ranges::min_element(copy.loops, {}, &StrideLoop::dst_step);
}

void CopyTransposed(const StridedCopy& copy, const std::byte* src, std::byte* dst) {
  src += copy.src_offset;
  dst += copy.dst_offset;
  switch (copy.run_bytes) {
    case 1:
      return CopyTiles<std::uint8_t>(copy, src, dst);
    case 2:
      return CopyTiles<std::uint16_t>(copy, src, dst);
    case 4:
      return CopyTiles<std::uint32_t>(copy, src, dst);
    default:
      return CopyTiles<std::uint64_t>(copy, src, dst);
  }
}

}  // namespace ckpt::internal
