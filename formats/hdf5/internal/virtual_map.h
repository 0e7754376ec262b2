// What a virtual data set is made of.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_VIRTUAL_MAP_H_
#define CKPT_FORMATS_HDF5_INTERNAL_VIRTUAL_MAP_H_

#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/tensor/box.h"
#include "formats/hdf5/internal/data_set.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

// One box of a virtual data set, and the elements that it shows, in the same order.
struct VirtualPart {
  std::string file;      // "." is the file itself
  std::string data_set;  // its path
  // Nothing: all of it. A size of kUnlimited: to the end, however far the data set has grown.
  std::optional<Box> from;
  std::optional<Box> to;
};

// REQUIRES: `set.virtual_layout`.
// Errors: kBadMetadata, kChecksum, kUnsupported (a selection that is not one box; sources whose
// names have the number of a block).
Result<std::vector<VirtualPart>> ReadVirtualMap(StructureFile& file, const DataSet& set);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_VIRTUAL_MAP_H_
