#include "core/codec/zlib.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <string_view>
#include <zlib.h>

#include "core/base/units.h"

namespace ckpt {
namespace {

constexpr std::size_t kBlockBytes = 64 * kKiB;

// An inflating stream that is ended in any case.
class Inflater {
 public:
  Inflater() : is_open_(inflateInit(&stream) == Z_OK) {}
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() {
    if (is_open_) inflateEnd(&stream);
  }
  [[nodiscard]] bool is_open() const { return is_open_; }

  z_stream stream = {};

 private:
  const bool is_open_;
};

Status DecodeError(int code, const z_stream& stream) {
  const std::string_view reason = stream.msg == nullptr ? "" : stream.msg;
  if (code == Z_MEM_ERROR) return Error(ErrorKind::kSystem, "memory ran out in zlib");
  if (code == Z_BUF_ERROR) return Error(ErrorKind::kTruncated, "the zlib stream is not complete");
  if (reason == "incorrect data check") {
    return Error(ErrorKind::kChecksum, "checksum of a zlib stream differs");
  }
  return Error(ErrorKind::kBadItem, "damaged zlib stream: " + std::string(reason));
}

}  // namespace

Result<Bytes> ZlibDecompress(ByteSpan input, std::uint64_t max_output_bytes) {
  Inflater inflater;
  if (!inflater.is_open()) return Error(ErrorKind::kSystem, "memory ran out in zlib");
  z_stream& stream = inflater.stream;
  Bytes block(kBlockBytes);
  Bytes out;
  std::size_t taken = 0;
  for (;;) {
    if (stream.avail_in == 0) {
      const std::size_t piece =
          std::min<std::size_t>(input.size() - taken, std::numeric_limits<uInt>::max());
      // zlib does not write to its input, it only fails to say so.
      stream.next_in =
          reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data() + taken));  // NOLINT
      stream.avail_in = static_cast<uInt>(piece);
      taken += piece;
    }
    stream.next_out = reinterpret_cast<Bytef*>(block.data());
    stream.avail_out = kBlockBytes;
    const int code = inflate(&stream, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END) return DecodeError(code, stream);
    const std::size_t produced = kBlockBytes - stream.avail_out;
    if (produced > max_output_bytes - out.size()) {
      return Error(ErrorKind::kResource, "zlib data expand beyond the limit")
          .Expected("at most " + FormatByteSize(max_output_bytes));
    }
    Append(ByteSpan(block).first(produced), out);
    if (code == Z_STREAM_END) return out;
  }
}

}  // namespace ckpt
