// Copies of what a rank receives.
#ifndef CKPT_TRAINER_COMM_INTERNAL_COPY_BYTES_H_
#define CKPT_TRAINER_COMM_INTERNAL_COPY_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ckpt::trainer {

// Of what is in place already, nothing. Both may be null if there are no bytes.
inline void CopyBytes(const std::byte* from, std::byte* to, std::uint64_t size_bytes) {
  if (from != to && size_bytes != 0) std::memcpy(to, from, size_bytes);
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_COMM_INTERNAL_COPY_BYTES_H_
