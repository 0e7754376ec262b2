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

void BlockParts::Add(std::uint64_t begin, ByteSpan bytes, std::uint32_t crc32c) {
  const std::uint64_t end = begin + bytes.size();
  for (std::uint64_t at = begin; at < end;) {
    const auto next = parts_.upper_bound(at);
    if (next != parts_.begin() && std::prev(next)->second.end > at) {
      at = std::prev(next)->second.end;
      continue;
    }
    const std::uint64_t until = next == parts_.end() ? end : std::min(end, next->first);
    const bool is_all = at == begin && until == end;
    AddNew(at, {.end = until,
                .crc32c = is_all ? crc32c : Crc32c(bytes.subspan(at - begin, until - at))});
    at = until;
  }
}

std::optional<BlockParts::Gap> BlockParts::FirstGap() const {
  auto next = parts_.begin();
  std::uint64_t begin = 0;
  if (next != parts_.end() && next->first == 0) {
    begin = next->second.end;
    ++next;
  }
  if (begin == size_bytes_) return std::nullopt;
  const std::uint64_t end = next == parts_.end() ? size_bytes_ : next->first;
  return Gap{.begin = begin, .size_bytes = end - begin};
}

}  // namespace ckpt
