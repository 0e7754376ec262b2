// The header of a safetensors file: a length, and a JSON object that says where each tensor lies.
//
//   u64le  N               length of the JSON text
//   N bytes                {"__metadata__": {text: text},
//                           "<name>": {"dtype", "shape", "data_offsets": [begin, end]}, …}
//   payload                the tensors end to end: no holes, no overlaps, nothing behind the last
//
// docs/formats/safetensors.md gives the rules; everything here is a pure function of bytes.
#ifndef CKPT_FORMATS_SAFETENSORS_HEADER_H_
#define CKPT_FORMATS_SAFETENSORS_HEADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/tensor/shape.h"
#include "formats/safetensors/stored_dtype.h"

namespace ckpt::safetensors {

// The reference implementation refuses longer headers.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
inline constexpr std::uint64_t kLengthBytes = 8;

using TextPairs = std::vector<std::pair<std::string, std::string>>;

struct TensorEntry {
  std::string name;
  StoredDType dtype = StoredDType::kF32;
  Dims shape;  // as the header counts it
  // Relative to the payload.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

struct Header {
  // In document order; nothing if the key is absent.
  std::optional<TextPairs> metadata;
  std::vector<TensorEntry> tensors;  // in document order
  std::uint64_t payload_offset = 0;  // in the file

  // The value of a metadata key, nullptr if there is none.
  [[nodiscard]] const std::string* FindMetadata(std::string_view key) const;
  friend bool operator==(const Header&, const Header&) = default;
};

// N of a file that starts with `first_bytes` (at least 8 of them, if the file has as many).
//
// Errors: kTruncated (the file ends inside the header), kResource (longer than kMaxHeaderBytes).
Result<std::uint64_t> ParseHeaderLength(ByteSpan first_bytes, std::uint64_t file_bytes,
                                        std::string_view file);

// The JSON text and the size of what follows it.
//
// Errors: kBadMetadata (syntax, a repeated or unknown key, a hole, trailing bytes), kUnsupported
// (dtype), kOverlap, kSizeMismatch (extent against shape), kOutOfRange (begin > end), kTruncated
// (payload too short), kResource (overflow). They name the tensor.
Result<Header> ParseHeader(std::string_view json, std::uint64_t payload_bytes,
                           std::string_view file);

// Both of these on an open file. Errors: theirs and kIo.
Result<Header> ReadHeader(const ReadableFile& file);

// The length and the JSON text of a header, byte for byte as the reference library writes it:
// compact, metadata first, tensors in the given order, padded with spaces to a multiple of 8 bytes.
Bytes SerializeHeader(const std::optional<TextPairs>& metadata,
                      const std::vector<TensorEntry>& tensors);

// Whether the reference library's writer puts `a` before `b`: wider dtypes first, then by name.
[[nodiscard]] bool PrecedesInFile(const TensorEntry& a, const TensorEntry& b);

}  // namespace ckpt::safetensors

#endif  // CKPT_FORMATS_SAFETENSORS_HEADER_H_
