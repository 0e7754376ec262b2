#include "trainer/device/cpu/internal/large_blocks.h"

#include <sys/mman.h>

#include <cstddef>
#include <limits>

#include "core/base/check.h"

namespace ckpt::trainer {

LargeBlocks::~LargeBlocks() {
  const MutexLock lock(mutex_);
  CKPT_CHECK(mapped_bytes_.empty());
}

void* LargeBlocks::Allocate(std::uint64_t size_bytes) {
  if (size_bytes > std::numeric_limits<std::ptrdiff_t>::max() - 2 * kPageBytes) return nullptr;
  const std::uint64_t whole_bytes = (size_bytes / kPageBytes + 1) * kPageBytes;
  // The system starts it anywhere: what lies before the first boundary goes back.
  const std::uint64_t mapped_bytes = whole_bytes + kPageBytes;
  void* const mapped =
      ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(mapped);
  const std::uint64_t before =
      (kPageBytes - reinterpret_cast<std::uintptr_t>(mapped) % kPageBytes) % kPageBytes;
  std::byte* const data = first + before;
  if (before != 0) ::munmap(first, before);
  ::munmap(data + whole_bytes, kPageBytes - before);
  // Only a request: the program also works without huge pages.
  (void)::madvise(data, whole_bytes, MADV_HUGEPAGE);
  const MutexLock lock(mutex_);
  mapped_bytes_.emplace(data, whole_bytes);
  return data;
}

bool LargeBlocks::Free(void* data) {
  const MutexLock lock(mutex_);
  const auto found = mapped_bytes_.find(data);
  if (found == mapped_bytes_.end()) return false;
  ::munmap(found->first, found->second);
  mapped_bytes_.erase(found);
  return true;
}

}  // namespace ckpt::trainer
