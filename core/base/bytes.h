// Raw bytes: owned, viewed, or made from text.
#ifndef CKPT_CORE_BASE_BYTES_H_
#define CKPT_CORE_BASE_BYTES_H_

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace ckpt {

using Bytes = std::vector<std::byte>;
using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

inline ByteSpan AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// The same bytes as text. The encoding is not checked.
inline std::string_view AsText(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline void Append(ByteSpan bytes, Bytes& out) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}
inline void Append(std::string_view text, Bytes& out) { Append(AsBytes(text), out); }

}  // namespace ckpt

#endif  // CKPT_CORE_BASE_BYTES_H_
