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

// Of a user, the system, and a terminal that is gone.
inline constexpr std::array kEndingSignals = {SIGINT, SIGTERM, SIGHUP};
// And of batch systems: mpirun hands SIGUSR1 and SIGUSR2 on to its processes, and schedulers send them some time before the end.
inline constexpr std::array kBatchSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

// As long as it exists, the first of each of its signals requests a stop instead of ending the process; a second one of the
// same kind ends it at once. Signals that the process ignores stay ignored (nohup). Where the system gives neither a handle
// nor a thread, all signals stay as they were. REQUIRES: one at a time.
class StopOnSignal {
 public:
  explicit StopOnSignal(std::span<const int> signals = kEndingSignals);
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  ~StopOnSignal();

  // Requested some time after the signal, by a thread of its own.
  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }
  // Whether a signal has arrived, of this object or the last one. Any thread.
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
