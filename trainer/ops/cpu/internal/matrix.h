// Matrix: a strided view of an operand of a product.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_MATRIX_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_MATRIX_H_

#include <cstdint>

namespace ckpt::trainer {

// Element (i, j) is data[i · row_stride + j · column_stride]. Swapping the strides transposes it.
template <typename T>
struct Matrix {
  const T* data = nullptr;
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 1;

  [[nodiscard]] const T* at(std::int64_t row, std::int64_t column) const {
    return data + row * row_stride + column * column_stride;
  }
  [[nodiscard]] Matrix From(std::int64_t row, std::int64_t column) const {
    return {at(row, column), row_stride, column_stride};
  }
  [[nodiscard]] Matrix Transposed() const { return {data, column_stride, row_stride}; }
};

struct ProductSize {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_MATRIX_H_
