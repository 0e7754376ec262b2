// ParamAccess: how a model's blocks access its parameters, for every kind of sharding.
#ifndef CKPT_TRAINER_PARAMS_PARAM_ACCESS_H_
#define CKPT_TRAINER_PARAMS_PARAM_ACCESS_H_

#include <span>

#include "trainer/device/tensor.h"
#include "trainer/ops/gradient.h"

namespace ckpt::trainer {

// Units are numbered as the model lists them, and a unit's parameters as its UnitSpec does. Tensors
// are whole parameters in the compute dtype, for work on the compute queue.
class ParamAccess {
 public:
  virtual ~ParamAccess() = default;

  // Only a hint: starts to make a unit's weights available.
  virtual void Prefetch(int unit) = 0;
  // The unit's weights. Work enqueued on the compute queue from now until Release may read them.
  // Calls nest.
  virtual std::span<const Tensor> Acquire(int unit) = 0;
  virtual void Release(int unit) = 0;

  // Where this micro-batch's gradients of a unit go; null ones for frozen parameters. The memory of
  // gradients to be stored was not cleared, so the micro-batch must write each of them, even if it
  // is zero. Code that writes one twice (tied weights) adds the second time. Valid until
  // ReduceGradients, which declares that they are complete for this micro-batch. Call each once per
  // micro-batch and unit.
  virtual std::span<const Gradient> AcquireGradients(int unit) = 0;
  virtual void ReduceGradients(int unit) = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_PARAM_ACCESS_H_
