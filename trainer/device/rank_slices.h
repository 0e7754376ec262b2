// RankSlices: which part of an array each rank of an all-reduce sums up.
#ifndef CKPT_TRAINER_DEVICE_RANK_SLICES_H_
#define CKPT_TRAINER_DEVICE_RANK_SLICES_H_

#include <algorithm>
#include <cstdint>

#include "core/tensor/dtype.h"
#include "trainer/device/tensor.h"

namespace ckpt::trainer {

// Slice r, elements [begin(r), begin(r + 1)) of the flat array, is rank r's. Slices follow each
// other and have the same size, except that the last ones may be shorter or empty.
class RankSlices {
 public:
  // REQUIRES: `num_ranks` > 0.
  RankSlices(const Tensor& array, int num_ranks)
      : num_elems_(array.num_elems()), elem_bytes_(ElementBytes(array.dtype)) {
    const std::int64_t units = (num_elems_ + kUnitElems - 1) / kUnitElems;
    slice_elems_ = (units + num_ranks - 1) / num_ranks * kUnitElems;
  }

  [[nodiscard]] std::int64_t begin(int rank) const {
    return std::min(rank * slice_elems_, num_elems_);
  }
  [[nodiscard]] std::int64_t num_elems(int rank) const { return begin(rank + 1) - begin(rank); }
  [[nodiscard]] std::uint64_t offset_bytes(int rank) const {
    return static_cast<std::uint64_t>(begin(rank)) * elem_bytes_;
  }
  [[nodiscard]] std::uint64_t size_bytes(int rank) const {
    return offset_bytes(rank + 1) - offset_bytes(rank);
  }

 private:
  // At least 128 bytes, of bfloat16. So if the array begins at a multiple of them, all slices do:
  // a kernel of the GPU reads packs of 16 bytes only from addresses that are multiples of 16, and
  // on the CPU no two slices share a cache line.
  static constexpr std::int64_t kUnitElems = 64;

  std::int64_t num_elems_;
  std::uint64_t elem_bytes_;
  std::int64_t slice_elems_ = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_RANK_SLICES_H_
