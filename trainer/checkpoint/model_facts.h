// What layout tables ask of a model (converters/families), answered by the trainer's own
// configuration.
#ifndef CKPT_TRAINER_CHECKPOINT_MODEL_FACTS_H_
#define CKPT_TRAINER_CHECKPOINT_MODEL_FACTS_H_

#include "core/layout/value.h"
#include "trainer/model/model_config.h"

namespace ckpt::trainer {

// Everything that decides names and shapes is said: the table's defaults and what it knows of
// published models have no part in it. Rows that pad the vocabulary are part of it, as of all
// state.
[[nodiscard]] layout::Configuration ModelFacts(const ModelConfig& model);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_CHECKPOINT_MODEL_FACTS_H_
