// Records of TensorBoard's event files, as bytes.
//
// A file is a sequence of records (TFRecord): the payload's length (uint64), its masked CRC-32C
// (uint32), the payload, and the payload's masked CRC-32C (uint32), all little-endian. A payload is
// one protobuf message, `Event` of TensorFlow's event.proto. The first one contains the file's
// version.
#ifndef CKPT_TRAINER_METRICS_EVENT_RECORD_H_
#define CKPT_TRAINER_METRICS_EVENT_RECORD_H_

#include <cstdint>
#include <span>
#include <string>

#include "core/base/bytes.h"

namespace ckpt::train {

struct Scalar {
  std::string tag;
  double value = 0;  // stored in float32
};

// `wall_time` is in seconds since 1970.
[[nodiscard]] Bytes VersionEvent(double wall_time);
// Says that events from `first_step` on are written again: readers drop those that they have.
[[nodiscard]] Bytes RestartEvent(double wall_time, std::int64_t first_step);
[[nodiscard]] Bytes ScalarEvent(double wall_time, std::int64_t step,
                                std::span<const Scalar> scalars);

// The payload with the other fields of its record.
[[nodiscard]] Bytes FrameRecord(ByteSpan payload);

// TFRecord's form of a CRC-32C. Masking keeps the checksum strong for data that contain checksums.
[[nodiscard]] std::uint32_t MaskedCrc32c(ByteSpan bytes);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_METRICS_EVENT_RECORD_H_
