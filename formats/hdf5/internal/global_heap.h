// Objects in the global heap: text of any length, and the maps of virtual data sets.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_GLOBAL_HEAP_H_
#define CKPT_FORMATS_HDF5_INTERNAL_GLOBAL_HEAP_H_

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

// Where the objects of one heap lie.
class GlobalHeap {
 public:
  // Errors: kBadMetadata, those of StructureFile::Read.
  static Result<GlobalHeap> Read(StructureFile& file, std::uint64_t at);

  // Null if it holds no such object. Valid as long as the file that it was read from.
  [[nodiscard]] const ByteSpan* Find(std::uint32_t index) const;

 private:
  std::shared_ptr<const Bytes> body_;
  std::unordered_map<std::uint32_t, ByteSpan> objects_;
};

// An object of the heap there, which is parsed once. Valid as long as `file`.
// Errors: kBadMetadata (there is no such object), those of GlobalHeap::Read.
Result<ByteSpan> ReadHeapObject(StructureFile& file, std::uint64_t heap_at, std::uint32_t index);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_GLOBAL_HEAP_H_
