// Copies rows of parameters between the host and the arrays that a rank owns.
#ifndef CKPT_TRAINER_PARAMS_PIECE_ROWS_H_
#define CKPT_TRAINER_PARAMS_PIECE_ROWS_H_

#include <span>

#include "core/base/status.h"
#include "trainer/device/device.h"
#include "trainer/ops/ops.h"
#include "trainer/params/param_store.h"

namespace ckpt::trainer {

// Sets the pieces of `array`, each from its `main_offset` on. Blocks.
// Errors: those of `fill` and of the queue, kSystem.
Status FillPieces(std::span<const ParamPiece> pieces, const Tensor& array,
                  const ParamStore::FillRows& fill, Ops& ops, Device& device, Queue& queue);

// Copies the requested pieces of `array` to their places, as ParamStore::ReadWeights does.
// Errors: those of the queue, kSystem.
Status ReadPieces(std::span<const ParamPiece> pieces, const Tensor& array,
                  const ParamStore::PlaceRows& place, Ops& ops, Device& device, Queue& queue);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_PARAMS_PIECE_ROWS_H_
