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
// file's literals. Items are placed in plan order. For one thread.
class ItemPlacement {
 public:
  // `plan` must outlive this.
  explicit ItemPlacement(const WritePlan& plan);

  // Where the next item of a file starts: the end of everything placed there so far.
  [[nodiscard]] std::uint64_t end_of_file(std::uint32_t file) const { return file_ends_[file]; }
  // Places item number `extents().size()`, which is this long.
  void Append(std::uint64_t size_bytes);
  // Whether the next items would be placed exactly at `extents`.
  [[nodiscard]] bool Continues(std::span<const ItemExtent> extents) const;

  // The extents of the items placed so far, in plan order.
  [[nodiscard]] const std::vector<ItemExtent>& extents() const { return extents_; }

 private:
  const WritePlan& plan_;
  std::vector<ItemExtent> extents_;
  std::vector<std::uint64_t> file_ends_;
};

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_ITEM_PLACEMENT_H_
