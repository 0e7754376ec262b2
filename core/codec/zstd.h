// zstd frames with bounded output: the stream transform of DCP items.
#ifndef CKPT_CORE_CODEC_ZSTD_H_
#define CKPT_CORE_CODEC_ZSTD_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace ckpt {

struct ZstdLimits {
  std::uint64_t max_output_bytes = 0;
  // Base-2 logarithm of the largest window that a frame may request; the decoder allocates it. 27
  // (128 MiB) is the largest that zstd writes without `--long`.
  int max_window_log = 27;
};

// Decodes a stream of concatenated frames that arrives in pieces of any size. Skippable frames are
// skipped. For one thread.
//
//   ZstdDecoder decoder({.max_output_bytes = 1 << 20});
//   CKPT_RETURN_IF_ERROR(decoder.Decode(piece, out));  // any number of times
//   CKPT_RETURN_IF_ERROR(decoder.Finish());
class ZstdDecoder {
 public:
  explicit ZstdDecoder(const ZstdLimits& limits);
  ZstdDecoder(ZstdDecoder&&) noexcept;
  ZstdDecoder& operator=(ZstdDecoder&&) noexcept;
  ~ZstdDecoder();

  // Appends what `input` decodes to to `out`, which grows by real output only, never by an
  // announced size.
  //
  // Errors: kBadItem (not a zstd frame, or a damaged one), kChecksum (the frame's own checksum),
  // kResource (more than max_output_bytes, or a larger window).
  Status Decode(ByteSpan input, Bytes& out);

  // Errors: kTruncated (the last frame is not complete), kBadItem (there was no frame at all).
  [[nodiscard]] Status Finish() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// All frames of `input` at once. Errors: as ZstdDecoder.
Result<Bytes> ZstdDecompress(ByteSpan input, const ZstdLimits& limits);

inline constexpr int kDefaultZstdLevel = 3;
// Higher levels require every reader to allocate windows of 128 MiB.
inline constexpr int kMaxZstdLevel = 19;

// Encodes frames one after the other, each from input that arrives in pieces of any size. One
// thread calls; `threads` more do the work. The bytes depend on the content, the level and the
// library's version, never on the pieces or the threads.
//
//   ZstdEncoder encoder({.level = 3, .threads = 4});
//   encoder.Begin(content_bytes);
//   CKPT_RETURN_IF_ERROR(encoder.Encode(piece, out));  // any number of times
//   CKPT_RETURN_IF_ERROR(encoder.Finish(out));
class ZstdEncoder {
 public:
  struct Options {
    int level = kDefaultZstdLevel;  // 1 to kMaxZstdLevel
    int threads = 1;                // at least 1
  };
  explicit ZstdEncoder(const Options& options);
  ZstdEncoder(ZstdEncoder&&) noexcept;
  ZstdEncoder& operator=(ZstdEncoder&&) noexcept;
  ~ZstdEncoder();

  // Starts a frame of exactly `content_bytes`, which its header states. An unfinished frame is
  // discarded.
  void Begin(std::uint64_t content_bytes);
  // Takes all of `input` and appends what is ready to `out`.
  // Errors: kSystem (memory ran out), kInternal (more bytes than Begin announced).
  Status Encode(ByteSpan input, Bytes& out);
  // Appends the rest of the frame. Errors: kSystem, kInternal (fewer bytes than announced).
  Status Finish(Bytes& out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "zstd 1.5.4": the version, which also decides the bytes of a frame.
[[nodiscard]] std::string ZstdEncoderName();

// One frame, with its content size and a checksum. REQUIRES: 1 <= level <= 22.
[[nodiscard]] Bytes ZstdCompress(ByteSpan input, int level);

}  // namespace ckpt

#endif  // CKPT_CORE_CODEC_ZSTD_H_
