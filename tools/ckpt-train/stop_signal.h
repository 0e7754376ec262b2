// StopSignal: signals as a wish that the run ends in order.
#ifndef CKPT_TOOLS_CKPT_TRAIN_STOP_SIGNAL_H_
#define CKPT_TOOLS_CKPT_TRAIN_STOP_SIGNAL_H_

#include <array>
#include <csignal>

namespace ckpt::train {

// SIGTERM and SIGINT; SIGHUP, of a terminal that is gone, unless it was ignored before (nohup); SIGUSR1 and SIGUSR2, which
// mpirun hands on to its processes, and batch systems send some time before the end.
inline constexpr std::array kStopSignals = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2};

// As long as it exists, the first of each is kept in mind instead of ending the process; a second one of the same kind ends
// it at once. One at a time.
class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();

  // Whether one has arrived. Any thread.
  [[nodiscard]] static bool HasArrived();

 private:
  std::array<struct sigaction, kStopSignals.size()> before_ = {};
};

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_STOP_SIGNAL_H_
