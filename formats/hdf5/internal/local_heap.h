// A local heap: names that end with a NUL byte, by their offset.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_LOCAL_HEAP_H_
#define CKPT_FORMATS_HDF5_INTERNAL_LOCAL_HEAP_H_

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

class LocalHeap {
 public:
  // Errors: kBadMetadata, those of StructureFile::Read.
  static Result<LocalHeap> Open(StructureFile& file, std::uint64_t at);
  // Errors: kBadMetadata (no name of at most `max_bytes` begins there).
  [[nodiscard]] Result<std::string> NameAt(const StructureFile& file, std::uint64_t offset,
                                           std::uint64_t max_bytes) const;

 private:
  std::shared_ptr<const Bytes> data_;
  std::uint64_t at_ = 0;
};

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_LOCAL_HEAP_H_
