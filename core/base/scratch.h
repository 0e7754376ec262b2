// Memory that is filled again and again.
#ifndef CKPT_CORE_BASE_SCRATCH_H_
#define CKPT_CORE_BASE_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/base/bytes.h"

namespace ckpt {

// Grows and never shrinks: new pages cost more than writing into old ones, and nothing is cleared.
// For one thread.
class Scratch {
 public:
  // Its first bytes, whatever they are. Valid until the next call.
  [[nodiscard]] MutableByteSpan First(std::uint64_t size_bytes) {
    if (size_bytes > size_bytes_) {
      bytes_.reset();  // before the new memory is taken
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(size_bytes);
      size_bytes_ = size_bytes;
    }
    return {bytes_.get(), static_cast<std::size_t>(size_bytes)};
  }

 private:
  std::unique_ptr<std::byte[]> bytes_;
  std::uint64_t size_bytes_ = 0;
};

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_SCRATCH_H_
