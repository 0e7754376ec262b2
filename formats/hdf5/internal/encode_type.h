// Element types as an HDF5 file describes them.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_ENCODE_TYPE_H_
#define CKPT_FORMATS_HDF5_INTERNAL_ENCODE_TYPE_H_

#include <cstdint>

#include "core/base/bytes.h"
#include "core/tensor/dtype.h"

namespace ckpt::hdf5 {

// numpy's own types as h5py writes them; other ones as unsigned integers of the same size.
[[nodiscard]] Bytes EncodeType(DType dtype);
// UTF-8 text of exactly `num_bytes`.
[[nodiscard]] Bytes EncodeTextType(std::uint32_t num_bytes);
// UTF-8 text of any length, in the global heap.
[[nodiscard]] Bytes EncodeLongTextType();

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_ENCODE_TYPE_H_
