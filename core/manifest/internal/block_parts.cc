#include "core/manifest/internal/block_parts.h"

#include <algorithm>
#include <iterator>

#include "core/base/hash.h"

namespace ckpt {

void BlockParts::AddNew(std::uint64_t begin, Part part) {
  auto next = parts_.lower_bound(begin);
  if (next != parts_.end() && next->first == part.end) {
    const Part& after = next->second;
    part.crc32c = Crc32cConcat(part.crc32c, after.crc32c, after.end - part.end);
    part.end = after.end;
    next = parts_.erase(next);
  }
  if (next != parts_.begin()) {
    Part& before = std::prev(next)->second;
    if (before.end == begin) {
      before.crc32c = Crc32cConcat(before.crc32c, part.crc32c, part.end - begin);
      before.end = part.end;
      return;
    }
  }
  parts_.emplace_hint(next, begin, part);
}

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
    AddNew(gap->begin, {.end = gap->begin + gap->size_bytes, .crc32c = of_gap});
  }
}

std::optional<BlockParts::Gap> BlockParts::FirstGap() const {
  const std::vector<Gap> gaps = GapsIn(0, size_bytes_);
  return gaps.empty() ? std::nullopt : std::optional(gaps.front());
}

}  // namespace ckpt
