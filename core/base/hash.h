// Checksums and digests: XXH3-128 (tensors), SHA-256 (values of objects, whole files), CRC-32
// (zip), CRC-32C (blocks of files).
#ifndef CKPT_CORE_BASE_HASH_H_
#define CKPT_CORE_BASE_HASH_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/bytes.h"

namespace ckpt {

enum class HashAlgorithm : std::uint8_t { kXxh3, kSha256 };

// "xxh3", "sha256".
std::string_view HashName(HashAlgorithm algorithm);

// Computes a digest piece by piece. For one thread.
class Hasher {
 public:
  explicit Hasher(HashAlgorithm algorithm);
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  ~Hasher();

  void Update(ByteSpan bytes);
  // Lower-case hex: 32 digits for XXH3-128 (big-endian, as xxhsum prints it), 64 for SHA-256. Do
  // not use the object after this call.
  [[nodiscard]] std::string Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// An XXH3-128 as a number, which can be added and ordered.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;

  friend bool operator==(const Hash128&, const Hash128&) = default;
};
[[nodiscard]] Hash128 HashXxh3(ByteSpan bytes, std::uint64_t seed = 0);
// Modulo 2¹²⁸.
[[nodiscard]] Hash128 operator+(const Hash128& a, const Hash128& b);

[[nodiscard]] std::string HashHex(HashAlgorithm algorithm, ByteSpan bytes);

// CRC-32 as in zip (polynomial 0x04C11DB7, reflected). Pass an earlier result as `crc` to continue
// it, or 0 to start.
[[nodiscard]] std::uint32_t Crc32(ByteSpan bytes, std::uint32_t crc = 0);
// CRC-32C (Castagnoli, reflected), with the same convention.
[[nodiscard]] std::uint32_t Crc32c(ByteSpan bytes, std::uint32_t crc = 0);
// The CRC of A followed by B, computed from both CRCs and B's length, without the bytes.
[[nodiscard]] std::uint32_t Crc32Concat(std::uint32_t crc_a, std::uint32_t crc_b,
                                        std::uint64_t length_b);
[[nodiscard]] std::uint32_t Crc32cConcat(std::uint32_t crc_a, std::uint32_t crc_b,
                                         std::uint64_t length_b);
// The other way round: the CRC of A, of that of A followed by B and that of B.
[[nodiscard]] std::uint32_t Crc32cWithoutEnd(std::uint32_t crc_ab, std::uint32_t crc_b,
                                             std::uint64_t length_b);

// Lower-case hex, 8 digits.
[[nodiscard]] std::string Hex32(std::uint32_t value);
[[nodiscard]] std::string HexOf(ByteSpan bytes);

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_HASH_H_
