#include "trainer/comm/periodic_thread.h"

#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

namespace ckpt::trainer {

PeriodicThread::PeriodicThread(std::chrono::milliseconds period, std::function<void()> look)
    : thread_([period, look = std::move(look)](const std::stop_token& stop) {
        std::mutex mutex;
        std::condition_variable_any never;
        std::unique_lock lock(mutex);
        while (true) {
          never.wait_for(lock, stop, period, [] { return false; });  // returns early if stopped
          if (stop.stop_requested()) return;
          look();
        }
      }) {}

}  // namespace ckpt::trainer
