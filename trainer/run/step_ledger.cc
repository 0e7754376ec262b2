#include "trainer/run/step_ledger.h"

#include <string>
#include <utility>
#include <vector>

#include "trainer/device/device.h"

namespace ckpt::train {
namespace {

constexpr std::int64_t kSkippedSteps = 2;
constexpr std::int64_t kRecordedSteps = 5;

}  // namespace

void StepLedger::OnStep() {
  ++num_steps_;
  if (!failure_.ok()) return;
  if (num_steps_ == kSkippedSteps) failure_ = Begin();
  if (num_steps_ == kSkippedSteps + kRecordedSteps) failure_ = End();
}

// Steps that are enqueued already are over when the record begins, and those that are enqueued in
// it when it ends: the updates between the two are the steps of the record.
Status StepLedger::Begin() {
  CKPT_RETURN_IF_ERROR(trainer_.params().Synchronize());
  CKPT_ASSIGN_OR_RETURN(record_, trainer_.device().RecordWork());
  first_update_ = trainer_.optimizer().steps();
  recorded_.Begin(*record_);
  return OkStatus();
}

Status StepLedger::End() {
  const std::unique_ptr<trainer::WorkRecord> record = std::move(record_);
  const std::vector<trainer::OpWork> operations = recorded_.End();
  CKPT_RETURN_IF_ERROR(trainer_.params().Synchronize());
  CKPT_ASSIGN_OR_RETURN(const std::vector<trainer::DeviceWork> work, record->Finish());
  const std::int64_t steps = trainer_.optimizer().steps() - first_update_;
  trainer::Device& device = trainer_.device();
  const trainer::Roofline peaks = {.flops = device.PeakFlops(trainer_.config().precision.compute),
                                   .bytes = device.PeakBandwidth()};
  if (steps > 0) ledger_ = trainer::MakeLedger(work, operations, steps, peaks);
  return OkStatus();
}

Result<trainer::Ledger> StepLedger::Finish() {
  if (failure_.ok() && record_ != nullptr) failure_ = End();
  if (!failure_.ok()) return failure_;
  if (ledger_.lines.empty()) {
    return Error(ErrorKind::kUsage, "the run has too few steps for a ledger")
        .Expected("at least " + std::to_string(kSkippedSteps + 1))
        .Actual(std::to_string(num_steps_));
  }
  return std::move(ledger_);
}

}  // namespace ckpt::train
