#include "tools/cli/stop_on_signal.h"

#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <poll.h>
#include <system_error>

#include "core/base/check.h"

namespace ckpt::cli {
namespace {

// Until one of them is readable.
void WaitFor(std::array<pollfd, 2>& files) {
  while (::poll(files.data(), files.size(), -1) < 0) CKPT_CHECK(errno == EINTR);
}

}  // namespace

StopOnSignal::StopOnSignal() {
  ::sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action = {};
    CKPT_CHECK(::sigaction(signal, nullptr, &action) == 0);
    if (action.sa_handler != SIG_IGN) ::sigaddset(&signals_, signal);
  }
  // Every thread made from now on inherits it, so that signals wait for the one that watches.
  CKPT_CHECK(::pthread_sigmask(SIG_BLOCK, &signals_, &before_) == 0);
  arrivals_ = ::signalfd(-1, &signals_, SFD_CLOEXEC);
  end_ = ::eventfd(0, EFD_CLOEXEC);
  try {
    if (arrivals_ >= 0 && end_ >= 0) watcher_ = std::thread([this] { Watch(); });
  } catch (const std::system_error&) {
    // No more threads are to be had.
  }
  // Nobody watches: signals do what they do by default.
  if (!watcher_.joinable()) CKPT_CHECK(::pthread_sigmask(SIG_SETMASK, &before_, nullptr) == 0);
}

StopOnSignal::~StopOnSignal() {
  if (watcher_.joinable()) {
    const std::uint64_t one = 1;
    CKPT_CHECK(::write(end_, &one, sizeof one) == sizeof one);
    watcher_.join();
  }
  if (arrivals_ >= 0) ::close(arrivals_);
  if (end_ >= 0) ::close(end_);
  CKPT_CHECK(::pthread_sigmask(SIG_SETMASK, &before_, nullptr) == 0);
}

void StopOnSignal::Watch() {
  std::array<pollfd, 2> files = {pollfd{.fd = end_, .events = POLLIN, .revents = 0},
                                 pollfd{.fd = arrivals_, .events = POLLIN, .revents = 0}};
  WaitFor(files);
  if (files[0].revents != 0) return;
  signalfd_siginfo arrived = {};
  CKPT_CHECK(::read(arrivals_, &arrived, sizeof arrived) == sizeof arrived);
  stop_.request_stop();
  // The second one does here what it does by default.
  CKPT_CHECK(::pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr) == 0);
  files[1].fd = -1;
  WaitFor(files);
}

}  // namespace ckpt::cli
