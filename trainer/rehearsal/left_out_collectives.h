// Collectives for a measurement: they move no weights and no gradients.
#ifndef CKPT_TRAINER_REHEARSAL_LEFT_OUT_COLLECTIVES_H_
#define CKPT_TRAINER_REHEARSAL_LEFT_OUT_COLLECTIVES_H_

#include <memory>

#include "trainer/device/collectives.h"

namespace ckpt::trainer {

// Takes the place of `collectives`, whose calls of before it still waits for. From now on its own
// calls do nothing: results keep the values that they have. So a step takes the time that it
// would take if communication cost nothing, and its numbers are wrong.
[[nodiscard]] std::unique_ptr<Collectives> LeaveOut(std::unique_ptr<Collectives> collectives);

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_REHEARSAL_LEFT_OUT_COLLECTIVES_H_
