// Element types in the words of the HDF5 library.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_TYPE_H_
#define CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_TYPE_H_

#include <string>

#include "core/tensor/dtype.h"
#include "formats/hdf5/internal/library.h"

namespace ckpt::hdf5 {

// The type that docs/formats/hdf5.md says for our data sets, made by the library and not by
// EncodeType: so each proves the other. REQUIRES: a LibraryLock is held.
Handle LibraryType(DType dtype);

// "integer of 2 bytes", for messages. REQUIRES: a LibraryLock is held.
std::string DescribeType(LibraryId type);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_TYPE_H_
