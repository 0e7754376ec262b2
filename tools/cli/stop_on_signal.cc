#include "tools/cli/stop_on_signal.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <system_error>

#include "core/base/check.h"

namespace ckpt::cli {
namespace {

// The handler uses only these. Relaxed: they order no other memory access.
std::atomic<bool> has_arrived = false;
std::atomic<int> wake_handle = -1;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void Wake(int handle) {
  const std::uint64_t one = 1;
  // It fails only if the handle is already readable.
  [[maybe_unused]] const auto written = ::write(handle, &one, sizeof one);
}

extern "C" void NoteSignal(int signal) {
  const int before = errno;
  if (has_arrived.exchange(true, std::memory_order_relaxed)) {
    // The second one, of whichever kind: it ends the process when this handler returns.
    static_cast<void>(std::signal(signal, SIG_DFL));
    static_cast<void>(std::raise(signal));
  }
  Wake(wake_handle.load(std::memory_order_relaxed));
  errno = before;
}

}  // namespace

StopOnSignal::StopOnSignal(std::span<const int> signals) : wake_(::eventfd(0, EFD_CLOEXEC)) {
  has_arrived.store(false, std::memory_order_relaxed);
  try {
    if (wake_ >= 0) watcher_ = std::thread([this] { Watch(); });
  } catch (const std::system_error&) {
    // The system gives no more threads.
  }
  if (!watcher_.joinable()) return;
  wake_handle.store(wake_, std::memory_order_relaxed);
  struct sigaction action = {};
  action.sa_handler = NoteSignal;
  action.sa_flags = SA_RESTART;  // no call is interrupted
  for (const int signal : signals) {
    struct sigaction before = {};
    CKPT_CHECK(::sigaction(signal, nullptr, &before) == 0);
    if (before.sa_handler == SIG_IGN) continue;
    CKPT_CHECK(::sigaction(signal, &action, nullptr) == 0);
    before_.emplace_back(signal, before);
  }
}

StopOnSignal::~StopOnSignal() {
  wake_handle.store(-1, std::memory_order_relaxed);  // the number may soon be another file's
  for (const auto& [signal, before] : before_) {
    CKPT_CHECK(::sigaction(signal, &before, nullptr) == 0);
  }
  if (watcher_.joinable()) {
    Wake(wake_);
    watcher_.join();
  }
  if (wake_ >= 0) ::close(wake_);
}

bool StopOnSignal::HasArrived() { return has_arrived.load(std::memory_order_relaxed); }

void StopOnSignal::Watch() {
  std::uint64_t count = 0;
  while (::read(wake_, &count, sizeof count) < 0) CKPT_CHECK(errno == EINTR);
  if (HasArrived()) stop_.request_stop();
}

}  // namespace ckpt::cli
