// The published model that a run began from, as far as its saves need it: configuration and side
// files.
#ifndef CKPT_TRAINER_RUN_INTERNAL_PUBLISHED_MODEL_H_
#define CKPT_TRAINER_RUN_INTERNAL_PUBLISHED_MODEL_H_

#include <cstdint>

#include "converters/verbs/side_files.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/layout/value.h"
#include "formats/format.h"

namespace ckpt::train {

// The configuration in `assets` (empty: there are none), for a save as a repository.
// `padded_vocab_size`: rows that the run has, and the model not. Errors: kNotFound (no
// config.json), those of ParseHfConfig.
Result<layout::Configuration> ReadPublishedConfig(Storage& storage, const Path& assets,
                                                  std::int64_t padded_vocab_size);

// The side files in `assets` (empty: there are none) as saves in `format` take them, with float32
// weights. The index of the weights is left out: it is of the files that were there.
Result<CarriedFiles> PublishedFiles(Storage& storage, const Path& assets, const Format& format);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_INTERNAL_PUBLISHED_MODEL_H_
