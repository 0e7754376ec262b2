// ParamAccess: what a model's blocks see of its parameters, however they are sharded.
#ifndef CKPT_TRAINER_PARAMS_PARAM_ACCESS_H_
#define CKPT_TRAINER_PARAMS_PARAM_ACCESS_H_

#include <span>

#include "trainer/device/tensor.h"
#include "trainer/ops/gradient.h"

namespace ckpt::trainer {

// Units are numbered as the model lists them, a unit's parameters as its UnitSpec does. Tensors are
// whole parameters, in the compute dtype, for use by work on the compute queue.
class ParamAccess {
 public:
  virtual ~ParamAccess() = default;

  // Starts to make a unit's weights available; a hint.
  virtual void Prefetch(int unit) = 0;
  // The unit's weights; work enqueued on the compute queue from now on may read them, until
  // Release. Calls nest: the root may be acquired by several users.
  virtual std::span<const Tensor> Acquire(int unit) = 0;
  virtual void Release(int unit) = 0;

  // Where this micro-batch's gradients of a unit go; null ones for frozen parameters. Those to be
  // stored lie in memory that was not cleared: the micro-batch writes every one of them, whatever
  // came of it. Who writes one twice (tied weights) adds the second time.
  // Valid until ReduceGradients, which says that they are complete for this micro-batch. Each once
  // per micro-batch and unit.
  virtual std::span<const Gradient> AcquireGradients(int unit) = 0;
  virtual void ReduceGradients(int unit) = 0;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_PARAM_ACCESS_H_
