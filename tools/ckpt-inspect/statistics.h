// Minimum, maximum, mean and what is not finite, gathered while elements stream by.
#ifndef CKPT_TOOLS_CKPT_INSPECT_STATISTICS_H_
#define CKPT_TOOLS_CKPT_INSPECT_STATISTICS_H_

#include <cstdint>

#include "core/base/bytes.h"
#include "core/json/json_writer.h"
#include "core/tensor/dtype.h"

namespace ckpt::inspect {

// `min`, `max` and `mean` are over the finite numbers, and null where there are none or they have
// no order (complex); both numbers of a float4 pair count. `nan` and `inf` count elements. One
// thread.
class Statistics {
 public:
  explicit Statistics(DType dtype) : dtype_(dtype) {}

  // Whole elements.
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
