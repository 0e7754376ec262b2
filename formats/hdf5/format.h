// HDF5 files, as Keras and others write them: recognised, so that the error can name the format.
#ifndef CKPT_FORMATS_HDF5_FORMAT_H_
#define CKPT_FORMATS_HDF5_FORMAT_H_

#include "formats/format.h"

namespace ckpt::hdf5 {

extern const Format kFormat;

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_FORMAT_H_
