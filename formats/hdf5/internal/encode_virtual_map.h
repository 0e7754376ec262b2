// What a virtual data set is made of, as the file says it: the reverse of ReadVirtualMap.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_ENCODE_VIRTUAL_MAP_H_
#define CKPT_FORMATS_HDF5_INTERNAL_ENCODE_VIRTUAL_MAP_H_

#include <vector>

#include "core/base/bytes.h"
#include "formats/hdf5/internal/virtual_map.h"

namespace ckpt::hdf5 {

// An object of the global heap.
[[nodiscard]] Bytes EncodeVirtualMap(const std::vector<VirtualPart>& parts);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_ENCODE_VIRTUAL_MAP_H_
