// Minimum, maximum, mean and the count of non-finite values, computed while elements are read.
#ifndef CKPT_TOOLS_CKPT_INSPECT_STATISTICS_H_
#define CKPT_TOOLS_CKPT_INSPECT_STATISTICS_H_

#include <cstdint>

#include "core/base/bytes.h"
#include "core/tensor/dtype.h"

namespace ckpt::inspect {

// `min`, `max` and `mean` cover the finite numbers. They are null if there are none, or if the
// numbers have no order (complex). Both numbers of a float4 pair count. `nan` and `inf` count
// elements. For one thread.
class Statistics {
 public:
  explicit Statistics(DType dtype) : dtype_(dtype) {}

  // Adds whole elements.
  void Add(ByteSpan elements);
  // {"min": …, "max": …, "mean": …, "nan": …, "inf": …}
  [[nodiscard]] std::string Json() const;

 private:
  DType dtype_;
  std::uint64_t num_finite_ = 0;
  std::uint64_t num_nan_ = 0;
  std::uint64_t num_inf_ = 0;
  long double min_ = 0;
  long double max_ = 0;
  long double sum_ = 0;
};

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_STATISTICS_H_
