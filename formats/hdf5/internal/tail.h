// The blocks of a structure that is written, one behind the other.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_TAIL_H_
#define CKPT_FORMATS_HDF5_INTERNAL_TAIL_H_

#include <cstdint>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/checked_math.h"

namespace ckpt::hdf5 {

inline void PadTo8(Bytes& bytes) { bytes.resize(AlignUp(bytes.size(), std::size_t{8})); }

// A block names only those before it.
class Tail {
 public:
  // `at`: where it will lie in the file, a multiple of 8.
  explicit Tail(std::uint64_t at) : begin_(at) {}

  // Returns where the block will lie.
  std::uint64_t Add(ByteSpan block) {
    PadTo8(bytes_);
    const std::uint64_t at = begin_ + bytes_.size();
    Append(block, bytes_);
    return at;
  }
  Bytes Take() {
    PadTo8(bytes_);
    return std::move(bytes_);
  }

 private:
  std::uint64_t begin_;
  Bytes bytes_;
};

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_TAIL_H_
