#include "formats/hdf5/internal/new_heaps.h"

#include <algorithm>

#include "core/base/endian.h"

namespace ckpt::hdf5 {

NewGlobalHeap::Id NewGlobalHeap::Add(ByteSpan object) {
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

NewGlobalHeap::Id NewGlobalHeap::AddText(const std::string& text) {
  const auto [known, is_new] = texts_.try_emplace(text);
  if (is_new) known->second = Add(AsBytes(text));
  return known->second;
}

void NewGlobalHeap::WriteTo(Tail& tail) {
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

void NewGlobalHeap::AppendReference(const Id& id, Bytes& to) const {
  AppendLe(addresses_[id.collection], to);
  AppendLe(id.index, to);
}

std::uint64_t NewLocalHeap::Add(std::string_view name) {
  const std::uint64_t at = bytes_.size();
  Append(name, bytes_);
  bytes_.resize(bytes_.size() + 8 - name.size() % 8);
  return at;
}

std::uint64_t NewLocalHeap::WriteTo(Tail& tail) const {
  constexpr std::uint64_t kNothingFree = 1;
  const std::uint64_t data_at = tail.Add(bytes_);
  Bytes head;
  Append(std::string_view("HEAP\0\0\0\0", 8), head);
  AppendLe<std::uint64_t>(bytes_.size(), head);
  AppendLe(kNothingFree, head);
  AppendLe(data_at, head);
  return tail.Add(head);
}

}  // namespace ckpt::hdf5
