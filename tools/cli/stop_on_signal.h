// StopOnSignal: turns Ctrl-C into a request that the work ends in order.
#ifndef CKPT_TOOLS_CLI_STOP_ON_SIGNAL_H_
#define CKPT_TOOLS_CLI_STOP_ON_SIGNAL_H_

#include <array>
#include <csignal>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

namespace ckpt::cli {

// Signals from a user, from the system, and from a terminal that was closed.
inline constexpr std::array kEndingSignals = {SIGINT, SIGTERM, SIGHUP};
// Also signals from batch systems: schedulers send SIGUSR1 or SIGUSR2 some time before the end, and
// mpirun forwards them to its processes.
inline constexpr std::array kBatchSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

// As long as it exists, the first signal requests a stop instead of ending the
// process. A second one, of whichever kind, ends the process at once. Signals that the process
// ignores stay ignored (nohup). If the system gives no handle or no thread, signals keep their
// previous action. REQUIRES: only one at a time.
class StopOnSignal {
 public:
  explicit StopOnSignal(std::span<const int> signals = kEndingSignals);
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  ~StopOnSignal();

  // A separate thread requests the stop, shortly after the signal.
  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }
  // Whether a signal has arrived for this object or the previous one. Callable from any thread.
  [[nodiscard]] static bool HasArrived();

 private:
  void Watch();

  std::stop_source stop_;
  int wake_ = -1;  // readable once a signal has arrived, or this ends
  std::thread watcher_;
  std::vector<std::pair<int, struct sigaction>> before_;  // what the signals did
};

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_STOP_ON_SIGNAL_H_
