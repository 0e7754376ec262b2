// Norms and rotations of one row, which several operations share. Call them within
// WithWidestVectors.
#ifndef CKPT_TRAINER_OPS_CPU_INTERNAL_ROW_KERNELS_H_
#define CKPT_TRAINER_OPS_CPU_INTERNAL_ROW_KERNELS_H_

#include <cmath>
#include <cstdint>

#include "core/base/check.h"
#include "trainer/device/cpu/lane_sum.h"
#include "trainer/ops/cpu/internal/numeric.h"
#include "trainer/ops/cpu/internal/vector_loop.h"
#include "trainer/ops/ops.h"

namespace ckpt::trainer {

// One row of RmsNorm. Returns rstd. `out` may be `in`.
template <typename T>
[[gnu::always_inline]] inline Real<T> NormalizeRow(const T* in, const T* weight, Real<T> epsilon,
                                                   std::int64_t columns, T* out) {
  using S = Real<T>;
  const S squares = LaneSum<S>(columns, [=](std::int64_t i) {
    const S value = Load(in[i]);
    return value * value;
  });
  const S scale = S{1} / std::sqrt(squares / static_cast<S>(columns) + epsilon);
  // Rounded also before the weight, as Transformers' classes do.
  ForEach(0, columns, [=](std::int64_t i) {
    out[i] = Store<T>(Load(weight[i]) * Load(Store<T>(Load(in[i]) * scale)));
  });
  return scale;
}

// Its backward: din (=, += if `accumulate`), and dw += unless dw is null. `din` may be `dout`.
template <typename T>
[[gnu::always_inline]] inline void NormalizeRowBackward(const T* dout, const T* in, const T* weight,
                                                        Real<T> scale, std::int64_t columns,
                                                        bool accumulate, T* din, Real<T>* dw) {
  using S = Real<T>;
  const S dot = LaneSum<S>(
      columns, [=](std::int64_t i) { return Load(weight[i]) * Load(dout[i]) * Load(in[i]); });
  const S mean = dot * scale / static_cast<S>(columns);
  if (dw != nullptr) {
    ForEach(0, columns, [=](std::int64_t i) { dw[i] += Load(dout[i]) * (Load(in[i]) * scale); });
  }
  const auto gradient = [=](std::int64_t i) {
    return scale * (Load(weight[i]) * Load(dout[i]) - Load(in[i]) * scale * mean);
  };
  if (accumulate) {
    ForEach(0, columns, [=](std::int64_t i) { din[i] = Store<T>(Load(din[i]) + gradient(i)); });
  } else {
    ForEach(0, columns, [=](std::int64_t i) { din[i] = Store<T>(gradient(i)); });
  }
}

// Negative: padding, which is not rotated.
inline std::int64_t PositionOf(const RopeForm& form, std::int64_t token) {
  if (!form.positions) return token % form.seq;
  const std::int64_t position = form.positions.as<const std::int32_t>()[token];
  CKPT_CHECK(position < form.seq);
  return position;
}

// Rotates the elements of a head that `form` names, x being the first of them.
template <typename T>
void RotateHead(const RopeForm& form, const Real<T>* cosine, const Real<T>* sine, T* x) {
  const std::int64_t half = form.dim / 2;
  const std::int64_t stride = form.interleaved ? 2 : 1;
  T* const second = x + (form.interleaved ? 1 : half);
  const Real<T> sign = form.inverse ? -1 : 1;
  ForEach(0, half, [&](std::int64_t i) {
    const Real<T> a = Load(x[i * stride]);
    const Real<T> b = Load(second[i * stride]);
    const Real<T> s = sign * sine[i];
    x[i * stride] = Store<T>(a * cosine[i] - b * s);
    second[i * stride] = Store<T>(b * cosine[i] + a * s);
  });
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_OPS_CPU_INTERNAL_ROW_KERNELS_H_
