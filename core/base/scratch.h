// Memory that is filled again and again.
#ifndef CKPT_CORE_BASE_SCRATCH_H_
#define CKPT_CORE_BASE_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "core/base/bytes.h"

namespace ckpt {

// Of the processors that this is built for.
inline constexpr std::size_t kCacheLineBytes = 64;

// Grows and never shrinks: new pages cost more than writing into old ones, and nothing is cleared.
// Starts with a line of the cache; much of it lies in huge pages, where the system has them. For
// one thread.
class Scratch {
 public:
  // Its first bytes, whatever they are. Valid until the next call. Errors: std::bad_alloc.
  [[nodiscard]] MutableByteSpan First(std::uint64_t size_bytes) {
    if (size_bytes > size_bytes_) Grow(size_bytes);
    return {bytes_.get(), static_cast<std::size_t>(size_bytes)};
  }

 private:
  static constexpr std::align_val_t kAlignment{kCacheLineBytes};
  struct Delete {
    void operator()(std::byte* bytes) const { ::operator delete[](bytes, kAlignment); }
  };

  void Grow(std::uint64_t size_bytes);

  std::unique_ptr<std::byte[], Delete> bytes_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_SCRATCH_H_
