// Programs that are killed -9: after some time, or at a step of what they do to files.
#ifndef CKPT_TESTS_RELIABILITY_KILLED_PROCESS_H_
#define CKPT_TESTS_RELIABILITY_KILLED_PROCESS_H_

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace ckpt::testing {

// A program's path and its arguments.
using Command = std::vector<std::string>;

// When to kill. Neither: never.
struct KillPoint {
  std::optional<std::chrono::microseconds> after = {};
  // A step is the begin or the end of a system call that changes files (a creating open, a write, a
  // sync, a rename, …), of any thread. Counted from 0 while the program runs under ptrace.
  std::optional<int> at_step = {};
  int signal = SIGKILL;  // sent after the time
};

struct ProcessEnd {
  bool killed = false;  // else it ended by itself before
  int exit_code = -1;   // unless it was killed
  std::chrono::microseconds time = {};
  int steps = 0;            // counted if at_step was given
  std::string output = {};  // both streams
};

// Runs the program in a process group of its own, all of which is killed.
//
// Errors: kUnsupported (at_step where tracing is forbidden), kIo (it cannot be started).
Result<ProcessEnd> RunAndKill(const Command& command, const KillPoint& point);

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_KILLED_PROCESS_H_
