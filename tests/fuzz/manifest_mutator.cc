// Inputs whose own digest fits: without it nothing behind the first line would ever be parsed.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/hash.h"
#include "tests/fuzz/mutation.h"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  constexpr std::string_view kPrefix = R"({"ckptkit":1,"self":")";
  constexpr std::size_t kBodyBegin = kPrefix.size() + 32;  // behind the digest's digits
  std::minstd_rand rng(seed);
  if (size < kBodyBegin || max_size < 2 * kBodyBegin || rng() % 8 == 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const std::string body = ckpt::fuzz::MutateText(
      std::string(reinterpret_cast<const char*>(data) + kBodyBegin, size - kBodyBegin),
      max_size - kBodyBegin);
  std::string text = std::string(kPrefix) + std::string(32, '0') + body;
  const std::string digest = ckpt::HashHex(ckpt::HashAlgorithm::kXxh3, ckpt::AsBytes(text));
  text.replace(kPrefix.size(), digest.size(), digest);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}
