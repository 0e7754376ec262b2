#include "trainer/device/cpu/internal/sum_squares.h"

#include <algorithm>
#include <cstdint>

#include "core/base/check.h"
#include "core/tensor/cast.h"

namespace ckpt::trainer {
namespace {

double ElementAt(const Tensor& values, std::int64_t i) {
  if (values.dtype == DType::kFloat32) return values.as<const float>()[i];
  if (values.dtype == DType::kFloat64) return values.as<const double>()[i];
  CKPT_CHECK(values.dtype == DType::kBfloat16);
  return FromBf16Bits(values.as<const std::uint16_t>()[i]);
}

}  // namespace

void SumSquares(const Tensor& values, const Tensor& squares) {
  if (!squares) return;
  CKPT_CHECK(squares.dtype == DType::kFloat64 && squares.num_elems() > 0);
  const std::int64_t elems = values.num_elems();
  const std::int64_t ranges = squares.num_elems();
  const std::int64_t range = (elems + ranges - 1) / ranges;
  for (std::int64_t r = 0; r < ranges; ++r) {
    double sum = 0;
    const std::int64_t end = std::min((r + 1) * range, elems);
    for (std::int64_t i = r * range; i < end; ++i) {
      const double value = ElementAt(values, i);
      sum += value * value;
    }
    squares.as<double>()[r] = sum;
  }
}

}  // namespace ckpt::trainer
