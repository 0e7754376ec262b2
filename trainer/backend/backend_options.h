// What a run asks of its backend.
#ifndef CKPT_TRAINER_BACKEND_BACKEND_OPTIONS_H_
#define CKPT_TRAINER_BACKEND_BACKEND_OPTIONS_H_

#include <string>

#include "trainer/backend/backend.h"
#include "trainer/step/train_config.h"

namespace ckpt::trainer {

// `device`: one of BackendNames, or kAnyBackend. `threads`: of the host, per rank.
[[nodiscard]] BackendOptions BackendOptionsOf(const TrainConfig& config, std::string device,
                                              int threads);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_BACKEND_BACKEND_OPTIONS_H_
