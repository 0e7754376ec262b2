// Checks that a source holds exactly the tensors of a run's model, with the same shapes.
#ifndef CKPT_TRAINER_RUN_INTERNAL_FITS_MODEL_H_
#define CKPT_TRAINER_RUN_INTERNAL_FITS_MODEL_H_

#include <cstdint>
#include <string>

#include "converters/verbs/model_source.h"
#include "core/base/status.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

enum class StoredPart : std::uint8_t {
  kWeights,       // parameters and buffers
  kWeightsAlone,  // the same for a new run, which may round them
  // Of parameters that are trained; one that was trained before and is frozen now may still have
  // one.
  kMoment,
};

// `view` is `source` under the trainer's names (kTrainerNaming). The whole model is checked on each
// rank, because no rank reads a layer that the model does not have.
//
// Errors: kUnmapped (the model has no place for a tensor), kMissing (the source lacks a parameter,
// or its optimizer keeps nothing for one that is trained), kShapeMismatch, kDtypeMismatch (a run
// that goes on would round a tensor: the trainer keeps float32); all at once, but only the first of
// many. kValueMismatch (a tied tensor is stored twice, with different values).
Status CheckFits(const ModelSource& source, const ModelView& view,
                 const trainer::TrainConfig& config, StoredPart part);

// Says which tensors of the view are rounded when they are loaded, in one line. Empty: none is.
[[nodiscard]] std::string DescribeRounding(const ModelSource& source, const ModelView& view);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_FITS_MODEL_H_
