// Objects of another checkpoint as torch.save pickles them.
#ifndef CKPT_FORMATS_TORCH_SAVE_CARRIED_OBJECT_H_
#define CKPT_FORMATS_TORCH_SAVE_CARRIED_OBJECT_H_

#include "core/base/result.h"
#include "core/base/status.h"
#include "core/checkpoint/source.h"
#include "formats/weights_request.h"

namespace ckpt::torch_save {

// The object itself if it came with its pickle, else what its text says. Errors: those of
// pickle::PickleFromJson.
Result<PickledObject> PickleCarried(const CarriedObject& object);

// Format::check_object of what stores pickles.
Status CheckCarried(const CarriedObject& object);

}  // namespace ckpt::torch_save

#endif  // CKPT_FORMATS_TORCH_SAVE_CARRIED_OBJECT_H_
