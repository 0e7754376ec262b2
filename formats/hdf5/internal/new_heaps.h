// The heaps of a structure that is written: texts and maps that headers refer to.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_NEW_HEAPS_H_
#define CKPT_FORMATS_HDF5_INTERNAL_NEW_HEAPS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "formats/hdf5/internal/tail.h"

namespace ckpt::hdf5 {

// Objects of the global heap, gathered before they get their places.
class NewGlobalHeap {
 public:
  struct Id {
    std::size_t collection = 0;
    std::uint32_t index = 0;
  };

  Id Add(ByteSpan object);
  // The same text gets one object.
  Id AddText(const std::string& text);
  void WriteTo(Tail& tail);
  // As a message refers to it, after WriteTo.
  void AppendReference(const Id& id, Bytes& to) const;

 private:
  std::vector<Bytes> collections_;
  std::uint32_t index_ = 0;
  std::map<std::string, Id> texts_;
  std::vector<std::uint64_t> addresses_;
};

// Names in a local heap.
class NewLocalHeap {
 public:
  NewLocalHeap() : bytes_(8) {}  // the empty name

  // Returns where the name is in the heap.
  std::uint64_t Add(std::string_view name);
  // Returns where the heap will lie.
  std::uint64_t WriteTo(Tail& tail) const;

 private:
  Bytes bytes_;
};

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_NEW_HEAPS_H_
