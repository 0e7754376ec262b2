// Records of TensorBoard's event files, as bytes.
//
// A file is a sequence of records (TFRecord): the payload's length (uint64), its masked CRC-32C (uint32), the payload, and the
// payload's masked CRC-32C (uint32), all little-endian. A payload is one protobuf message, `Event` of TensorFlow's event.proto;
// the first one carries the file's version.
#ifndef CKPT_TRAINER_METRICS_EVENT_RECORD_H_
#define CKPT_TRAINER_METRICS_EVENT_RECORD_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/bytes.h"

namespace ckpt::train {

struct Scalar {
  std::string_view tag;
  double value = 0;  // kept in float32
};

// `wall_time` is in seconds since 1970.
[[nodiscard]] Bytes VersionEvent(double wall_time);
// From here on events of `first_step` and later ones are written again: readers drop what they have of them.
[[nodiscard]] Bytes RestartEvent(double wall_time, std::int64_t first_step);
[[nodiscard]] Bytes ScalarEvent(double wall_time, std::int64_t step,
                                std::span<const Scalar> scalars);

// The payload with what surrounds it.
[[nodiscard]] Bytes FrameRecord(ByteSpan payload);

// TFRecord's form of a CRC-32C, made so that the checksum of data that holds checksums is not weak.
[[nodiscard]] std::uint32_t MaskedCrc32c(ByteSpan bytes);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_METRICS_EVENT_RECORD_H_
