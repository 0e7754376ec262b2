#include "tests/reliability/syscall_faults.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <dirent.h>
#include <dlfcn.h>
#include <stdarg.h>

#include "core/base/check.h"

namespace ckpt::testing {
namespace {

thread_local SyscallFaults* of_this_thread = nullptr;
std::atomic<SyscallFaults*> of_all_threads = nullptr;

SyscallFaults* Current() {
  return of_this_thread != nullptr ? of_this_thread : of_all_threads.load();
}

}  // namespace

SyscallFaults::SyscallFaults(const SyscallFault& fault) : fault_(fault) {
  CKPT_CHECK(Current() == nullptr);
  calls_.reserve(1 << 12);
  if (fault.of_all_threads) {
    of_all_threads = this;
  } else {
    of_this_thread = this;
  }
}

SyscallFaults::~SyscallFaults() {
  of_all_threads = nullptr;
  of_this_thread = nullptr;
}

bool SyscallFaults::Next(CallKind kind) {
  const std::lock_guard lock(mutex_);
  const int call = static_cast<int>(calls_.size());
  calls_.push_back(kind);
  if (fault_.at < 0) return false;
  return fault_.is_sticky ? call >= fault_.at : call == fault_.at;
}

namespace {

// The definition behind ours.
template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

// Whether the call being made shall fail; errno is set then.
bool Fails(CallKind kind = CallKind::kOther) {
  SyscallFaults* const faults = Current();
  if (faults == nullptr || !faults->Next(kind) || faults->code() == 0) return false;
  errno = faults->code();
  return true;
}

// How much of a transfer happens; -1: it fails.
ssize_t Allowed(CallKind kind, size_t count) {
  SyscallFaults* const faults = Current();
  if (faults == nullptr || !faults->Next(kind)) return static_cast<ssize_t>(count);
  if (faults->code() == 0) return static_cast<ssize_t>(std::max<size_t>(count / 2, 1));
  errno = faults->code();
  return -1;
}

}  // namespace
}  // namespace ckpt::testing

// NOLINTBEGIN(readability-identifier-naming): the C library's names
extern "C" {

using ckpt::testing::Allowed;
using ckpt::testing::CallKind;
using ckpt::testing::Fails;
using ckpt::testing::Real;

int open(const char* path, int flags, ...) {
  static auto* const real = Real<int(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const unsigned mode = (flags & O_CREAT) != 0 ? va_arg(arguments, unsigned) : 0;
  va_end(arguments);
  return Fails() ? -1 : real(path, flags, mode);
}

DIR* opendir(const char* path) {
  static auto* const real = Real<DIR*(const char*)>("opendir");
  return Fails() ? nullptr : real(path);
}

int close(int fd) {
  static auto* const real = Real<int(int)>("close");
  const bool fails = Fails();
  const int code = errno;
  const int result = real(fd);
  if (!fails) return result;
  errno = code;
  return -1;
}

ssize_t pread(int fd, void* out, size_t count, off_t offset) {
  static auto* const real = Real<ssize_t(int, void*, size_t, off_t)>("pread");
  const ssize_t allowed = Allowed(CallKind::kRead, count);
  return allowed < 0 ? -1 : real(fd, out, static_cast<size_t>(allowed), offset);
}

ssize_t pwrite(int fd, const void* bytes, size_t count, off_t offset) {
  static auto* const real = Real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  const ssize_t allowed = Allowed(CallKind::kWrite, count);
  return allowed < 0 ? -1 : real(fd, bytes, static_cast<size_t>(allowed), offset);
}

int fsync(int fd) {
  static auto* const real = Real<int(int)>("fsync");
  return Fails() ? -1 : real(fd);
}

int ftruncate(int fd, off_t size) noexcept {
  static auto* const real = Real<int(int, off_t)>("ftruncate");
  return Fails() ? -1 : real(fd, size);
}

int fallocate(int fd, int mode, off_t offset, off_t length) {
  static auto* const real = Real<int(int, int, off_t, off_t)>("fallocate");
  return Fails() ? -1 : real(fd, mode, offset, length);
}

int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept {
  static auto* const real = Real<int(int, const char*, int, const char*, unsigned)>("renameat2");
  return Fails() ? -1 : real(from_dir, from, to_dir, to, flags);
}

int flock(int fd, int operation) noexcept {
  static auto* const real = Real<int(int, int)>("flock");
  return Fails() ? -1 : real(fd, operation);
}

void* mmap(void* at, size_t length, int protection, int flags, int fd, off_t offset) noexcept {
  static auto* const real = Real<void*(void*, size_t, int, int, int, off_t)>("mmap");
  // Memory of the allocator's is not a file.
  if (fd >= 0 && Fails()) return MAP_FAILED;
  return real(at, length, protection, flags, fd, offset);
}

int mkdir(const char* path, mode_t mode) noexcept {
  static auto* const real = Real<int(const char*, mode_t)>("mkdir");
  return Fails() ? -1 : real(path, mode);
}

int rmdir(const char* path) noexcept {
  static auto* const real = Real<int(const char*)>("rmdir");
  return Fails() ? -1 : real(path);
}

int unlink(const char* path) noexcept {
  static auto* const real = Real<int(const char*)>("unlink");
  return Fails() ? -1 : real(path);
}

int stat(const char* path, struct stat* info) noexcept {
  static auto* const real = Real<int(const char*, struct stat*)>("stat");
  return Fails() ? -1 : real(path, info);
}

int lstat(const char* path, struct stat* info) noexcept {
  static auto* const real = Real<int(const char*, struct stat*)>("lstat");
  return Fails() ? -1 : real(path, info);
}

int fstat(int fd, struct stat* info) noexcept {
  static auto* const real = Real<int(int, struct stat*)>("fstat");
  return Fails() ? -1 : real(fd, info);
}

int stat64(const char* path, struct stat64* info) noexcept {
  static auto* const real = Real<int(const char*, struct stat64*)>("stat64");
  return Fails() ? -1 : real(path, info);
}

int lstat64(const char* path, struct stat64* info) noexcept {
  static auto* const real = Real<int(const char*, struct stat64*)>("lstat64");
  return Fails() ? -1 : real(path, info);
}

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
