#include "trainer/metrics/event_record.h"

#include <string_view>

#include "core/base/endian.h"
#include "core/base/hash.h"

namespace ckpt::train {
namespace {

constexpr std::string_view kVersion = "brain.Event:2";
constexpr std::uint64_t kSessionStart = 1;  // SessionLog.SessionStatus

// Fields of a protobuf message. Each call appends one.
class Message {
 public:
  Message& Varint(int field, std::uint64_t value) {
    Tag(field, WireType::kVarint);
    AppendVarint(value);
    return *this;
  }
  Message& Double(int field, double value) {
    Tag(field, WireType::kFixed64);
    AppendLe(value, bytes_);
    return *this;
  }
  Message& Float(int field, float value) {
    Tag(field, WireType::kFixed32);
    AppendLe(value, bytes_);
    return *this;
  }
  // Text, or a message.
  Message& Nested(int field, ByteSpan value) {
    Tag(field, WireType::kLength);
    AppendVarint(value.size());
    Append(value, bytes_);
    return *this;
  }
  [[nodiscard]] const Bytes& bytes() const { return bytes_; }

 private:
  enum class WireType : std::uint8_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };

  void Tag(int field, WireType type) {
    AppendVarint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type));
  }
  void AppendVarint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<std::byte>(value | 0x80));
    bytes_.push_back(static_cast<std::byte>(value));
  }

  Bytes bytes_;
};

// The field numbers are those of TensorFlow's event.proto and summary.proto.
Message EventAt(double wall_time, std::int64_t step) {
  Message event;
  event.Double(1, wall_time).Varint(2, static_cast<std::uint64_t>(step));
  return event;
}

}  // namespace

Bytes VersionEvent(double wall_time) {
  return Message().Double(1, wall_time).Nested(3, AsBytes(kVersion)).bytes();
}

Bytes RestartEvent(double wall_time, std::int64_t first_step) {
  const Message session = Message().Varint(1, kSessionStart);
  return EventAt(wall_time, first_step).Nested(7, session.bytes()).bytes();
}

Bytes ScalarEvent(double wall_time, std::int64_t step, std::span<const Scalar> scalars) {
  Message summary;
  for (const Scalar& scalar : scalars) {
    Message value;
    value.Nested(1, AsBytes(scalar.tag)).Float(2, static_cast<float>(scalar.value));
    summary.Nested(1, value.bytes());
  }
  return EventAt(wall_time, step).Nested(5, summary.bytes()).bytes();
}

Bytes FrameRecord(ByteSpan payload) {
  Bytes record;
  AppendLe(std::uint64_t{payload.size()}, record);
  AppendLe(MaskedCrc32c(record), record);
  Append(payload, record);
  AppendLe(MaskedCrc32c(payload), record);
  return record;
}

std::uint32_t MaskedCrc32c(ByteSpan bytes) {
  const std::uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8U;
}

}  // namespace ckpt::train
