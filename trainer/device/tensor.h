// Tensor: a view of a C-order array in a device's memory.
#ifndef CKPT_TRAINER_DEVICE_TENSOR_H_
#define CKPT_TRAINER_DEVICE_TENSOR_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "core/base/check.h"
#include "core/tensor/dtype.h"

namespace ckpt::trainer {

// A view, never an owner. A default Tensor is null and means "absent". The memory bounds the sizes,
// so products of them cannot wrap.
struct Tensor {
  static constexpr int kMaxDims = 4;

  Tensor() = default;
  Tensor(void* memory, DType element, std::initializer_list<std::int64_t> sizes)
      : data(memory), dtype(element), ndim(static_cast<int>(sizes.size())) {
    CKPT_CHECK(ndim <= kMaxDims);
    int dim = 0;
    for (const std::int64_t size : sizes) dims[static_cast<std::size_t>(dim++)] = size;
  }

  explicit operator bool() const { return data != nullptr; }
  [[nodiscard]] std::int64_t dim(int i) const { return dims[static_cast<std::size_t>(i)]; }
  [[nodiscard]] std::int64_t num_elems() const {
    std::int64_t product = 1;
    for (int i = 0; i < ndim; ++i) product *= dim(i);
    return product;
  }
  [[nodiscard]] std::uint64_t size_bytes() const {
    return static_cast<std::uint64_t>(num_elems()) * ElementBytes(dtype);
  }
  [[nodiscard]] std::byte* bytes() const { return static_cast<std::byte*>(data); }
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data);
  }

  // The same elements with other dims. REQUIRES: the same number of elements.
  [[nodiscard]] Tensor Reshape(std::initializer_list<std::int64_t> sizes) const {
    const Tensor view(data, dtype, sizes);
    CKPT_CHECK(view.num_elems() == num_elems());
    return view;
  }
  // Elements [begin, begin + count) along the first dim. REQUIRES: ndim > 0.
  [[nodiscard]] Tensor Rows(std::int64_t begin, std::int64_t count) const {
    CKPT_CHECK(ndim > 0 && begin >= 0 && count >= 0 && begin + count <= dims[0]);
    Tensor view = *this;
    const std::uint64_t row_bytes =
        dims[0] == 0 ? 0 : size_bytes() / static_cast<std::uint64_t>(dims[0]);
    view.data = bytes() + static_cast<std::uint64_t>(begin) * row_bytes;
    view.dims[0] = count;
    return view;
  }

  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int ndim = 0;
  std::array<std::int64_t, kMaxDims> dims{};
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_TENSOR_H_
