#include "core/exec/internal/item_placement.h"

#include <map>

#include "core/base/check.h"

namespace ckpt {

ItemPlacement::ItemPlacement(const WritePlan& plan) : plan_(plan) {
  for (const WriteFile& file : plan.files) file_ends_.push_back(file.size_bytes);
}

void ItemPlacement::Append(std::uint64_t size_bytes) {
  CKPT_CHECK(extents_.size() < plan_.items.size());
  std::uint64_t& end = file_ends_[plan_.items[extents_.size()].file];
  extents_.push_back({.offset_bytes = end, .size_bytes = size_bytes});
  end += size_bytes;
}

bool ItemPlacement::Continues(std::span<const ItemExtent> extents) const {
  if (extents.size() > plan_.items.size() - extents_.size()) return false;
  std::map<std::uint32_t, std::uint64_t> ends;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    const std::uint32_t file = plan_.items[extents_.size() + i].file;
    std::uint64_t& end = ends.try_emplace(file, file_ends_[file]).first->second;
    if (extents[i].offset_bytes != end) return false;
    end += extents[i].size_bytes;
  }
  return true;
}

}  // namespace ckpt
