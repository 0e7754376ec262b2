// Rotary embeddings of what a thread holds: two packs of a head, whose elements turn with each
// other, so that threads exchange nothing.
#ifndef CKPT_TRAINER_OPS_CUDA_ROTATION_CUH_
#define CKPT_TRAINER_OPS_CUDA_ROTATION_CUH_

#include <cstdint>

#include "core/base/check.h"
#include "trainer/ops/cuda/kernel.cuh"
#include "trainer/ops/ops.h"

namespace ckpt::trainer::cuda {

inline constexpr int kHeld = 2 * kPackWidth;  // elements of a thread

struct Rotation {
  const float* cosine = nullptr;  // null: no rotation
  const float* sine = nullptr;
  const std::int32_t* positions = nullptr;
  std::int32_t seq = 0;
  std::int32_t dim = 0;    // of the elements that are rotated
  std::int32_t first = 0;  // of them
  bool interleaved = false;
};

inline Rotation RotationOf(const RopeForm& form, const Tensor& cosine, const Tensor& sine,
                           std::int64_t head_dim) {
  CKPT_CHECK(form.dim % 2 == 0 && form.dim <= head_dim && form.seq >= 1);
  CKPT_CHECK(cosine.dtype == DType::kFloat32 && sine.dtype == DType::kFloat32);
  CKPT_CHECK(cosine.num_elems() == form.seq * form.dim / 2 &&
             sine.num_elems() == cosine.num_elems());
  return {.cosine = cosine.as<const float>(),
          .sine = sine.as<const float>(),
          .positions = form.positions.as<const std::int32_t>(),
          .seq = static_cast<std::int32_t>(form.seq),
          .dim = static_cast<std::int32_t>(form.dim),
          .first = static_cast<std::int32_t>(form.at_front ? 0 : head_dim - form.dim),
          .interleaved = form.interleaved};
}

// The position of a token in the tables; negative: padding, which is not rotated.
__device__ __forceinline__ std::int32_t PositionOf(const Rotation& rotation, std::int32_t token) {
  const std::int32_t position =
      rotation.positions == nullptr ? token % rotation.seq : rotation.positions[token];
  if (position >= rotation.seq) __trap();
  return position;
}

// Which packs of a head a thread has, in its order of elements: those of the first half of what is
// rotated, or of what is not, and of the second.
struct HeldPacks {
  std::int32_t first = 0;
  std::int32_t second = 0;

  // Of thread `lane` of those that have a head of `packs`.
  __device__ HeldPacks(const Rotation& rotation, std::int32_t packs, std::int32_t lane) {
    const std::int32_t rotated = rotation.dim / kPackWidth;
    const std::int32_t from = rotation.first / kPackWidth;
    if (lane < rotated / 2) {
      first = from + lane;
      second = first + rotated / 2;
    } else {
      first = (from == 0 ? rotated : 0) + lane - rotated / 2;
      second = first + (packs - rotated) / 2;
    }
  }
};

// What a thread holds of a head.
template <typename T>
struct Held {
  Pack<T, kPackWidth> first;
  Pack<T, kPackWidth> second;

  __device__ __forceinline__ void To(float (&x)[kHeld]) const {
    float low[kPackWidth];
    float high[kPackWidth];
    Unpack(first, low);
    Unpack(second, high);
#pragma unroll
    for (int i = 0; i < kPackWidth; ++i) {
      x[i] = low[i];
      x[i + kPackWidth] = high[i];
    }
  }
};

template <typename T>
__device__ __forceinline__ Held<T> HeldOf(const float (&x)[kHeld]) {
  const Pack<T, kHeld> packed = Packed<T>(x);
  const auto* const packs = reinterpret_cast<const Pack<T, kPackWidth>*>(&packed);
  return {packs[0], packs[1]};
}

// What the elements of a thread are turned by in all heads of a token.
template <bool kInverse>
class Turn {
 public:
  __device__ Turn() = default;
  __device__ Turn(const Rotation& rotation, std::int32_t token, std::int32_t lane)
      : is_interleaved_(rotation.interleaved) {
    if (rotation.cosine == nullptr) return;
    const std::int32_t position = PositionOf(rotation, token);
    const std::int32_t half = rotation.dim / 2;
    is_rotated_ = position >= 0 && lane * kPackWidth < half;
    if (!is_rotated_) return;
    // A pair of neighbours has one angle, so a pack of them has half as many.
    const auto load = [&](const float* table, float(&angles)[kPackWidth]) {
      const float* const row = table + static_cast<std::int64_t>(position) * half;
      if (!is_interleaved_) return Unpack(LoadPack<kPackWidth>(row, lane), angles);
      const auto low = LoadPack<kPackWidth / 2>(row, lane);
      const auto high = LoadPack<kPackWidth / 2>(row + half / 2, lane);
#pragma unroll
      for (int i = 0; i < kPackWidth / 2; ++i) {
        angles[i] = low.values[i];
        angles[i + kPackWidth / 2] = high.values[i];
      }
    };
    load(rotation.cosine, cosine_);
    load(rotation.sine, sine_);
    if constexpr (kInverse) {
#pragma unroll
      for (float& sine : sine_) sine = -sine;
    }
  }

  // Whether Apply changes anything.
  [[nodiscard]] __device__ bool is_rotated() const { return is_rotated_; }

  __device__ __forceinline__ void Apply(float (&x)[kHeld]) const {
    if (!is_rotated_) return;
#pragma unroll
    for (int i = 0; i < kPackWidth; ++i) {
      if (is_interleaved_) {
        Rotate(i, x[2 * i], x[2 * i + 1]);
      } else {
        Rotate(i, x[i], x[i + kPackWidth]);
      }
    }
  }

 private:
  __device__ __forceinline__ void Rotate(int i, float& a, float& b) const {
    const float turned = a * cosine_[i] - b * sine_[i];
    b = b * cosine_[i] + a * sine_[i];
    a = turned;
  }

  bool is_interleaved_ = false;
  bool is_rotated_ = false;
  float cosine_[kPackWidth] = {};
  float sine_[kPackWidth] = {};
};

}  // namespace ckpt::trainer::cuda

#endif  // CKPT_TRAINER_OPS_CUDA_ROTATION_CUH_
