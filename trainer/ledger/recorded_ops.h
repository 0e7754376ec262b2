// RecordedOps: an Ops that notes the work of its calls beside a record of what the device ran.
#ifndef CKPT_TRAINER_LEDGER_RECORDED_OPS_H_
#define CKPT_TRAINER_LEDGER_RECORDED_OPS_H_

#include <functional>
#include <utility>
#include <vector>

#include "trainer/device/work_record.h"
#include "trainer/ops/forwarding_ops.h"

namespace ckpt::trainer {

// Hands every call on. Thread-safety: the rank's thread.
class RecordedOps final : public ForwardingOps {
 public:
  using ForwardingOps::ForwardingOps;

  // Until End, every call is an operation of `record`.
  void Begin(WorkRecord& record) { record_ = &record; }
  // The work of the calls since Begin. The number of an operation is its place here.
  std::vector<OpWork> End() {
    record_ = nullptr;
    return std::exchange(calls_, {});
  }

 private:
  void Around(Queue& queue, const OpWork& work, const std::function<void()>& call) override {
    if (record_ == nullptr) return call();
    record_->BeginOperation(queue, static_cast<std::int64_t>(calls_.size()));
    calls_.push_back(work);
    call();
    record_->EndOperation(queue);
  }

  WorkRecord* record_ = nullptr;
  std::vector<OpWork> calls_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_LEDGER_RECORDED_OPS_H_
