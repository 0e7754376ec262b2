// Inputs whose length field fits: the JSON changes and the eight bytes before it follow.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string>

#include "formats/safetensors/header.h"
#include "tests/fuzz/mutation.h"

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  constexpr std::size_t kLengthBytes = ckpt::safetensors::kLengthBytes;
  std::minstd_rand rng(seed);
  const std::span<std::uint8_t> file(data, size);
  if (size <= kLengthBytes || max_size < 2 * size || rng() % 4 == 0) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  const std::uint64_t length = ckpt::fuzz::ReadNumber(file.first(kLengthBytes));
  if (length > size - kLengthBytes) return LLVMFuzzerMutate(data, size, max_size);
  const char* json = reinterpret_cast<const char*>(data) + kLengthBytes;
  const std::string payload(json + length, size - kLengthBytes - length);
  const std::string changed =
      ckpt::fuzz::MutateText(std::string(json, length), max_size - kLengthBytes - payload.size());
  ckpt::fuzz::WriteNumber(file.first(kLengthBytes), changed.size());
  const std::string rest = changed + payload;
  std::memcpy(data + kLengthBytes, rest.data(), rest.size());
  return kLengthBytes + rest.size();
}
