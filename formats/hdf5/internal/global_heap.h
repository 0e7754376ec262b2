// Objects in the global heap: text of any length, and the maps of virtual data sets.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_GLOBAL_HEAP_H_
#define CKPT_FORMATS_HDF5_INTERNAL_GLOBAL_HEAP_H_

#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

// Errors: kBadMetadata (there is no such object), those of StructureFile::Read.
Result<Bytes> ReadHeapObject(StructureFile& file, std::uint64_t heap_at, std::uint32_t index);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_GLOBAL_HEAP_H_
