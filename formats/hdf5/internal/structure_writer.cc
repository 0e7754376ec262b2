#include "formats/hdf5/internal/structure_writer.h"

#include <cstddef>
#include <map>
#include <string_view>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "formats/hdf5/internal/encode_messages.h"
#include "formats/hdf5/internal/encode_type.h"
#include "formats/hdf5/internal/encode_virtual_map.h"
#include "formats/hdf5/internal/format_numbers.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/new_heaps.h"
#include "formats/hdf5/internal/object_header.h"
#include "formats/hdf5/internal/structure_file.h"
#include "formats/hdf5/internal/tail.h"
#include "formats/hdf5/internal/write_group.h"
#include "formats/hdf5/internal/write_tree.h"

namespace ckpt::hdf5 {
namespace {

class StructureWriter {
 public:
  StructureWriter(const std::vector<NewDataSet>& data_sets, std::uint64_t tail_at)
      : data_sets_(data_sets), tail_(tail_at) {}

  NewStructure Write(const std::vector<std::string>& groups, std::uint64_t tail_at) {
    Gather();
    heap_.WriteTo(tail_);
    external_at_ = has_external_ ? external_.WriteTo(tail_) : kUndefined;
    std::map<std::string, std::vector<NewLink>> links;
    for (const std::string& group : groups) links[group];
    for (std::size_t s = 0; s < data_sets_.size(); ++s) {
      const NewDataSet& set = data_sets_[s];
      links[set.group].push_back({set.name, WriteDataSet(set, gathered_[s])});
    }
    std::vector<NewLink> root = std::move(links[""]);
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
    AppendLe(Lookup3(structure.superblock), structure.superblock);
    return structure;
  }

 private:
  // What a data set has in heaps.
  struct Gathered {
    std::vector<NewGlobalHeap::Id> texts;
    NewGlobalHeap::Id map;
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
    NewHeader header;
    header.Add(MessageType::kDataspace, EncodeSpace(set.shape));
    header.Add(MessageType::kDatatype,
               set.text ? EncodeTextType(static_cast<std::uint32_t>(set.text->size()))
                        : EncodeType(set.dtype));
    // Version 3, space allocated late, written if a value is set, which it is not.
    constexpr std::string_view kNoFillValue("\x03\x0a", 2);
    header.Add(MessageType::kFillValue, AsBytes(kNoFillValue));
    if (set.chunks) header.Add(MessageType::kFilters, EncodeZstdFilter(set.chunks->zstd_level));
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
    return WriteTree(std::move(entries), key_of(0, row), kTreeOfChunks, kFanOut, tail_);
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
  NewGlobalHeap heap_;
  NewLocalHeap external_;
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
