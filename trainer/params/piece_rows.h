// Rows of parameters on their way between the host and what a rank owns of them.
#ifndef CKPT_TRAINER_PARAMS_PIECE_ROWS_H_
#define CKPT_TRAINER_PARAMS_PIECE_ROWS_H_

#include "core/base/status.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"
#include "trainer/params/param_store.h"

namespace ckpt::trainer {

// Sets every piece of `array`, which lies parallel to the main weights of `main`. Blocks.
// Errors: those of `fill` and of the queue, kResource.
Status FillPieces(const MainArrays& main, const Tensor& array, const ParamStore::FillRows& fill,
                  Ops& ops, Device& device, Queue& queue);

// Hands every piece of `array` to `take`. Blocks. Errors: those of `take` and of the queue, kResource.
Status TakePieces(const MainArrays& main, const Tensor& array, const ParamStore::TakeRows& take,
                  Ops& ops, Device& device, Queue& queue);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_PIECE_ROWS_H_
