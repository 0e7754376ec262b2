#include "formats/hdf5/internal/links.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "formats/hdf5/internal/dense_links.h"
#include "formats/hdf5/internal/format_numbers.h"
#include "formats/hdf5/internal/local_heap.h"

namespace ckpt::hdf5 {
namespace {

constexpr std::uint64_t kSizeBytes = 8;

// Of the versions 0 and 1, which name the root group's entry in a table of links.
Result<std::uint64_t> ReadOldSuperblock(StructureFile& file, std::uint8_t version,
                                        std::uint64_t& base, std::uint64_t& end) {
  const std::uint64_t length = version == 0 ? 96 : 100;
  CKPT_ASSIGN_OR_RETURN(const Bytes block, file.Read(0, length));
  FieldReader fields(block, 0);
  fields.Skip(13);
  const std::uint8_t offset_bytes = fields.U8();
  const std::uint8_t length_bytes = fields.U8();
  if (offset_bytes != kSizeBytes || length_bytes != kSizeBytes) {
    return file.Unsupported(0, "offsets or lengths of other than eight bytes");
  }
  fields.Skip(version == 0 ? 9 : 13);
  base = fields.U64();
  fields.Skip(8);
  end = fields.U64();
  if (fields.U64() != kUndefined) return file.Unsupported(0, "a file that needs a driver");
  fields.Skip(8);
  return fields.U64();
}

// Whether a message of the superblock's extension says that other files belong to this one. What is
// wrong with it otherwise shows in what is read by it.
bool NeedsDriver(StructureFile& file, std::uint64_t extension) {
  if (extension == kUndefined) return false;
  const Result<ObjectHeader> header = ReadObjectHeader(file, extension);
  return header.ok() && header->Find(MessageType::kDriverInfo) != nullptr;
}

Result<std::uint64_t> ReadNewSuperblock(StructureFile& file, std::uint64_t& base,
                                        std::uint64_t& end) {
  constexpr std::uint8_t kOpenForWriting = 0x01;
  constexpr std::uint64_t kHeadBytes = 12;
  CKPT_ASSIGN_OR_RETURN(const Bytes head, file.Read(0, kHeadBytes));
  FieldReader head_fields(head, 0);
  head_fields.Skip(9);
  const std::uint8_t offset_bytes = head_fields.U8();
  const std::uint8_t length_bytes = head_fields.U8();
  CKPT_ASSIGN_OR_RETURN(
      const Bytes block,
      file.Read(0, kHeadBytes + std::uint64_t{4} * offset_bytes + kChecksumBytes));
  CKPT_RETURN_IF_ERROR(file.CheckSum(0, block));
  if (offset_bytes != kSizeBytes || length_bytes != kSizeBytes) {
    return file.Unsupported(0, "offsets or lengths of other than eight bytes");
  }
  FieldReader fields(block, 0);
  fields.Skip(11);
  if ((fields.U8() & kOpenForWriting) != 0) {
    return Error(ErrorKind::kIncomplete, "its writer did not close the file")
        .File(file.file().name());
  }
  base = fields.U64();
  const std::uint64_t extension = fields.U64();
  end = fields.U64();
  if (NeedsDriver(file, extension)) return file.Unsupported(0, "a file that needs a driver");
  return fields.U64();
}

// How many entries a node of a table of links has room for.
struct NodeRoom {
  std::uint64_t links = 0;     // in a leaf
  std::uint64_t children = 0;  // in a node of the tree above
};

// Nothing if the superblock does not say it, as the new ones do not.
Result<std::optional<NodeRoom>> RoomOfNodes(StructureFile& file) {
  constexpr std::uint64_t kHeadBytes = 20;
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const Bytes> head, file.ReadShared(0, kHeadBytes));
  FieldReader fields(*head, 0);
  fields.Skip(kSignature.size());
  if (fields.U8() > 1) return std::optional<NodeRoom>();
  fields.Skip(7);
  const std::uint64_t links = std::uint64_t{2} * fields.U16();
  return std::optional<NodeRoom>({.links = links, .children = std::uint64_t{2} * fields.U16()});
}

class LinkReader {
 public:
  explicit LinkReader(StructureFile& file) : file_(file) {}

  Result<std::vector<Link>> Read(const ObjectHeader& header) {
    CKPT_ASSIGN_OR_RETURN(room_, RoomOfNodes(file_));
    for (const Message& message : header.messages) {
      switch (message.type) {
        case MessageType::kSymbolTable:
          CKPT_RETURN_IF_ERROR(ReadTable(message));
          break;
        case MessageType::kLink: {
          FieldReader fields = message.fields();
          CKPT_RETURN_IF_ERROR(AddLink(fields));
          break;
        }
        case MessageType::kLinkInfo:
          CKPT_RETURN_IF_ERROR(ReadDense(message));
          break;
        default:
          break;
      }
    }
    return Sorted(header);
  }

 private:
  // Links in the nodes of a tree, names in a heap.
  Status ReadTable(const Message& message) {
    FieldReader fields = message.fields();
    const std::uint64_t tree = fields.U64();
    const std::uint64_t heap_at = fields.U64();
    if (!fields.ok()) return file_.Bad(message.at, "a table of links is cut off");
    CKPT_ASSIGN_OR_RETURN(const LocalHeap heap, LocalHeap::Open(file_, heap_at));
    return ReadNode(tree, heap, -1);
  }

  // `level`: the one that the node must have; -1: any.
  Status ReadNode(std::uint64_t at, const LocalHeap& heap, int level) {
    if (!seen_.insert(at).second) return file_.Bad(at, "a tree of links goes in a circle");
    constexpr std::uint64_t kHeadBytes = 24;
    CKPT_ASSIGN_OR_RETURN(const Bytes head, file_.ReadSigned(at, kHeadBytes, "TREE"));
    FieldReader fields(head, at);
    fields.Skip(4);
    const std::uint8_t type = fields.U8();
    const int own_level = fields.U8();
    const std::uint16_t count = fields.U16();
    if (type != kTreeOfLinks || (level >= 0 && own_level != level)) {
      return file_.Bad(at, "a node of a tree of links is of another kind");
    }
    constexpr std::uint64_t kEntryBytes = 16;  // a key and a child; one more key ends them
    CKPT_ASSIGN_OR_RETURN(const Bytes body, file_.Read(at + kHeadBytes, kEntryBytes * count));
    if (room_) {
      CKPT_RETURN_IF_ERROR(
          CheckRest(at + kHeadBytes + kSizeBytes, kEntryBytes, count, room_->children));
    }
    FieldReader children(body, at + kHeadBytes);
    for (std::uint16_t c = 0; c < count; ++c) {
      children.Skip(8);  // the key: a name
      const std::uint64_t child = children.U64();
      CKPT_RETURN_IF_ERROR(own_level > 0 ? ReadNode(child, heap, own_level - 1)
                                         : ReadLeaf(child, heap));
    }
    return OkStatus();
  }

  Status ReadLeaf(std::uint64_t at, const LocalHeap& heap) {
    constexpr std::uint64_t kHeadBytes = 8;
    constexpr std::uint64_t kEntryBytes = 40;
    // What an entry keeps beside the address of the object: nothing, a table of links, or the
    // target of a symbolic link, which has no object.
    constexpr std::uint32_t kSoftLink = 2;
    if (!seen_.insert(at).second) return file_.Bad(at, "a node of links occurs twice");
    CKPT_ASSIGN_OR_RETURN(const Bytes head, file_.ReadSigned(at, kHeadBytes, "SNOD"));
    FieldReader count_fields(head, at);
    count_fields.Skip(6);
    const std::uint16_t count = count_fields.U16();
    CKPT_ASSIGN_OR_RETURN(const Bytes body, file_.Read(at + kHeadBytes, kEntryBytes * count));
    if (room_) CKPT_RETURN_IF_ERROR(CheckRest(at + kHeadBytes, kEntryBytes, count, room_->links));
    FieldReader fields(body, at + kHeadBytes);
    for (std::uint16_t e = 0; e < count; ++e) {
      Link link;
      CKPT_ASSIGN_OR_RETURN(link.name, heap.NameAt(file_, fields.U64(), file_.size_bytes()));
      // Links may share a name, or the end of one.
      CKPT_RETURN_IF_ERROR(file_.Charge(link.name.size()));
      if (!links_.empty() && links_.back().name > link.name) {
        return file_.Bad(at, "the names in a table of links do not ascend")
            .Expected(fmt::format("a name behind {}", Quote(links_.back().name)))
            .Actual(Quote(link.name));
      }
      link.at = fields.U64();
      const std::uint32_t kept = fields.U32();
      if (kept > kSoftLink || (kept == kSoftLink) != (link.at == kUndefined)) {
        return file_.Bad(at, "a link is neither to an object nor symbolic")
            .Actual(Quote(link.name));
      }
      if (kept == kSoftLink) link.kind = LinkKind::kSoft;
      fields.Skip(20);
      links_.push_back(std::move(link));
    }
    return OkStatus();
  }

  // Of a node with room for `room` entries, the first at `first`. Nothing but zeros is behind the
  // last one: a count that is too small would hide the others.
  Status CheckRest(std::uint64_t first, std::uint64_t entry_bytes, std::uint64_t count,
                   std::uint64_t room) {
    if (count > room) return file_.Bad(first, "a table of links has more entries than room");
    const std::uint64_t at = first + entry_bytes * count;
    const std::uint64_t size = entry_bytes * (room - count);
    if (at > file_.size_bytes() || size > file_.size_bytes() - at) return OkStatus();
    CKPT_ASSIGN_OR_RETURN(const Bytes rest, file_.Read(at, size));
    if (std::ranges::any_of(rest, [](std::byte b) { return b != std::byte{}; })) {
      file_.Warn(at,
                 "something is behind the last entry of a table of links: one is hidden, or an "
                 "early HDF5 library left it there");
    }
    return OkStatus();
  }

  // The body of a link message.
  Status AddLink(FieldReader& fields) {
    const std::uint64_t at = fields.at();
    if (fields.U8() != 1) return file_.Bad(at, "a link of an unknown version");
    const std::uint8_t flags = fields.U8();
    const std::uint8_t type = (flags & 0x08) != 0 ? fields.U8() : std::uint8_t{0};
    if ((flags & 0x04) != 0) fields.Skip(8);
    if ((flags & 0x10) != 0) fields.Skip(1);
    Link link;
    link.name = AsText(fields.Take(fields.Uint(std::size_t{1} << (flags & 0x03))));
    if (type == 0) {
      link.at = fields.U64();
    } else {
      link.kind = type == 1 ? LinkKind::kSoft : LinkKind::kExternal;
    }
    if (!fields.ok()) return file_.Bad(at, "a link is cut off");
    links_.push_back(std::move(link));
    return OkStatus();
  }

  Status ReadDense(const Message& message) {
    FieldReader fields = message.fields();
    fields.Skip(1);
    if ((fields.U8() & 0x01) != 0) fields.Skip(8);
    const std::uint64_t heap = fields.U64();
    const std::uint64_t index = fields.U64();
    if (!fields.ok()) return file_.Bad(message.at, "the account of a group's links is cut off");
    if (heap == kUndefined) return OkStatus();
    CKPT_ASSIGN_OR_RETURN(const std::vector<DenseRecord> records,
                          ReadDenseLinks(file_, heap, index));
    for (const DenseRecord& record : records) {
      FieldReader link(record.body, record.at);
      CKPT_RETURN_IF_ERROR(AddLink(link));
    }
    return OkStatus();
  }

  Result<std::vector<Link>> Sorted(const ObjectHeader& header) {
    std::ranges::sort(links_, {}, &Link::name);
    for (std::size_t l = 0; l < links_.size(); ++l) {
      const std::string& name = links_[l].name;
      if (name.empty() || name.find('/') != std::string::npos || name == ".") {
        return file_.Bad(header.at, "a link has no possible name").Actual(Quote(name));
      }
      if (l > 0 && name == links_[l - 1].name) {
        return file_.Bad(header.at, "two links of a group have one name").Actual(Quote(name));
      }
    }
    return std::move(links_);
  }

  StructureFile& file_;
  std::optional<NodeRoom> room_;
  std::vector<Link> links_;
  std::set<std::uint64_t> seen_;
};

}  // namespace

Result<std::uint64_t> ReadSuperblock(StructureFile& file) {
  constexpr std::uint64_t kHeadBytes = 9;
  CKPT_ASSIGN_OR_RETURN(const Bytes head, file.Read(0, kHeadBytes));
  if (!AsText(head).starts_with(kSignature)) {
    return file.Bad(0, "the file does not begin as an HDF5 file");
  }
  const auto version = static_cast<std::uint8_t>(head.back());
  if (version > 3) return file.Unsupported(0, fmt::format("a superblock of version {}", version));
  std::uint64_t base = 0;
  std::uint64_t end = 0;
  CKPT_ASSIGN_OR_RETURN(const std::uint64_t root, version < 2
                                                      ? ReadOldSuperblock(file, version, base, end)
                                                      : ReadNewSuperblock(file, base, end));
  // A superblock that was moved with all behind it still names its old place, as `base`. Then the
  // file ends where that puts its end: the HDF5 library reads nothing behind it.
  if (end < base) return file.Bad(0, "the file ends before its superblock");
  end -= base;
  const std::uint64_t size = file.size_bytes();
  if (end > size) {
    return Error(ErrorKind::kTruncated, "the file is shorter than its superblock says")
        .File(file.file().name())
        .Expected(fmt::format("{} bytes", end))
        .Actual(fmt::format("{} bytes", size))
        .Hint("the copy is incomplete: fetch the file again");
  }
  if (base != file.user_block() && end != size) {
    return file.Bad(0, "the superblock says that it lies elsewhere");
  }
  return root;
}

bool IsGroup(const ObjectHeader& header) {
  const auto is_of_groups = [](const Message& message) {
    return message.type == MessageType::kSymbolTable || message.type == MessageType::kLink ||
           message.type == MessageType::kLinkInfo;
  };
  return std::ranges::any_of(header.messages, is_of_groups);
}

Result<std::vector<Link>> ReadLinks(StructureFile& file, const ObjectHeader& header) {
  if (!IsGroup(header)) return file.Bad(header.at, "no group where one is expected");
  return LinkReader(file).Read(header);
}

}  // namespace ckpt::hdf5
