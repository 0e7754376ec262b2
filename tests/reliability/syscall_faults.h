// Makes the k-th system call of the file system fail, below everything: the program's own
// definitions of open, pread, fsync, … stand in front of the C library's, for Boost's calls too.
//
// Link syscall_faults.cc into the program itself, not into a library.
#ifndef CKPT_TESTS_RELIABILITY_SYSCALL_FAULTS_H_
#define CKPT_TESTS_RELIABILITY_SYSCALL_FAULTS_H_

#include <cstdint>
#include <mutex>
#include <vector>

namespace ckpt::testing {

// What kind of call it is decides which faults make sense.
enum class CallKind : std::uint8_t { kOther, kRead, kWrite };

struct SyscallFault {
  // errno that the call fails with; 0: it moves half of its bytes, at least one.
  int code = 0;
  int at = -1;                  // number of the call, from 0; negative: none fails
  bool is_sticky = false;       // all later ones too
  bool of_all_threads = false;  // calls of every thread count, in the order they come
};

// Counts the calls of this thread, or of all, while it lives, and fails one. One at a time. Hints
// to the kernel (madvise, sync_file_range) are not counted. A failing close closes all the same, as
// Linux does.
class SyscallFaults {
 public:
  explicit SyscallFaults(const SyscallFault& fault);
  SyscallFaults(const SyscallFaults&) = delete;
  SyscallFaults& operator=(const SyscallFaults&) = delete;
  ~SyscallFaults();

  // Those made so far.
  [[nodiscard]] const std::vector<CallKind>& calls() const { return calls_; }

  // For the definitions of the calls: the one that is being made shall fail.
  bool Next(CallKind kind);
  [[nodiscard]] int code() const { return fault_.code; }

 private:
  const SyscallFault fault_;
  std::mutex mutex_;
  std::vector<CallKind> calls_;
};

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_RELIABILITY_SYSCALL_FAULTS_H_
