#include "tools/ckpt-train/stop_signal.h"

#include <atomic>

#include "core/base/check.h"

namespace ckpt::train {
namespace {

// All that a handler may touch. Relaxed: nothing else is read because of it.
std::atomic<bool> has_arrived = false;
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void NoteSignal(int /*signal*/) { has_arrived.store(true, std::memory_order_relaxed); }

}  // namespace

StopSignal::StopSignal() {
  has_arrived.store(false, std::memory_order_relaxed);
  struct sigaction action = {};
  action.sa_handler = NoteSignal;
  // SA_RESETHAND: the second one does what it does by default. SA_RESTART: no call is interrupted.
  action.sa_flags = static_cast<int>(SA_RESETHAND | static_cast<unsigned>(SA_RESTART));
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    const int signal = kStopSignals[i];
    CKPT_CHECK(::sigaction(signal, &action, &before_[i]) == 0);
    if (signal != SIGHUP || before_[i].sa_handler != SIG_IGN) continue;
    CKPT_CHECK(::sigaction(signal, &before_[i], nullptr) == 0);
  }
}

StopSignal::~StopSignal() {
  for (std::size_t i = 0; i < kStopSignals.size(); ++i) {
    CKPT_CHECK(::sigaction(kStopSignals[i], &before_[i], nullptr) == 0);
  }
}

bool StopSignal::HasArrived() { return has_arrived.load(std::memory_order_relaxed); }

}  // namespace ckpt::train
