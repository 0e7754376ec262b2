// What the mutators share: libFuzzer's own mutation of a part of an input, and numbers that break
// things.
#ifndef CKPT_TESTS_FUZZ_MUTATION_H_
#define CKPT_TESTS_FUZZ_MUTATION_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>

// libFuzzer's. Changes `data` in place, to at most `max_size` bytes; gives the new size.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace ckpt::fuzz {

// `text` changed as libFuzzer would, to at most `max_size` bytes.
inline std::string MutateText(std::string text, std::size_t max_size) {
  const std::size_t size = text.size();
  text.resize(std::max(max_size, size));
  const std::size_t now =
      LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()), size, text.size());
  text.resize(std::min(now, max_size));
  return text;
}

// Little-endian, at any place.
inline std::uint64_t ReadNumber(std::span<const std::uint8_t> bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | bytes[i];
  return value;
}
inline void WriteNumber(std::span<std::uint8_t> bytes, std::uint64_t value) {
  for (std::uint8_t& byte : bytes) {
    byte = static_cast<std::uint8_t>(value);
    value >>= 8;
  }
}

// A number at the edge of something: of the file, of the field, of what stands there now.
inline std::uint64_t EdgeNumber(std::uint64_t now, std::uint64_t file_size, std::minstd_rand& rng) {
  const std::array<std::uint64_t, 14> edges = {0,
                                               1,
                                               now + 1,
                                               now - 1,
                                               now * 2,
                                               now ^ (std::uint64_t{1} << rng() % 64),
                                               file_size,
                                               file_size - 1,
                                               file_size + 1,
                                               rng() % (file_size + 1),
                                               0xFFFF,
                                               0xFFFFFFFF,
                                               0x7FFFFFFFFFFFFFFF,
                                               ~std::uint64_t{0}};
  return edges[rng() % edges.size()];
}

}  // namespace ckpt::fuzz

#endif  // CKPT_TESTS_FUZZ_MUTATION_H_
