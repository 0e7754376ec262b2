// NoMoreThreads: a system that gives this process no further thread.
#ifndef CKPT_TESTS_TRAINER_COMM_NO_MORE_THREADS_H_
#define CKPT_TESTS_TRAINER_COMM_NO_MORE_THREADS_H_

#include <cstddef>
#include <pthread.h>

#include "core/base/check.h"

namespace ckpt::testing {

// While it lives, a new thread needs a stack for which there are no addresses, so std::thread and
// std::async throw the std::system_error that they throw at a limit of threads. Threads that exist
// go on.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    constexpr std::size_t kAllAddresses = std::size_t{1} << 47;
    pthread_attr_t none;
    CKPT_CHECK(pthread_getattr_default_np(&usual_) == 0);
    CKPT_CHECK(pthread_getattr_default_np(&none) == 0);
    CKPT_CHECK(pthread_attr_setstacksize(&none, kAllAddresses) == 0);
    CKPT_CHECK(pthread_setattr_default_np(&none) == 0);
    CKPT_CHECK(pthread_attr_destroy(&none) == 0);
  }
  ~NoMoreThreads() {
    CKPT_CHECK(pthread_setattr_default_np(&usual_) == 0);
    CKPT_CHECK(pthread_attr_destroy(&usual_) == 0);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t usual_{};
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_COMM_NO_MORE_THREADS_H_
