// StopSignal: SIGTERM and SIGINT as a wish that the run ends in order.
#ifndef CKPT_TOOLS_CKPT_TRAIN_STOP_SIGNAL_H_
#define CKPT_TOOLS_CKPT_TRAIN_STOP_SIGNAL_H_

#include <array>
#include <csignal>

namespace ckpt::train {

// As long as it exists, the first SIGTERM and the first SIGINT are kept in mind instead of ending the process; a second one of
// them ends it at once. One at a time.
class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;
  ~StopSignal();

  // Whether one has arrived. Any thread.
  [[nodiscard]] static bool HasArrived();

 private:
  std::array<struct sigaction, 2> before_ = {};
};

}  // namespace ckpt::train

#endif  // CKPT_TOOLS_CKPT_TRAIN_STOP_SIGNAL_H_
