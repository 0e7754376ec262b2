#include "formats/hdf5/internal/object_header.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"

namespace ckpt::hdf5 {
namespace {

constexpr std::uint8_t kSharedFlag = 0x02;
constexpr std::uint8_t kFailIfUnknownFlag = 0x80;
constexpr std::uint16_t kMessageAlignment = 8;  // of messages in headers of version 1

struct Extent {
  std::uint64_t at = 0;
  std::uint64_t length = 0;
};

class HeaderReader {
 public:
  HeaderReader(StructureFile& file, std::uint64_t at) : file_(file) { header_.at = at; }

  Result<ObjectHeader> Read() {
    CKPT_ASSIGN_OR_RETURN(const Bytes start, file_.Read(header_.at, 4));
    if (AsText(start) == "OHDR") {
      CKPT_RETURN_IF_ERROR(ReadNewStart());
    } else if (start[0] == std::byte{1}) {
      CKPT_RETURN_IF_ERROR(ReadOldStart());
    } else {
      return file_.Bad(header_.at, "no object header where one is announced");
    }
    while (!continuations_.empty()) {
      const Extent next = continuations_.front();
      continuations_.pop_front();
      if (!seen_.insert(next.at).second) {
        return file_.Bad(next.at, "an object header continues in a circle");
      }
      CKPT_RETURN_IF_ERROR(is_new_ ? ReadNewBlock(next) : ReadOldBlock(next));
    }
    if (!is_new_ && num_messages_ != announced_messages_) {
      file_.Warn(header_.at,
                 "an object header has another number of messages than it says: it is damaged, or "
                 "an early HDF5 library miscounted");
    }
    return std::move(header_);
  }

 private:
  Status ReadOldStart() {
    constexpr std::uint64_t kPrefixBytes = 16;
    CKPT_ASSIGN_OR_RETURN(const Bytes prefix, file_.Read(header_.at, kPrefixBytes));
    FieldReader fields(prefix, header_.at);
    fields.Skip(2);  // the version, and a reserved byte
    announced_messages_ = fields.U16();
    fields.Skip(4);  // how many links lead here
    return ReadOldBlock({header_.at + kPrefixBytes, fields.U32()});
  }

  Status ReadNewStart() {
    is_new_ = header_.has_checksums = true;
    // Signature, version, flags, times, phases, size: at most so many bytes.
    constexpr std::uint64_t kMaxPrefixBytes = 6 + 16 + 4 + 8;
    const std::uint64_t there = file_.size_bytes() - header_.at;
    CKPT_ASSIGN_OR_RETURN(const Bytes prefix,
                          file_.Read(header_.at, std::min(kMaxPrefixBytes, there)));
    FieldReader fields(prefix, header_.at);
    fields.Skip(4);
    if (fields.U8() != 2) return file_.Bad(header_.at, "an object header of an unknown version");
    const std::uint8_t flags = fields.U8();
    has_creation_order_ = (flags & 0x04) != 0;
    if ((flags & 0x20) != 0) fields.Skip(16);
    if ((flags & 0x10) != 0) fields.Skip(4);
    const std::uint64_t size = fields.Uint(std::size_t{1} << (flags & 0x03));
    if (!fields.ok()) return file_.Bad(header_.at, "an object header is cut off");
    const std::uint64_t prefix_bytes = fields.at() - header_.at;
    std::uint64_t length = 0;
    if (!CheckedAdd(size, prefix_bytes + kChecksumBytes, &length)) {
      return file_.Bad(header_.at, "the size of an object header overflows");
    }
    CKPT_ASSIGN_OR_RETURN(Bytes block, file_.Read(header_.at, length));
    CKPT_RETURN_IF_ERROR(file_.CheckSum(header_.at, block));
    return AddMessages(std::move(block), header_.at, prefix_bytes, kChecksumBytes);
  }

  Status ReadOldBlock(Extent extent) {
    CKPT_ASSIGN_OR_RETURN(Bytes block, file_.Read(extent.at, extent.length));
    return AddMessages(std::move(block), extent.at, 0, 0);
  }

  Status ReadNewBlock(Extent extent) {
    if (extent.length < 4 + kChecksumBytes)
      return file_.Bad(extent.at, "a continuation is too small");
    CKPT_ASSIGN_OR_RETURN(Bytes block, file_.ReadSigned(extent.at, extent.length, "OCHK"));
    CKPT_RETURN_IF_ERROR(file_.CheckSum(extent.at, block));
    return AddMessages(std::move(block), extent.at, 4, kChecksumBytes);
  }

  // The messages between the first `head` and the last `tail` bytes of a block.
  Status AddMessages(Bytes owned, std::uint64_t at, std::uint64_t head, std::uint64_t tail) {
    const Bytes& block = header_.blocks.emplace_back(std::move(owned));
    FieldReader fields(ByteSpan(block).subspan(head, block.size() - head - tail), at + head);
    const std::uint64_t prefix = is_new_ ? (has_creation_order_ ? 6 : 4) : 8;
    while (fields.left() >= prefix) {
      Message message;
      const auto type = static_cast<std::uint16_t>(fields.Uint(is_new_ ? 1 : 2));
      const std::uint16_t length = fields.U16();
      const std::uint8_t flags = fields.U8();
      fields.Skip(prefix - (is_new_ ? 4 : 5));
      message.type = static_cast<MessageType>(type);
      message.is_shared = (flags & kSharedFlag) != 0;
      message.at = fields.at();
      message.body = fields.Take(length);
      if (!fields.ok()) return file_.Bad(message.at, "a message reaches past its object header");
      if (!is_new_ && length % kMessageAlignment != 0) {
        return file_.Bad(message.at, "the length of a message is no multiple of 8");
      }
      ++num_messages_;
      if (message.type > MessageType::kLast && (flags & kFailIfUnknownFlag) != 0) {
        return file_.Unsupported(message.at, fmt::format("a message of the unknown type {}", type));
      }
      if (message.type == MessageType::kContinuation) {
        FieldReader continuation = message.fields();
        const std::uint64_t next = continuation.U64();
        continuations_.push_back({next, continuation.U64()});
        if (!continuation.ok()) return file_.Bad(message.at, "a continuation is cut off");
      } else if (message.type != MessageType::kNil) {
        header_.messages.push_back(message);
      }
    }
    return OkStatus();
  }

  StructureFile& file_;
  ObjectHeader header_;
  bool is_new_ = false;
  bool has_creation_order_ = false;
  std::size_t announced_messages_ = 0;  // in the prefix of version 1
  std::size_t num_messages_ = 0;        // of any kind
  std::deque<Extent> continuations_;
  std::set<std::uint64_t> seen_;
};

}  // namespace

const Message* ObjectHeader::Find(MessageType type) const {
  const auto found = std::ranges::find(messages, type, &Message::type);
  return found == messages.end() ? nullptr : &*found;
}

Result<ObjectHeader> ReadObjectHeader(StructureFile& file, std::uint64_t at) {
  return HeaderReader(file, at).Read();
}

}  // namespace ckpt::hdf5
