// Where the items of a compressed plan lie. This is known only while they are written.
#ifndef CKPT_CORE_EXEC_INTERNAL_ITEM_PLACEMENT_H_
#define CKPT_CORE_EXEC_INTERNAL_ITEM_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/checkpoint/write_plan.h"

namespace ckpt {

// Each item starts where the item before it in the same file ended; the first one starts after the
// file's literals. The items of a file are placed in plan order. For one thread.
class ItemPlacement {
 public:
  // `plan` must outlive this.
  explicit ItemPlacement(const WritePlan& plan);

  // Where the next item of a file starts: the end of everything placed there so far.
  [[nodiscard]] std::uint64_t end_of_file(std::uint32_t file) const { return file_ends_[file]; }
  // Places the next item of its file, which is this long, and returns where.
  ItemExtent Place(std::size_t item, std::uint64_t size_bytes);
  // Whether the items from number `first` on would be placed exactly at `extents`.
  [[nodiscard]] bool Continues(std::size_t first, std::span<const ItemExtent> extents) const;

 private:
  const WritePlan& plan_;
  std::vector<std::size_t> next_;       // by file: its first item that is not placed
  std::vector<std::size_t> following_;  // by item: the next one in the same file
  std::vector<std::uint64_t> file_ends_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_ITEM_PLACEMENT_H_
