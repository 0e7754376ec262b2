#include "core/manifest/internal/block_parts.h"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include "core/base/hash.h"

namespace ckpt {

std::vector<BlockParts::Gap> BlockParts::GapsIn(std::uint64_t begin, std::uint64_t end) const {
  std::vector<Gap> gaps;
  for (std::uint64_t at = begin; at < end;) {
    const auto next = parts_.upper_bound(at);
    if (next != parts_.begin() && std::prev(next)->second.end > at) {
      at = std::prev(next)->second.end;
      continue;
    }
    const std::uint64_t until = next == parts_.end() ? end : std::min(end, next->first);
    gaps.push_back({.begin = at, .size_bytes = until - at});
    at = until;
  }
  return gaps;
}

void BlockParts::Add(std::uint64_t begin, ByteSpan bytes, std::uint32_t crc32c) {
  const std::vector<Gap> gaps = GapsIn(begin, begin + bytes.size());
  const auto longest = std::ranges::max_element(gaps, {}, &Gap::size_bytes);
  for (auto gap = gaps.begin(); gap != gaps.end(); ++gap) {
    const std::uint64_t skipped = gap->begin - begin;
    std::uint32_t of_gap = 0;
    if (gap == longest) {
      // Nearly everything, as a rule: what is left of the checksum without that of the rest.
      const ByteSpan before = bytes.first(skipped);
      const ByteSpan behind = bytes.subspan(skipped + gap->size_bytes);
      of_gap = Crc32cWithoutEnd(crc32c, Crc32c(behind), behind.size());
      of_gap = Crc32cConcat(Crc32c(before), of_gap, gap->size_bytes);  // the same without the front
    } else {
      of_gap = Crc32c(bytes.subspan(skipped, gap->size_bytes));
    }
    parts_.emplace(gap->begin, Part{.end = gap->begin + gap->size_bytes, .crc32c = of_gap});
    left_bytes_ -= gap->size_bytes;
  }
}

std::uint32_t BlockParts::crc32c() const {
  std::uint32_t crc32c = 0;
  for (const auto& [begin, part] : parts_) {
    crc32c = Crc32cConcat(crc32c, part.crc32c, part.end - begin);
  }
  return crc32c;
}

Result<std::uint32_t> ChecksumAsSeen(std::span<const BlockPart> parts, std::uint64_t block_bytes,
                                     std::uint32_t expected, const ReadPart& read) {
  // Where parts begin and end: no part divides a cell, which is what lies between two neighbours.
  std::vector<std::uint64_t> bounds = {0, block_bytes};
  for (const BlockPart& part : parts) {
    bounds.push_back(part.begin);
    bounds.push_back(std::uint64_t{part.begin} + part.size_bytes);
  }
  std::ranges::sort(bounds);
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  const auto position_of = [&](std::uint64_t bound) {
    return static_cast<std::size_t>(std::ranges::lower_bound(bounds, bound) - bounds.begin());
  };
  const std::size_t num_cells = bounds.size() - 1;
  const auto bytes_of = [&](std::size_t cell) { return bounds[cell + 1] - bounds[cell]; };

  std::vector<std::uint32_t> cells(num_cells);
  std::vector<bool> is_known(num_cells);
  for (const BlockPart& part : parts) {
    const std::size_t cell = position_of(part.begin);
    if (is_known[cell] || part.size_bytes != bytes_of(cell)) continue;
    cells[cell] = part.crc32c;
    is_known[cell] = true;
  }
  Bytes bytes;
  for (std::size_t cell = 0; cell < num_cells; ++cell) {
    if (is_known[cell]) continue;
    bytes.resize(bytes_of(cell));
    CKPT_RETURN_IF_ERROR(read(bounds[cell], bytes));
    cells[cell] = Crc32c(bytes);
  }

  // Of all cells in front of each bound.
  std::vector<std::uint32_t> before(bounds.size());
  for (std::size_t cell = 0; cell < num_cells; ++cell) {
    before[cell + 1] = Crc32cConcat(before[cell], cells[cell], bytes_of(cell));
  }
  if (before.back() != expected) return before.back();
  const auto is_as_its_cell = [&](const BlockPart& part) {
    const std::size_t cell = position_of(part.begin);
    return part.size_bytes == bytes_of(cell) && part.crc32c == cells[cell];
  };
  if (std::ranges::all_of(parts, is_as_its_cell)) return expected;

  // Of all cells behind each bound.
  std::vector<std::uint32_t> behind(bounds.size());
  for (std::size_t cell = num_cells; cell-- > 0;) {
    behind[cell] = Crc32cConcat(cells[cell], behind[cell + 1], block_bytes - bounds[cell + 1]);
  }
  // Parts that are no cell, or not the first to be this cell, in its place.
  for (const BlockPart& part : parts) {
    const std::size_t first = position_of(part.begin);
    const std::uint64_t end = std::uint64_t{part.begin} + part.size_bytes;
    const std::uint32_t seen =
        Crc32cConcat(Crc32cConcat(before[first], part.crc32c, part.size_bytes),
                     behind[position_of(end)], block_bytes - end);
    if (seen != expected) return seen;
  }
  return expected;
}

}  // namespace ckpt
