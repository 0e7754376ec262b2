#include "core/codec/zstd.h"

#include <zstd.h>
#include <zstd_errors.h>

#include "core/base/check.h"
#include "core/base/units.h"

namespace ckpt {
namespace {

// What one worker encodes at a time. It decides where blocks end, so it is part of the format of
// our frames.
constexpr int kJobBytes = 1 << 20;

struct FreeDCtx {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};
struct FreeCCtx {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
};

Status DecodeError(std::size_t code) {
  const std::string reason = ZSTD_getErrorName(code);
  switch (ZSTD_getErrorCode(code)) {
    case ZSTD_error_prefix_unknown:
      return Error(ErrorKind::kBadItem, "not a zstd frame");
    case ZSTD_error_checksum_wrong:
      return Error(ErrorKind::kChecksum, "checksum of a zstd frame differs");
    case ZSTD_error_frameParameter_windowTooLarge:
      return Error(ErrorKind::kResource, "a zstd frame asks for too large a window");
    default:
      return Error(ErrorKind::kBadItem, "damaged zstd frame: " + reason);
  }
}

Status EncodeError(std::size_t code) {
  const bool is_memory = ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation;
  return Error(is_memory ? ErrorKind::kSystem : ErrorKind::kInternal,
               std::string("zstd cannot encode: ") + ZSTD_getErrorName(code));
}

}  // namespace

struct ZstdDecoder::Impl {
  explicit Impl(const ZstdLimits& l) : limits(l), context(ZSTD_createDCtx()) {
    CKPT_CHECK(context != nullptr);
    CKPT_CHECK(!ZSTD_isError(
        ZSTD_DCtx_setParameter(context.get(), ZSTD_d_windowLogMax, limits.max_window_log)));
  }

  ZstdLimits limits;
  std::unique_ptr<ZSTD_DCtx, FreeDCtx> context;
  Bytes block = Bytes(ZSTD_DStreamOutSize());
  std::uint64_t produced_bytes = 0;
  bool any_input = false;
  bool inside_frame = false;
};

ZstdDecoder::ZstdDecoder(const ZstdLimits& limits) : impl_(std::make_unique<Impl>(limits)) {}
ZstdDecoder::ZstdDecoder(ZstdDecoder&&) noexcept = default;
ZstdDecoder& ZstdDecoder::operator=(ZstdDecoder&&) noexcept = default;
ZstdDecoder::~ZstdDecoder() = default;

Status ZstdDecoder::Decode(ByteSpan input, Bytes& out) {
  Impl& d = *impl_;
  if (!input.empty()) d.any_input = true;
  ZSTD_inBuffer in{input.data(), input.size(), 0};
  bool output_pending = false;
  while (in.pos < in.size || output_pending) {
    ZSTD_outBuffer block{d.block.data(), d.block.size(), 0};
    const std::size_t hint = ZSTD_decompressStream(d.context.get(), &block, &in);
    if (ZSTD_isError(hint) != 0) return DecodeError(hint);
    d.inside_frame = hint != 0;
    output_pending = d.inside_frame && block.pos == block.size;
    if (block.pos > d.limits.max_output_bytes - d.produced_bytes) {
      return Error(ErrorKind::kResource, "zstd data expand beyond the limit")
          .Expected("at most " + FormatByteSize(d.limits.max_output_bytes));
    }
    d.produced_bytes += block.pos;
    Append(ByteSpan(d.block).first(block.pos), out);
  }
  return OkStatus();
}

Status ZstdDecoder::Finish() const {
  if (!impl_->any_input) return Error(ErrorKind::kBadItem, "not a zstd frame: no bytes at all");
  if (impl_->inside_frame) return Error(ErrorKind::kTruncated, "the zstd frame is not complete");
  return OkStatus();
}

Result<Bytes> ZstdDecompress(ByteSpan input, const ZstdLimits& limits) {
  ZstdDecoder decoder(limits);
  Bytes out;
  CKPT_RETURN_IF_ERROR(decoder.Decode(input, out));
  CKPT_RETURN_IF_ERROR(decoder.Finish());
  return out;
}

struct ZstdEncoder::Impl {
  explicit Impl(const Options& options) : context(ZSTD_createCCtx()) {
    CKPT_CHECK(context != nullptr);
    Set(ZSTD_c_compressionLevel, options.level);
    Set(ZSTD_c_checksumFlag, 1);
    // At least one worker: without workers, zstd cuts frames into other blocks.
    Set(ZSTD_c_nbWorkers, options.threads);
    Set(ZSTD_c_jobSize, kJobBytes);
  }

  void Set(ZSTD_cParameter parameter, int value) {
    CKPT_CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), parameter, value)));
  }

  // Runs one directive until it is finished. The end of a frame is always requested without input:
  // with input, zstd may bypass the block buffer, and the bytes would depend on how the input was
  // split.
  Status Run(ByteSpan input, ZSTD_EndDirective directive, Bytes& out) {
    ZSTD_inBuffer in{input.data(), input.size(), 0};
    while (true) {
      ZSTD_outBuffer part{block.data(), block.size(), 0};
      const std::size_t left = ZSTD_compressStream2(context.get(), &part, &in, directive);
      if (ZSTD_isError(left) != 0) return EncodeError(left);
      Append(ByteSpan(block).first(part.pos), out);
      if (directive == ZSTD_e_continue ? in.pos == in.size : left == 0) return OkStatus();
    }
  }

  std::unique_ptr<ZSTD_CCtx, FreeCCtx> context;
  Bytes block = Bytes(ZSTD_CStreamOutSize());
};

ZstdEncoder::ZstdEncoder(const Options& options) : impl_(std::make_unique<Impl>(options)) {}
ZstdEncoder::ZstdEncoder(ZstdEncoder&&) noexcept = default;
ZstdEncoder& ZstdEncoder::operator=(ZstdEncoder&&) noexcept = default;
ZstdEncoder::~ZstdEncoder() = default;

void ZstdEncoder::Begin(std::uint64_t content_bytes) {
  ZSTD_CCtx* const context = impl_->context.get();
  CKPT_CHECK(!ZSTD_isError(ZSTD_CCtx_reset(context, ZSTD_reset_session_only)));
  CKPT_CHECK(!ZSTD_isError(ZSTD_CCtx_setPledgedSrcSize(context, content_bytes)));
}

Status ZstdEncoder::Encode(ByteSpan input, Bytes& out) {
  return impl_->Run(input, ZSTD_e_continue, out);
}

Status ZstdEncoder::Finish(Bytes& out) { return impl_->Run({}, ZSTD_e_end, out); }

std::string ZstdEncoderName() { return std::string("zstd ") + ZSTD_versionString(); }

Bytes ZstdCompress(ByteSpan input, int level) {
  const std::unique_ptr<ZSTD_CCtx, FreeCCtx> context(ZSTD_createCCtx());
  CKPT_CHECK(context != nullptr);
  CKPT_CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, level)));
  CKPT_CHECK(!ZSTD_isError(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 1)));
  Bytes out(ZSTD_compressBound(input.size()));
  const std::size_t size =
      ZSTD_compress2(context.get(), out.data(), out.size(), input.data(), input.size());
  CKPT_CHECK(!ZSTD_isError(size));
  out.resize(size);
  return out;
}

}  // namespace ckpt
