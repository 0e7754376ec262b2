// Which single bit of some bytes was flipped, found from their CRC-32C alone.
#ifndef CKPT_CORE_BASE_CRC32C_FLIP_H_
#define CKPT_CORE_BASE_CRC32C_FLIP_H_

#include <cstdint>
#include <optional>

namespace ckpt {

struct FlippedBit {
  std::uint64_t offset_bytes = 0;
  int bit = 0;  // 0 is the least significant one

  friend bool operator==(const FlippedBit&, const FlippedBit&) = default;
};

// Finds the bit of `size_bytes` bytes whose flip turns the CRC-32C `expected` into `actual`.
// Returns nothing if there is no such bit. Below 2^28 bytes there is at most one, and an even
// number of flipped bits never looks like one bit. Arbitrary wrong bytes look like one flipped bit
// with a chance of 8 * size_bytes / 2^32: one in 512 for 1 MiB. A caller that repairs bytes because
// of this result needs a second proof.
//
// REQUIRES: size_bytes < 2^28. Cost: 0.1 ms for 1 MiB, whether or not a bit is found.
[[nodiscard]] std::optional<FlippedBit> FindFlippedBit(std::uint32_t expected, std::uint32_t actual,
                                                       std::uint64_t size_bytes);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_CRC32C_FLIP_H_
