// HDF5 files: those that this program writes, and those of h5py, Keras and others.
#ifndef CKPT_FORMATS_HDF5_FORMAT_H_
#define CKPT_FORMATS_HDF5_FORMAT_H_

#include "formats/format.h"

namespace ckpt::hdf5 {

extern const Format kFormat;

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_FORMAT_H_
