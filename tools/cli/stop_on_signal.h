// StopOnSignal: Ctrl-C as a wish that the work ends in order.
#ifndef CKPT_TOOLS_CLI_STOP_ON_SIGNAL_H_
#define CKPT_TOOLS_CLI_STOP_ON_SIGNAL_H_

#include <csignal>
#include <stop_token>
#include <thread>

namespace ckpt::cli {

// As long as it exists, the first SIGINT, SIGTERM or SIGHUP requests a stop instead of ending the process; a second one ends
// it at once. Signals that the process ignores stay ignored (nohup). Where the system gives neither handles nor a
// thread, signals stay as they were. REQUIRES: one at a time, made before other threads.
class StopOnSignal {
 public:
  StopOnSignal();
  StopOnSignal(const StopOnSignal&) = delete;
  StopOnSignal& operator=(const StopOnSignal&) = delete;
  ~StopOnSignal();

  [[nodiscard]] std::stop_token token() const { return stop_.get_token(); }

 private:
  void Watch();

  std::stop_source stop_;
  sigset_t signals_ = {};
  sigset_t before_ = {};
  int arrivals_ = -1;  // readable once a signal has arrived
  int end_ = -1;       // readable once this ends
  std::thread watcher_;
};

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_STOP_ON_SIGNAL_H_
