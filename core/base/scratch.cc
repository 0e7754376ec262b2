#include "core/base/scratch.h"

#include <sys/mman.h>

#include "core/base/units.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kHugePageBytes = 2 * kMiB;

// Asks for huge pages where whole ones fit. Where that is refused, pages are small.
void AskForHugePages(MutableByteSpan bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uint64_t before_first = (kHugePageBytes - begin % kHugePageBytes) % kHugePageBytes;
  if (before_first + kHugePageBytes > bytes.size()) return;
  const MutableByteSpan rest = bytes.subspan(before_first);
  (void)::madvise(rest.data(), rest.size() / kHugePageBytes * kHugePageBytes, MADV_HUGEPAGE);
}

}  // namespace

void Scratch::Grow(std::uint64_t size_bytes) {
  bytes_.reset();  // before the new memory is taken
  size_bytes_ = 0;
  bytes_.reset(static_cast<std::byte*>(::operator new[](size_bytes, kAlignment)));
  size_bytes_ = size_bytes;
  AskForHugePages({bytes_.get(), static_cast<std::size_t>(size_bytes)});
}

}  // namespace ckpt
