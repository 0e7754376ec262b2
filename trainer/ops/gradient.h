// Gradient: where the gradient of a parameter goes, and whether it is stored or added there.
// GradientSum: the gradients of all ranks, as an update reads them.
#ifndef CKPT_TRAINER_OPS_GRADIENT_H_
#define CKPT_TRAINER_OPS_GRADIENT_H_

#include <cstdint>
#include <initializer_list>

#include "core/base/check.h"
#include "trainer/device/grad_write.h"
#include "trainer/device/tensor.h"

namespace ckpt::trainer {

// A null Gradient belongs to a frozen parameter and is not computed.
struct Gradient {
  Tensor tensor;
  GradWrite write = GradWrite::kStore;

  explicit operator bool() const { return static_cast<bool>(tensor); }
  [[nodiscard]] bool adds() const { return write == GradWrite::kAdd; }
};

// An array, or two whose sum counts. Two bfloat16 terms take as much memory as their float32 sum.
// They are added where they are read, so no pass over memory does nothing else.
struct GradientSum {
  Tensor first = {};
  Tensor second = {};  // bfloat16, as `first` is then; null: there is one term

  GradientSum() = default;
  GradientSum(const Tensor& sum) : first(sum) {}  // NOLINT: an array is a sum
  // REQUIRES: `other` is null, or both are bfloat16 and of one size.
  GradientSum(const Tensor& one, const Tensor& other) : first(one), second(other) {
    if (!other) return;
    CKPT_CHECK(one.dtype == DType::kBfloat16 && other.dtype == DType::kBfloat16);
    CKPT_CHECK(one.num_elems() == other.num_elems());
  }

  explicit operator bool() const { return static_cast<bool>(first); }
  [[nodiscard]] std::int64_t num_elems() const { return first.num_elems(); }
  // Of all terms.
  [[nodiscard]] std::uint64_t size_bytes() const {
    return first.size_bytes() + (second ? second.size_bytes() : 0);
  }
  // The same part of each term.
  [[nodiscard]] GradientSum Rows(std::int64_t begin, std::int64_t rows) const {
    return {first.Rows(begin, rows), second ? second.Rows(begin, rows) : Tensor()};
  }
  [[nodiscard]] GradientSum Reshape(std::initializer_list<std::int64_t> dims) const {
    return {first.Reshape(dims), second ? second.Reshape(dims) : Tensor()};
  }
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_GRADIENT_H_
