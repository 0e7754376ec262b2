// Work that goes on while a rank trains.
#ifndef CKPT_TRAINER_CHECKPOINT_BACKGROUND_WORK_H_
#define CKPT_TRAINER_CHECKPOINT_BACKGROUND_WORK_H_

#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/base/thrown.h"

namespace ckpt::trainer {

// Begins `call`, which returns a Status or a Result, on a thread of its own. Where the system gives
// none, it runs in the `wait` or `get` of the future. What it throws is its error.
template <typename Call>
std::future<std::invoke_result_t<Call&>> BeginWork(Call call) {
  const auto shared = std::make_shared<Call>(std::move(call));
  const auto run = [shared]() -> std::invoke_result_t<Call&> {
    try {
      return (*shared)();
    } catch (const std::exception&) {
      return ThrownError(std::current_exception());
    }
  };
  // It copies `run`: libstdc++ moves an rvalue into the thread that it does not get, and then once
  // more.
  return std::async(std::launch::async | std::launch::deferred, run);
}

// Whether there is no work, or nothing to wait for: its thread has ended, or it has none.
template <typename T>
[[nodiscard]] bool HasEnded(const std::future<T>& work) {
  return !work.valid() || work.wait_for(std::chrono::seconds(0)) != std::future_status::timeout;
}

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_CHECKPOINT_BACKGROUND_WORK_H_
