// Memory of the host for large arrays.
#ifndef CKPT_TRAINER_DEVICE_CPU_INTERNAL_LARGE_BLOCKS_H_
#define CKPT_TRAINER_DEVICE_CPU_INTERNAL_LARGE_BLOCKS_H_

#include <cstdint>
#include <unordered_map>

#include "core/base/mutex.h"

namespace ckpt::trainer {

// Blocks of zeros that start on a boundary of a huge page and ask for such pages: matrix products
// walk along columns, and with small pages nearly every element would need a page look-up. A page
// is made, by zeros of the kernel, when it is first touched: what nobody reads or writes costs
// nothing, and the threads that fill a block make its pages.
//
// Thread-safety: calls may be concurrent.
class LargeBlocks {
 public:
  static constexpr std::uint64_t kPageBytes = std::uint64_t{2} << 20;

  LargeBlocks() = default;
  LargeBlocks(const LargeBlocks&) = delete;
  LargeBlocks& operator=(const LargeBlocks&) = delete;
  // REQUIRES: all blocks are freed.
  ~LargeBlocks();

  // Null if there is no memory.
  void* Allocate(std::uint64_t size_bytes);
  // False if it is not one of these blocks.
  bool Free(void* data);

 private:
  Mutex mutex_;
  std::unordered_map<void*, std::uint64_t> mapped_bytes_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_CPU_INTERNAL_LARGE_BLOCKS_H_
