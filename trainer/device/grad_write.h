// GradWrite: whether a gradient is stored or added.
#ifndef CKPT_TRAINER_DEVICE_GRAD_WRITE_H_
#define CKPT_TRAINER_DEVICE_GRAD_WRITE_H_

#include <cstdint>

namespace ckpt::trainer {

// How a gradient is written. Storing gives the same as adding to zeros, except for the sign of a
// zero: 0 + -0 is 0, but a store may leave -0. Later sums, norms and updates do not depend on that
// sign.
enum class GradWrite : std::uint8_t {
  kStore,  // overwrites every element, so memory need not be cleared
  kAdd,
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_GRAD_WRITE_H_
