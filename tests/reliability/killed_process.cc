#include "tests/reliability/killed_process.h"

#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <system_error>
#include <thread>

namespace ckpt::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCannotRun = 126;

Status SystemError(const char* what) {
  return Error(ErrorKind::kIo, what).Actual(std::generic_category().message(errno));
}

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using TempFile = std::unique_ptr<std::FILE, FileCloser>;

std::string ContentOf(std::FILE* file) {
  std::string content;
  std::rewind(file);
  std::array<char, 4096> part = {};
  for (std::size_t n = 0; (n = std::fread(part.data(), 1, part.size(), file)) > 0;) {
    content.append(part.data(), n);
  }
  return content;
}

// Only calls that are safe between fork and exec.
[[noreturn]] void BecomeProgram(char* const* arguments, int output, bool is_traced) {
  ::setpgid(0, 0);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  if (is_traced) ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
  ::execv(arguments[0], arguments);
  ::_exit(kCannotRun);
}

// What the numbers of a call mean on this machine, without its registers.
struct SystemCall {
  std::uint64_t number = 0;
  std::array<std::uint64_t, 6> arguments = {};
};

bool ChangesFiles(const SystemCall& call) {
  switch (call.number) {
    case SYS_openat:
      return (call.arguments[2] & (O_CREAT | O_TRUNC)) != 0;
    case SYS_pwrite64:
    case SYS_write:
    case SYS_ftruncate:
    case SYS_fallocate:
    case SYS_fsync:
    case SYS_fdatasync:
    case SYS_flock:
    case SYS_mkdirat:
    case SYS_renameat2:
    case SYS_unlinkat:
#ifdef SYS_rename  // calls that newer architectures lack
    case SYS_mkdir:
    case SYS_rename:
    case SYS_renameat:
    case SYS_rmdir:
    case SYS_unlink:
#endif
      return true;
    default:
      return false;
  }
}

// Threads that are in the middle of a call which counts.
class StepCounter {
 public:
  // At a stop of a thread, at the begin of a call or its end; whether that is a step.
  bool IsStep(pid_t thread) {
    struct __ptrace_syscall_info info = {};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof(info), &info) <= 0) return false;
    if (info.op == PTRACE_SYSCALL_INFO_EXIT) return std::erase(inside_, thread) > 0;
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return false;
    SystemCall call{.number = info.entry.nr};
    for (std::size_t a = 0; a < call.arguments.size(); ++a) call.arguments[a] = info.entry.args[a];
    if (!ChangesFiles(call)) return false;
    inside_.push_back(thread);
    return true;
  }

 private:
  std::vector<pid_t> inside_;
};

void RecordEnd(int status, ProcessEnd& end) {
  end.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
}

// Until the program ends; kills it at the step.
Status Trace(pid_t program, int kill_at, ProcessEnd& end) {
  StepCounter counter;
  bool has_begun = false;
  for (;;) {
    int status = 0;
    const pid_t thread = ::waitpid(-1, &status, __WALL);
    if (thread < 0) return SystemError("waiting for a traced program fails");
    if (WIFEXITED(status) || WIFSIGNALED(status)) {
      if (thread != program) continue;
      RecordEnd(status, end);
      return OkStatus();
    }
    int signal = 0;
    if (!has_begun) {
      has_begun = true;
      const auto options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK |
                           PTRACE_O_TRACEVFORK | PTRACE_O_EXITKILL;
      if (::ptrace(PTRACE_SETOPTIONS, program, nullptr, options) != 0) {
        ::kill(-program, SIGKILL);
        return Error(ErrorKind::kUnsupported, "tracing is not allowed here");
      }
    } else if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      if (counter.IsStep(thread) && end.steps++ == kill_at) ::kill(-program, SIGKILL);
    } else if (WSTOPSIG(status) != SIGTRAP && WSTOPSIG(status) != SIGSTOP) {
      signal = WSTOPSIG(status);  // one of the program's own
    }
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, signal);  // it may be dead by now
  }
}

void WaitAndKill(pid_t program, const KillPoint& point, ProcessEnd& end) {
  std::jthread killer;
  if (point.after) {
    killer = std::jthread([program, begin = Clock::now(), point](const std::stop_token& stop) {
      // Sleeping is coarse at this scale, and the program is on another core.
      while (!stop.stop_requested() && Clock::now() - begin < *point.after)
        std::this_thread::yield();
      if (!stop.stop_requested()) ::kill(-program, point.signal);
    });
  }
  // Leaves it a zombie, so that its number is nobody else's while the killer may still use it.
  siginfo_t info = {};
  ::waitid(P_PID, static_cast<id_t>(program), &info, WEXITED | WNOWAIT);
  killer = {};
  int status = 0;
  ::waitpid(program, &status, 0);
  RecordEnd(status, end);
}

}  // namespace

Result<ProcessEnd> RunAndKill(const Command& command, const KillPoint& point) {
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const TempFile output(std::tmpfile());
  if (output == nullptr) return SystemError("no temporary file");
  ProcessEnd end;
  const Clock::time_point begin = Clock::now();
  const pid_t program = ::fork();
  if (program < 0) return SystemError("fork fails");
  if (program == 0)
    BecomeProgram(arguments.data(), ::fileno(output.get()), point.at_step.has_value());
  ::setpgid(program, program);  // whoever is first
  if (point.at_step) {
    CKPT_RETURN_IF_ERROR(Trace(program, *point.at_step, end));
  } else {
    WaitAndKill(program, point, end);
  }
  end.time = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - begin);
  end.output = ContentOf(output.get());
  if (end.exit_code == kCannotRun) return Error(ErrorKind::kIo, "cannot be run").File(command[0]);
  return end;
}

}  // namespace ckpt::testing
