// StepLedger: where the time of a run's steps goes, from a record of a few of them.
#ifndef CKPT_TRAINER_RUN_STEP_LEDGER_H_
#define CKPT_TRAINER_RUN_STEP_LEDGER_H_

#include <cstdint>
#include <memory>

#include "core/base/result.h"
#include "trainer/device/work_record.h"
#include "trainer/ledger/ledger.h"
#include "trainer/ledger/recorded_ops.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt::train {

// Evaluations and copies of the state between the recorded steps are in it too. Thread-safety: the
// rank's thread.
class StepLedger {
 public:
  // `recorded` are the operations of `trainer`; both outlive it.
  StepLedger(trainer::RankTrainer& trainer, trainer::RecordedOps& recorded)
      : trainer_(trainer), recorded_(recorded) {}

  // Call it after every step. It skips the first two steps, in which memory is allocated, and
  // records the next five. Both ends wait for the device.
  void OnStep();
  // After the last step. Errors: kUsage (there were too few steps), those of Device::RecordWork, of
  // the record and of the queues.
  Result<trainer::Ledger> Finish();

 private:
  Status Begin();
  Status End();

  trainer::RankTrainer& trainer_;
  trainer::RecordedOps& recorded_;
  std::int64_t num_steps_ = 0;
  std::unique_ptr<trainer::WorkRecord> record_;  // of the steps that are being recorded
  std::int64_t first_update_ = 0;                // enqueued before the record began
  trainer::Ledger ledger_;
  Status failure_;
};

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_RUN_STEP_LEDGER_H_
