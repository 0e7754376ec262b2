#include "formats/hdf5/internal/write_group.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "core/base/endian.h"
#include "core/tensor/dtype.h"
#include "formats/hdf5/internal/encode_messages.h"
#include "formats/hdf5/internal/encode_type.h"
#include "formats/hdf5/internal/format_numbers.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/new_heaps.h"
#include "formats/hdf5/internal/object_header.h"
#include "formats/hdf5/internal/write_tree.h"

namespace ckpt::hdf5 {

std::uint64_t WriteGroup(std::vector<NewLink> links, std::vector<Bytes> attributes, Tail& tail) {
  // The library's defaults, which it assumes where the file does not say otherwise.
  constexpr std::size_t kLinksOfLeaf = 8;
  constexpr std::size_t kFanOut = 32;
  constexpr std::size_t kLinkBytes = 40;
  std::ranges::sort(links, {}, &NewLink::name);
  NewLocalHeap names;
  std::vector<std::uint64_t> name_at;
  for (const NewLink& link : links) name_at.push_back(names.Add(link.name));
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
  AppendLe(WriteTree(std::move(leaves), last, kTreeOfLinks, kFanOut, tail), table);
  AppendLe(names.WriteTo(tail), table);
  attributes.push_back(EncodeAttribute(kLinksAttribute, EncodeType(DType::kInt64),
                                       EncodeNumber(static_cast<std::int64_t>(links.size()))));
  NewHeader header;
  header.Add(MessageType::kSymbolTable, table);
  for (const Bytes& attribute : attributes) header.Add(MessageType::kAttribute, attribute);
  return tail.Add(header.Encode());
}

}  // namespace ckpt::hdf5
