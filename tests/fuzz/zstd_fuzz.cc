// Any bytes as zstd frames, with bounded output.

#include <cstddef>
#include <cstdint>

#include "core/base/check.h"
#include "core/codec/zstd.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t kLimit = 1 << 20;
  const auto out = ckpt::ZstdDecompress(std::as_bytes(std::span(data, size)),
                                        {.max_output_bytes = kLimit, .max_window_log = 20});
  if (out.ok()) CKPT_CHECK(out->size() <= kLimit);
  return 0;
}
