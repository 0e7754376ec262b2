#include "core/codec/lzf.h"

#include <cstddef>

#include "core/base/units.h"

namespace ckpt {

Result<Bytes> LzfDecompress(ByteSpan input, std::uint64_t max_output_bytes) {
  constexpr std::size_t kLiterals = 32;  // controls below it count literals, less one
  constexpr std::size_t kLongLength = 7;
  Bytes out;
  std::size_t at = 0;
  const auto too_short = [] { return Error(ErrorKind::kTruncated, "an LZF block is cut off"); };
  const auto too_long = [&] {
    return Error(ErrorKind::kResource, "LZF data expand beyond the limit")
        .Expected("at most " + FormatByteSize(max_output_bytes));
  };
  while (at < input.size()) {
    const auto control = std::to_integer<std::size_t>(input[at++]);
    if (control < kLiterals) {
      const std::size_t count = control + 1;
      if (count > input.size() - at) return too_short();
      if (count > max_output_bytes - out.size()) return too_long();
      Append(input.subspan(at, count), out);
      at += count;
      continue;
    }
    std::size_t count = control >> 5U;
    if (count == kLongLength) {
      if (at == input.size()) return too_short();
      count += std::to_integer<std::size_t>(input[at++]);
    }
    count += 2;
    if (at == input.size()) return too_short();
    const std::size_t back =
        ((control & 0x1FU) << 8U) + std::to_integer<std::size_t>(input[at++]) + 1;
    if (back > out.size()) {
      return Error(ErrorKind::kBadItem, "an LZF block refers to bytes before its first");
    }
    if (count > max_output_bytes - out.size()) return too_long();
    // The copy may read what it writes.
    for (std::size_t i = 0; i < count; ++i) out.push_back(out[out.size() - back]);
  }
  return out;
}

}  // namespace ckpt
