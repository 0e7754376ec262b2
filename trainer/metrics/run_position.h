// Where a run resumes, and which run it is.
#ifndef CKPT_TRAINER_METRICS_RUN_POSITION_H_
#define CKPT_TRAINER_METRICS_RUN_POSITION_H_

#include <cstdint>
#include <string>

namespace ckpt::train {

struct RunPosition {
  std::string run_id;
  std::int64_t last_step = 0;  // finished steps; 0: the run begins
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_METRICS_RUN_POSITION_H_
