// Whether what a source holds is what a run's model is made of: no tensor more, none less, none of another size.
#ifndef CKPT_TRAINER_RUN_INTERNAL_FITS_MODEL_H_
#define CKPT_TRAINER_RUN_INTERNAL_FITS_MODEL_H_

#include <cstdint>

#include "converters/verbs/model_source.h"
#include "core/base/status.h"
#include "trainer/step/train_config.h"

namespace ckpt::train {

enum class StoredPart : std::uint8_t {
  kWeights,  // parameters and buffers
  kMoment,  // of parameters that are trained; one that was trained before and is frozen now may have one still
};

// `view` is `source` under the trainer's names (kTrainerNaming). Rows of a rank say nothing about the others: a layer that the
// model lacks is read by nobody.
//
// Errors: kUnmapped (a tensor that the model has no place for), kMissing (a parameter that the source lacks), kShapeMismatch;
//         all at once, of many the first ones. kValueMismatch (a tied tensor is stored twice, with different values).
Status CheckFits(const ModelSource& source, const ModelView& view,
                 const trainer::TrainConfig& config, StoredPart part);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_FITS_MODEL_H_
