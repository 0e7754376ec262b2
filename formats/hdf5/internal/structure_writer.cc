#include "formats/hdf5/internal/structure_writer.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "formats/hdf5/internal/encode_type.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/object_header.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {
namespace {

constexpr std::uint16_t kZstdFilter = 32015;

void PadTo8(Bytes& bytes) { bytes.resize(CeilDiv(bytes.size(), 8) * 8); }

void AppendSum(Bytes& block) { AppendLe(Lookup3(block), block); }

// The structure's blocks, one behind the other. A block names only those before it.
class Tail {
 public:
  explicit Tail(std::uint64_t at) : begin_(at) {}

  std::uint64_t Add(ByteSpan block) {
    PadTo8(bytes_);
    const std::uint64_t at = begin_ + bytes_.size();
    Append(block, bytes_);
    return at;
  }
  Bytes Take() {
    PadTo8(bytes_);
    return std::move(bytes_);
  }

 private:
  std::uint64_t begin_;
  Bytes bytes_;
};

// Objects of the global heap, gathered before they get their places.
class HeapObjects {
 public:
  struct Id {
    std::size_t collection = 0;
    std::uint32_t index = 0;
  };

  Id Add(ByteSpan object) {
    // The library reads a whole collection for one object of it.
    constexpr std::size_t kMaxBytes = 65536;
    constexpr std::uint32_t kMaxObjects = 1024;
    const bool is_full =
        collections_.empty() || collections_.back().size() >= kMaxBytes || index_ >= kMaxObjects;
    if (is_full) {
      collections_.emplace_back();
      index_ = 0;
    }
    Bytes& to = collections_.back();
    AppendLe(static_cast<std::uint16_t>(++index_), to);
    AppendLe<std::uint16_t>(1, to);
    AppendLe<std::uint32_t>(0, to);
    AppendLe<std::uint64_t>(object.size(), to);
    Append(object, to);
    PadTo8(to);
    return {collections_.size() - 1, index_};
  }
  // The same text gets one object.
  Id AddText(const std::string& text) {
    const auto [known, is_new] = texts_.try_emplace(text);
    if (is_new) known->second = Add(AsBytes(text));
    return known->second;
  }

  void WriteTo(Tail& tail) {
    constexpr std::uint64_t kHeadBytes = 16;
    constexpr std::uint64_t kMinBytes = 4096;  // the library reads so many at least
    for (const Bytes& objects : collections_) {
      const std::uint64_t used = kHeadBytes + objects.size();
      const std::uint64_t size = std::max(used + kHeadBytes, kMinBytes);
      Bytes block;
      Append(std::string_view("GCOL\x01\0\0\0", 8), block);
      AppendLe(size, block);
      Append(objects, block);
      AppendLe<std::uint64_t>(0, block);  // the rest is free
      AppendLe(size - used, block);
      block.resize(size);
      addresses_.push_back(tail.Add(block));
    }
  }

  // As a message refers to it, after WriteTo.
  void AppendReference(const Id& id, Bytes& to) const {
    AppendLe(addresses_[id.collection], to);
    AppendLe(id.index, to);
  }

 private:
  std::vector<Bytes> collections_;
  std::uint32_t index_ = 0;
  std::map<std::string, Id> texts_;
  std::vector<std::uint64_t> addresses_;
};

Bytes EncodeSpace(DimsView shape) {
  Bytes space;
  AppendLe<std::uint8_t>(2, space);
  AppendLe(static_cast<std::uint8_t>(shape.size()), space);
  AppendLe<std::uint8_t>(0, space);
  AppendLe<std::uint8_t>(shape.empty() ? 0 : 1, space);
  for (const std::int64_t dim : shape) AppendLe(dim, space);
  return space;
}

template <typename Number>
Bytes EncodeNumber(Number number) {
  Bytes value;
  AppendLe(number, value);
  return value;
}

Bytes EncodeAttribute(std::string_view name, const Bytes& type, ByteSpan value) {
  const Bytes space = EncodeSpace({});
  Bytes attribute;
  AppendLe<std::uint8_t>(3, attribute);
  AppendLe<std::uint8_t>(0, attribute);
  AppendLe(static_cast<std::uint16_t>(name.size() + 1), attribute);
  AppendLe(static_cast<std::uint16_t>(type.size()), attribute);
  AppendLe(static_cast<std::uint16_t>(space.size()), attribute);
  AppendLe<std::uint8_t>(1, attribute);  // UTF-8
  Append(name, attribute);
  AppendLe<std::uint8_t>(0, attribute);
  Append(type, attribute);
  Append(space, attribute);
  Append(value, attribute);
  return attribute;
}

// Attributes are in the header alone: no heap and no tree has more of them. Without this message the
// library says that an object has none, and h5repack copies none.
Bytes EncodeAttributeInfo() {
  Bytes info;
  AppendLe<std::uint8_t>(0, info);
  AppendLe<std::uint8_t>(0, info);
  AppendLe(kUndefined, info);
  AppendLe(kUndefined, info);
  return info;
}

class Header {
 public:
  void Add(MessageType type, ByteSpan body) {
    if (type == MessageType::kAttribute && !has_attributes_) {
      has_attributes_ = true;
      Add(MessageType::kAttributeInfo, EncodeAttributeInfo());
    }
    constexpr std::size_t kMaxBytes = 65535;
    CKPT_CHECK(body.size() <= kMaxBytes);
    AppendLe(static_cast<std::uint8_t>(type), messages_);
    AppendLe(static_cast<std::uint16_t>(body.size()), messages_);
    AppendLe<std::uint8_t>(0, messages_);
    Append(body, messages_);
  }
  [[nodiscard]] Bytes Encode() const {
    constexpr std::uint8_t kFourByteSize = 0x02;
    Bytes block;
    Append(std::string_view("OHDR\x02"), block);
    AppendLe(kFourByteSize, block);
    AppendLe(static_cast<std::uint32_t>(messages_.size()), block);
    Append(messages_, block);
    AppendSum(block);
    return block;
  }

 private:
  bool has_attributes_ = false;
  Bytes messages_;
};

void AppendSelection(const std::optional<Box>& box, Bytes& map) {
  constexpr std::uint32_t kHyperslab = 2;
  constexpr std::uint32_t kAll = 3;
  constexpr std::int64_t kMaxShort = 0xffffffff;
  if (!box) {
    AppendLe(kAll, map);
    AppendLe<std::uint32_t>(1, map);
    AppendLe<std::uint64_t>(0, map);
    return;
  }
  const auto rank = static_cast<std::uint32_t>(box->sizes.size());
  bool is_short = true;
  for (std::size_t d = 0; d < rank; ++d) {
    is_short = is_short && box->offsets[d] + box->sizes[d] <= kMaxShort;
  }
  AppendLe(kHyperslab, map);
  if (is_short) {  // as every version of the library reads it
    AppendLe<std::uint32_t>(1, map);
    AppendLe<std::uint32_t>(0, map);
    AppendLe<std::uint32_t>(8 + 8 * rank, map);
    AppendLe(rank, map);
    AppendLe<std::uint32_t>(1, map);
    for (const std::int64_t offset : box->offsets) {
      AppendLe(static_cast<std::uint32_t>(offset), map);
    }
    for (std::size_t d = 0; d < rank; ++d) {
      AppendLe(static_cast<std::uint32_t>(box->offsets[d] + box->sizes[d] - 1), map);
    }
    return;
  }
  AppendLe<std::uint32_t>(2, map);
  AppendLe<std::uint8_t>(1, map);
  AppendLe<std::uint32_t>(4 + 32 * rank, map);
  AppendLe(rank, map);
  for (std::size_t d = 0; d < rank; ++d) {
    AppendLe(box->offsets[d], map);
    AppendLe<std::uint64_t>(1, map);
    AppendLe<std::uint64_t>(1, map);
    AppendLe(box->sizes[d], map);
  }
}

Bytes EncodeVirtualMap(const std::vector<VirtualPart>& parts) {
  Bytes map;
  AppendLe<std::uint8_t>(0, map);
  AppendLe<std::uint64_t>(parts.size(), map);
  for (const VirtualPart& part : parts) {
    for (const std::string& name : {part.file, part.data_set}) {
      Append(SourceNameIn(name), map);
      AppendLe<std::uint8_t>(0, map);
    }
    AppendSelection(part.from, map);
    AppendSelection(part.to, map);
  }
  AppendSum(map);
  return map;
}

// Names in a local heap.
class Names {
 public:
  Names() : bytes_(8) {}  // the empty name

  std::uint64_t Add(std::string_view name) {
    const std::uint64_t at = bytes_.size();
    Append(name, bytes_);
    bytes_.resize(bytes_.size() + 8 - name.size() % 8);
    return at;
  }
  std::uint64_t WriteTo(Tail& tail) const {
    constexpr std::uint64_t kNothingFree = 1;
    const std::uint64_t data_at = tail.Add(bytes_);
    Bytes head;
    Append(std::string_view("HEAP\0\0\0\0", 8), head);
    AppendLe<std::uint64_t>(bytes_.size(), head);
    AppendLe(kNothingFree, head);
    AppendLe(data_at, head);
    return tail.Add(head);
  }

 private:
  Bytes bytes_;
};

// An entry of a version-1 tree: what comes before it, and its address.
struct TreeEntry {
  Bytes key;
  std::uint64_t at = 0;
};

// Writes the nodes over `entries`, at most `fan_out` a node, and returns the root's address.
// `last`: the key behind the last entry.
std::uint64_t WriteTree(std::vector<TreeEntry> entries, const Bytes& last, std::uint8_t type,
                        std::size_t fan_out, Tail& tail) {
  const std::size_t node_bytes = 24 + (fan_out + 1) * last.size() + fan_out * 8;
  for (std::uint8_t level = 0;; ++level) {
    std::vector<TreeEntry> nodes;
    const std::size_t num_nodes = std::max<std::size_t>(CeilDiv(entries.size(), fan_out), 1);
    // Siblings name each other, so their places are computed before.
    const std::uint64_t first_at = tail.Add({});
    const std::uint64_t stride = CeilDiv(node_bytes, 8) * 8;
    for (std::size_t n = 0; n < num_nodes; ++n) {
      const std::size_t begin = n * fan_out;
      const std::size_t end = std::min(begin + fan_out, entries.size());
      Bytes node;
      Append(std::string_view("TREE"), node);
      AppendLe(type, node);
      AppendLe(level, node);
      AppendLe(static_cast<std::uint16_t>(end - begin), node);
      AppendLe(n == 0 ? kUndefined : first_at + (n - 1) * stride, node);
      AppendLe(n + 1 == num_nodes ? kUndefined : first_at + (n + 1) * stride, node);
      for (std::size_t e = begin; e < end; ++e) {
        Append(entries[e].key, node);
        AppendLe(entries[e].at, node);
      }
      Append(end < entries.size() ? entries[end].key : last, node);
      node.resize(stride);
      const std::uint64_t at = tail.Add(node);
      CKPT_CHECK(at == first_at + n * stride);
      nodes.push_back({begin < entries.size() ? entries[begin].key : last, at});
    }
    if (nodes.size() == 1) return nodes.front().at;
    entries = std::move(nodes);
  }
}

struct NamedObject {
  std::string name;
  std::uint64_t at = 0;
};

// The header of a group: a table of links, and how many there are, for the table has no checksum.
std::uint64_t WriteGroup(std::vector<NamedObject> links, std::vector<Bytes> attributes,
                         Tail& tail) {
  // The library's defaults, which it assumes where the file does not say otherwise.
  constexpr std::size_t kLinksOfLeaf = 8;
  constexpr std::size_t kFanOut = 32;
  constexpr std::size_t kLinkBytes = 40;
  std::ranges::sort(links, {}, &NamedObject::name);
  Names names;
  std::vector<std::uint64_t> name_at;
  for (const NamedObject& link : links) name_at.push_back(names.Add(link.name));
  const auto key_of = [](std::uint64_t name) {
    Bytes key;
    AppendLe(name, key);
    return key;
  };
  std::vector<TreeEntry> leaves;
  for (std::size_t begin = 0; begin < links.size(); begin += kLinksOfLeaf) {
    const std::size_t end = std::min(begin + kLinksOfLeaf, links.size());
    Bytes leaf;
    Append(std::string_view("SNOD\x01\0", 6), leaf);
    AppendLe(static_cast<std::uint16_t>(end - begin), leaf);
    for (std::size_t l = begin; l < end; ++l) {
      AppendLe(name_at[l], leaf);
      AppendLe(links[l].at, leaf);
      leaf.resize(leaf.size() + kLinkBytes - 16);
    }
    leaf.resize(8 + kLinksOfLeaf * kLinkBytes);
    // Every name of a leaf is greater than its key: the last name of the leaf before it.
    leaves.push_back({key_of(begin == 0 ? 0 : name_at[begin - 1]), tail.Add(leaf)});
  }
  const Bytes last = key_of(links.empty() ? 0 : name_at.back());
  Bytes table;
  AppendLe(WriteTree(std::move(leaves), last, 0, kFanOut, tail), table);
  AppendLe(names.WriteTo(tail), table);
  attributes.push_back(EncodeAttribute(kLinksAttribute, EncodeType(DType::kInt64),
                                       EncodeNumber(static_cast<std::int64_t>(links.size()))));
  Header header;
  header.Add(MessageType::kSymbolTable, table);
  for (const Bytes& attribute : attributes) header.Add(MessageType::kAttribute, attribute);
  return tail.Add(header.Encode());
}

class StructureWriter {
 public:
  StructureWriter(const std::vector<NewDataSet>& data_sets, std::uint64_t tail_at)
      : data_sets_(data_sets), tail_(tail_at) {}

  NewStructure Write(const std::vector<std::string>& groups, std::uint64_t tail_at) {
    Gather();
    heap_.WriteTo(tail_);
    external_at_ = has_external_ ? external_.WriteTo(tail_) : kUndefined;
    std::map<std::string, std::vector<NamedObject>> links;
    for (const std::string& group : groups) links[group];
    for (std::size_t s = 0; s < data_sets_.size(); ++s) {
      const NewDataSet& set = data_sets_[s];
      links[set.group].push_back({set.name, WriteDataSet(set, gathered_[s])});
    }
    std::vector<NamedObject> root = std::move(links[""]);
    for (auto& [name, members] : links) {
      if (!name.empty()) root.push_back({name, WriteGroup(std::move(members), {}, tail_)});
    }
    const std::uint64_t root_at =
        WriteGroup(std::move(root),
                   {EncodeAttribute(kLayoutAttribute, EncodeType(DType::kInt64),
                                    EncodeNumber(kLayoutVersion))},
                   tail_);
    NewStructure structure;
    structure.tail = tail_.Take();
    Append(kSignature, structure.superblock);
    for (const int field : {2, 8, 8, 0}) {  // version, bytes of offsets and lengths, flags
      AppendLe(static_cast<std::uint8_t>(field), structure.superblock);
    }
    AppendLe<std::uint64_t>(0, structure.superblock);
    AppendLe(kUndefined, structure.superblock);
    AppendLe(tail_at + structure.tail.size(), structure.superblock);
    AppendLe(root_at, structure.superblock);
    AppendSum(structure.superblock);
    return structure;
  }

 private:
  // What a data set has in heaps.
  struct Gathered {
    std::vector<HeapObjects::Id> texts;
    HeapObjects::Id map;
    std::vector<std::uint64_t> file_names;
  };

  void Gather() {
    std::map<std::string, std::uint64_t> file_names;
    for (const NewDataSet& set : data_sets_) {
      Gathered& gathered = gathered_.emplace_back();
      for (const auto& [name, text] : set.attributes) {
        gathered.texts.push_back(heap_.AddText(text));
      }
      if (!set.parts.empty()) gathered.map = heap_.Add(EncodeVirtualMap(set.parts));
      for (const Segment& segment : set.segments) {
        const auto [known, is_new] = file_names.try_emplace(segment.file);
        if (is_new) known->second = external_.Add(segment.file);
        gathered.file_names.push_back(known->second);
        has_external_ = true;
      }
    }
  }

  std::uint64_t WriteDataSet(const NewDataSet& set, const Gathered& gathered) {
    Header header;
    header.Add(MessageType::kDataspace, EncodeSpace(set.shape));
    header.Add(MessageType::kDatatype,
               set.text ? EncodeTextType(static_cast<std::uint32_t>(set.text->size()))
                        : EncodeType(set.dtype));
    // Version 3, space allocated late, written if a value is set, which it is not.
    constexpr std::string_view kNoFillValue("\x03\x0a", 2);
    header.Add(MessageType::kFillValue, AsBytes(kNoFillValue));
    if (set.chunks) header.Add(MessageType::kFilters, EncodeFilter(set.chunks->zstd_level));
    header.Add(MessageType::kLayout, EncodeLayout(set, gathered));
    if (!set.segments.empty()) {
      header.Add(MessageType::kExternalFiles, EncodeExternal(set, gathered));
    }
    for (std::size_t a = 0; a < set.attributes.size(); ++a) {
      Bytes value;
      AppendLe(static_cast<std::uint32_t>(set.attributes[a].second.size()), value);
      heap_.AppendReference(gathered.texts[a], value);
      header.Add(MessageType::kAttribute,
                 EncodeAttribute(set.attributes[a].first, EncodeLongTextType(), value));
    }
    const auto crc32 = set.text ? std::optional(Crc32(AsBytes(*set.text))) : set.crc32;
    if (crc32) {
      header.Add(
          MessageType::kAttribute,
          EncodeAttribute(kCrc32Attribute, EncodeType(DType::kUint32), EncodeNumber(*crc32)));
    }
    return tail_.Add(header.Encode());
  }

  static Bytes EncodeFilter(int zstd_level) {
    Bytes filters;
    AppendLe<std::uint8_t>(2, filters);
    AppendLe<std::uint8_t>(1, filters);
    AppendLe(kZstdFilter, filters);
    constexpr std::string_view kName("zstd\0", 5);
    AppendLe(static_cast<std::uint16_t>(kName.size()), filters);
    AppendLe<std::uint16_t>(0, filters);
    AppendLe<std::uint16_t>(1, filters);
    Append(kName, filters);
    AppendLe(static_cast<std::uint32_t>(zstd_level), filters);
    return filters;
  }

  Bytes EncodeLayout(const NewDataSet& set, const Gathered& gathered) {
    constexpr std::uint8_t kContiguous = 1;
    constexpr std::uint8_t kChunked = 2;
    constexpr std::uint8_t kVirtual = 3;
    Bytes layout;
    if (!set.parts.empty()) {
      AppendLe<std::uint8_t>(4, layout);
      AppendLe(kVirtual, layout);
      heap_.AppendReference(gathered.map, layout);
      return layout;
    }
    AppendLe<std::uint8_t>(3, layout);
    if (set.chunks) {
      AppendLe(kChunked, layout);
      AppendLe(static_cast<std::uint8_t>(set.shape.size() + 1), layout);
      AppendLe(WriteChunkIndex(set), layout);
      Dims chunk = set.shape;
      chunk[0] = set.chunks->rows;
      for (const std::int64_t dim : chunk) AppendLe(static_cast<std::uint32_t>(dim), layout);
      AppendLe(static_cast<std::uint32_t>(ElementBytes(set.dtype)), layout);
      return layout;
    }
    AppendLe(kContiguous, layout);
    if (set.text) {
      AppendLe(tail_.Add(AsBytes(*set.text)), layout);
      AppendLe<std::uint64_t>(set.text->size(), layout);
      return layout;
    }
    const std::uint64_t size = NumBytes(set.shape, set.dtype);
    AppendLe(set.at && size != 0 ? *set.at : kUndefined, layout);
    AppendLe(size, layout);
    return layout;
  }

  std::uint64_t WriteChunkIndex(const NewDataSet& set) {
    constexpr std::size_t kFanOut = 64;  // the library's default
    const auto key_of = [&](std::uint64_t size, std::int64_t row) {
      Bytes key;
      AppendLe(static_cast<std::uint32_t>(size), key);
      AppendLe<std::uint32_t>(0, key);
      AppendLe(row, key);
      key.resize(8 + 8 * (set.shape.size() + 1));
      return key;
    };
    std::vector<TreeEntry> entries;
    std::int64_t row = 0;
    for (const ItemExtent& extent : set.chunks->extents) {
      entries.push_back({key_of(extent.size_bytes, row), extent.offset_bytes});
      row += set.chunks->rows;
    }
    return WriteTree(std::move(entries), key_of(0, row), 1, kFanOut, tail_);
  }

  Bytes EncodeExternal(const NewDataSet& set, const Gathered& gathered) const {
    Bytes external;
    AppendLe<std::uint32_t>(1, external);
    AppendLe(static_cast<std::uint16_t>(set.segments.size()), external);
    AppendLe(static_cast<std::uint16_t>(set.segments.size()), external);
    AppendLe(external_at_, external);
    for (std::size_t s = 0; s < set.segments.size(); ++s) {
      AppendLe(gathered.file_names[s], external);
      AppendLe(set.segments[s].offset_bytes, external);
      AppendLe(set.segments[s].size_bytes, external);
    }
    return external;
  }

  const std::vector<NewDataSet>& data_sets_;
  Tail tail_;
  HeapObjects heap_;
  Names external_;
  bool has_external_ = false;
  std::uint64_t external_at_ = kUndefined;
  std::vector<Gathered> gathered_;
};

}  // namespace

NewStructure EncodeStructure(const std::vector<std::string>& groups,
                             const std::vector<NewDataSet>& data_sets, std::uint64_t tail_at) {
  return StructureWriter(data_sets, tail_at).Write(groups, tail_at);
}

}  // namespace ckpt::hdf5
