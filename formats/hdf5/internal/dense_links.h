// Links and attributes of an object that has many: records in a fractal heap, found by a tree.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_DENSE_LINKS_H_
#define CKPT_FORMATS_HDF5_INTERNAL_DENSE_LINKS_H_

#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

// The body of a link or attribute message.
struct DenseRecord {
  Bytes body;
  std::uint64_t at = 0;
};

// `heap` and `index` are the addresses of the fractal heap and of the tree of names (records of
// type 5 for links, of type 8 for attributes). Errors: kBadMetadata, kChecksum, kUnsupported.
Result<std::vector<DenseRecord>> ReadDenseLinks(StructureFile& file, std::uint64_t heap,
                                                std::uint64_t index);
Result<std::vector<DenseRecord>> ReadDenseAttributes(StructureFile& file, std::uint64_t heap,
                                                     std::uint64_t index);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_DENSE_LINKS_H_
