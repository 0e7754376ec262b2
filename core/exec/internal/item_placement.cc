#include "core/exec/internal/item_placement.h"

#include <map>
#include <utility>

#include "core/base/check.h"

namespace ckpt {

ItemPlacement::ItemPlacement(const WritePlan& plan)
    : plan_(plan),
      next_(plan.files.size(), plan.items.size()),
      following_(plan.items.size(), plan.items.size()) {
  for (std::size_t i = plan.items.size(); i-- > 0;) {
    following_[i] = std::exchange(next_[plan.items[i].file], i);
  }
  for (const WriteFile& file : plan.files) file_ends_.push_back(file.size_bytes);
}

ItemExtent ItemPlacement::Place(std::size_t item, std::uint64_t size_bytes) {
  const std::uint32_t file = plan_.items[item].file;
  CKPT_CHECK(next_[file] == item);
  next_[file] = following_[item];
  return {.offset_bytes = std::exchange(file_ends_[file], file_ends_[file] + size_bytes),
          .size_bytes = size_bytes};
}

bool ItemPlacement::Continues(std::size_t first, std::span<const ItemExtent> extents) const {
  struct Head {
    std::size_t next;
    std::uint64_t end;
  };
  std::map<std::uint32_t, Head> heads;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::size_t item = first + i;
    if (item >= plan_.items.size()) return false;
    const std::uint32_t file = plan_.items[item].file;
    Head& head = heads.try_emplace(file, Head{next_[file], file_ends_[file]}).first->second;
    if (head.next != item || extents[i].offset_bytes != head.end) return false;
    head = {following_[item], head.end + extents[i].size_bytes};
  }
  return true;
}

}  // namespace ckpt
