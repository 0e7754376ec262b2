#include "core/base/hash.h"

#include <array>

#include <isa-l/crc.h>
#include <openssl/evp.h>
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
// The same functions, which choose the processor's widest vectors when the program runs.
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include "core/base/check.h"

namespace ckpt {
namespace {

// ISA-L takes lengths as int (CRC-32C) or uint64_t. Pieces of 1 GiB fit both.
constexpr std::size_t kMaxCrcPiece = std::size_t{1} << 30;

// a·b modulo the polynomial, all reflected (bit 31 is x⁰). Horner over the bits of a.
constexpr std::uint32_t MultiplyModulo(std::uint32_t a, std::uint32_t b, std::uint32_t polynomial) {
  std::uint32_t product = 0;
  for (std::uint32_t bit = 0x80000000U; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1U) != 0 ? (b >> 1) ^ polynomial : b >> 1;
  }
  return product;
}

// x^(8·2^k) for every k: what appending 2^k zero bytes multiplies a CRC by.
using ZeroPowers = std::array<std::uint32_t, 64>;
constexpr ZeroPowers PowersOf(std::uint32_t polynomial) {
  ZeroPowers powers = {0x00800000U};  // x⁸ in reflected order
  for (std::size_t k = 1; k < powers.size(); ++k) {
    powers[k] = MultiplyModulo(powers[k - 1], powers[k - 1], polynomial);
  }
  return powers;
}

struct Polynomial {
  std::uint32_t value;
  ZeroPowers powers = PowersOf(value);
};
constexpr Polynomial kCrc32Polynomial = {0xEDB88320};  // reflected, as the other one
constexpr Polynomial kCrc32cPolynomial = {0x82F63B78};

// The CRC with `length` zero bytes appended: one product for each bit of the length.
std::uint32_t AppendZeros(std::uint32_t crc, std::uint64_t length, const Polynomial& polynomial) {
  if (crc == 0) return 0;
  for (std::size_t k = 0; length != 0; ++k, length >>= 1) {
    if ((length & 1) != 0) crc = MultiplyModulo(crc, polynomial.powers[k], polynomial.value);
  }
  return crc;
}

std::uint32_t Concat(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t length_b,
                     const Polynomial& polynomial) {
  return AppendZeros(crc_a, length_b, polynomial) ^ crc_b;
}

}  // namespace

struct Hasher::Impl {
  HashAlgorithm algorithm;
  XXH3_state_t* xxh3 = nullptr;
  EVP_MD_CTX* sha256 = nullptr;

  explicit Impl(HashAlgorithm a) : algorithm(a) {
    if (algorithm == HashAlgorithm::kXxh3) {
      xxh3 = XXH3_createState();
      CKPT_CHECK(xxh3 != nullptr && XXH3_128bits_reset(xxh3) == XXH_OK);
    } else {
      sha256 = EVP_MD_CTX_new();
      CKPT_CHECK(sha256 != nullptr && EVP_DigestInit_ex(sha256, EVP_sha256(), nullptr) == 1);
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    XXH3_freeState(xxh3);
    EVP_MD_CTX_free(sha256);
  }
};

std::string_view HashName(HashAlgorithm algorithm) {
  return algorithm == HashAlgorithm::kXxh3 ? "xxh3" : "sha256";
}

Hasher::Hasher(HashAlgorithm algorithm) : impl_(std::make_unique<Impl>(algorithm)) {}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::Update(ByteSpan bytes) {
  if (bytes.empty()) return;
  if (impl_->algorithm == HashAlgorithm::kXxh3) {
    CKPT_CHECK(XXH3_128bits_update(impl_->xxh3, bytes.data(), bytes.size()) == XXH_OK);
  } else {
    CKPT_CHECK(EVP_DigestUpdate(impl_->sha256, bytes.data(), bytes.size()) == 1);
  }
}

std::string Hasher::Finish() {
  std::array<std::byte, 32> digest{};
  std::size_t size = 0;
  if (impl_->algorithm == HashAlgorithm::kXxh3) {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(impl_->xxh3));
    size = sizeof(canonical.digest);
    for (std::size_t i = 0; i < size; ++i) digest[i] = std::byte{canonical.digest[i]};
  } else {
    unsigned length = 0;
    CKPT_CHECK(EVP_DigestFinal_ex(impl_->sha256, reinterpret_cast<unsigned char*>(digest.data()),
                                  &length) == 1);
    size = length;
  }
  return HexOf(ByteSpan(digest).first(size));
}

Hash128 HashXxh3(ByteSpan bytes, std::uint64_t seed) {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(bytes.data(), bytes.size(), seed);
  return {.high = hash.high64, .low = hash.low64};
}

Hash128 operator+(const Hash128& a, const Hash128& b) {
  const std::uint64_t low = a.low + b.low;
  return {.high = a.high + b.high + (low < a.low ? 1U : 0U), .low = low};
}

std::string HashHex(HashAlgorithm algorithm, ByteSpan bytes) {
  Hasher hasher(algorithm);
  hasher.Update(bytes);
  return hasher.Finish();
}

std::uint32_t Crc32(ByteSpan bytes, std::uint32_t crc) {
  while (!bytes.empty()) {
    const ByteSpan piece = bytes.first(std::min(bytes.size(), kMaxCrcPiece));
    crc = crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(piece.data()), piece.size());
    bytes = bytes.subspan(piece.size());
  }
  return crc;
}

std::uint32_t Crc32c(ByteSpan bytes, std::uint32_t crc) {
  // ISA-L's crc32_iscsi neither inverts its start value nor its result.
  crc = ~crc;
  while (!bytes.empty()) {
    const ByteSpan piece = bytes.first(std::min(bytes.size(), kMaxCrcPiece));
    crc = crc32_iscsi(
        reinterpret_cast<unsigned char*>(const_cast<std::byte*>(piece.data())),  // reads only
        static_cast<int>(piece.size()), crc);
    bytes = bytes.subspan(piece.size());
  }
  return ~crc;
}

std::uint32_t Crc32Concat(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t length_b) {
  return Concat(crc_a, crc_b, length_b, kCrc32Polynomial);
}

std::uint32_t Crc32cConcat(std::uint32_t crc_a, std::uint32_t crc_b, std::uint64_t length_b) {
  return Concat(crc_a, crc_b, length_b, kCrc32cPolynomial);
}

std::uint32_t Crc32cWithoutEnd(std::uint32_t crc_ab, std::uint32_t crc_b, std::uint64_t length_b) {
  // So many zero bytes change no CRC-32C: the polynomial is x + 1 times a primitive one of degree
  // 31. Appending the missing ones takes away what B appended.
  constexpr std::uint64_t kPeriod = (std::uint64_t{1} << 31) - 1;
  return AppendZeros(crc_ab ^ crc_b, (kPeriod - length_b % kPeriod) % kPeriod, kCrc32cPolynomial);
}

std::string Hex32(std::uint32_t value) {
  std::string text(8, '0');
  for (int i = 7; i >= 0; --i, value >>= 4) {
    text[static_cast<std::size_t>(i)] = "0123456789abcdef"[value & 0xF];
  }
  return text;
}

std::string HexOf(ByteSpan bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<unsigned>(b) & 0xF];
  }
  return text;
}

}  // namespace ckpt
