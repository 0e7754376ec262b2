// The feed-forward activation of a model, used by dense blocks and by experts.
#ifndef CKPT_TRAINER_MODEL_INTERNAL_ACTIVATE_H_
#define CKPT_TRAINER_MODEL_INTERNAL_ACTIVATE_H_

#include <cstdint>

#include "trainer/model/block.h"
#include "trainer/model/model_config.h"

namespace ckpt::trainer {

// Rows of linear_fc1 for `ffn_size` activated elements; with SwiGLU the rows of gate and up.
[[nodiscard]] std::int64_t Fc1Rows(Activation activation, std::int64_t ffn_size);

// x [rows, Fc1Rows] → y [rows, F].
void Activate(BlockContext& context, Activation activation, const Tensor& x,
              const ActivationRows& rows, const Tensor& y);
// dx may be x. drow_weights [rows] is overwritten; it is null if rows.weights is. `activated` gets
// y again; it may be dy or null.
void ActivateBackward(BlockContext& context, Activation activation, const Tensor& dy,
                      const Tensor& x, const ActivationRows& rows, const Tensor& dx,
                      const Tensor& drow_weights, const Tensor& activated);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_MODEL_INTERNAL_ACTIVATE_H_
