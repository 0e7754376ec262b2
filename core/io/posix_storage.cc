#include "core/io/posix_storage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <utility>

#include <boost/filesystem/directory.hpp>
#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/io/internal/direct_file.h"

namespace ckpt {
namespace {

namespace fs = boost::filesystem;

// Whether to repeat the call. A signal may interrupt any call. Regular files transfer without
// waiting, but file systems in user space return whatever their servers say.
bool IsInterruption(int code) { return code == EINTR; }
bool IsPause(int code) { return code == EINTR || code == EAGAIN; }

// Attempts in a row without progress, after which the error is reported: trying again does not help
// then.
constexpr int kMaxAttempts = 100;

// Repeats `call` while it is interrupted and returns its result, which is negative and sets errno
// on failure. It is safe for fsync: an interrupted fsync has reported no failure.
template <typename Call>
auto Uninterrupted(const Call& call) {
  auto result = call();
  for (int attempt = 1; result < 0 && IsInterruption(errno) && attempt < kMaxAttempts; ++attempt) {
    result = call();
  }
  return result;
}

// The same for functions of Boost, which may be called again from the start.
template <typename Call>
boost::system::error_code UninterruptedByCode(const Call& call) {
  boost::system::error_code error;
  call(error);
  for (int attempt = 1; IsInterruption(error.value()) && attempt < kMaxAttempts; ++attempt) {
    error.clear();
    call(error);
  }
  return error;
}

// A file descriptor that closes itself; `Close` reports, the destructor does not.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  [[nodiscard]] int get() const { return fd_; }
  // An interrupted close did close the descriptor: Linux frees the number first.
  int Close() {
    const int result = ::close(std::exchange(fd_, -1));
    return result != 0 && IsInterruption(errno) ? 0 : result;
  }

 private:
  int fd_;
};

Descriptor OpenDescriptor(const Path& path, int flags) {
  return Descriptor(Uninterrupted([&] { return ::open(path.c_str(), flags | O_CLOEXEC, 0666); }));
}

bool StatDescriptor(const Descriptor& fd, struct stat& info) {
  return Uninterrupted([&] { return ::fstat(fd.get(), &info); }) == 0;
}

int RenameAt(const Path& from, const Path& to, unsigned flags) {
  return Uninterrupted(
      [&] { return ::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags); });
}

// Whether the file system does not support this flag of rename.
bool LacksFlag(int code) { return code == EINVAL || code == ENOSYS; }

// Written by one call. A file lets one call write at a time, so that short ones keep threads busy,
// and the page cache finds small pieces of memory at once.
constexpr std::size_t kWrittenBytes = 256 << 10;

// Read by one call from the page cache, of what is looked at next: the cache of a core, which two
// threads may share, holds it.
constexpr std::size_t kSeenBytes = 256 << 10;

class PosixView final : public FileView {
 public:
  PosixView(void* base, std::size_t size) : base_(base), size_(size) {}
  PosixView(const PosixView&) = delete;
  PosixView& operator=(const PosixView&) = delete;
  ~PosixView() override {
    if (size_ != 0) ::munmap(base_, size_);
  }
  [[nodiscard]] ByteSpan bytes() const override {
    return {static_cast<const std::byte*>(base_), size_};
  }
  void DropBefore(std::uint64_t offset) const override {
    const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    const std::uint64_t length = std::min<std::uint64_t>(offset, size_) / page * page;
    // File pages are clean, so dropping them loses nothing: a later access reads them again.
    if (length != 0) ::madvise(base_, length, MADV_DONTNEED);
  }

 private:
  void* base_;
  std::size_t size_;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(Descriptor fd, std::uint64_t size, std::string name)
      : fd_(std::move(fd)), direct_(fd_.get()), size_(size), name_(std::move(name)) {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return size_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    return Read(offset, out, DirectFile::kReadBytes, [](ByteSpan /*piece*/) { return OkStatus(); });
  }
  Status ReadInPieces(std::uint64_t offset, MutableByteSpan out,
                      const std::function<Status(ByteSpan)>& seen) const override {
    return Read(offset, out, kSeenBytes, seen);
  }

  Result<std::unique_ptr<FileView>> View() const override {
    if (size_ == 0) return std::unique_ptr<FileView>(std::make_unique<PosixView>(nullptr, 0));
    void* base = nullptr;
    const auto map = [&] {
      base = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_.get(), 0);
      return base == MAP_FAILED ? -1 : 0;
    };
    if (Uninterrupted(map) != 0) return ErrnoError(errno, "mmap", name_);
    ::madvise(base, size_, MADV_SEQUENTIAL);
    return std::unique_ptr<FileView>(std::make_unique<PosixView>(base, size_));
  }

 private:
  // Shows `seen` what each call brought; one that reads from the page cache, at most `most_bytes`.
  template <typename Seen>
  Status Read(std::uint64_t offset, MutableByteSpan out, std::size_t most_bytes,
              const Seen& seen) const {
    if (!RangeFits(offset, out.size(), size_)) {
      return Error(ErrorKind::kTruncated, "read past the end of the file")
          .File(DescribeRange(name_, offset, out.size()))
          .Actual(fmt::format("{} bytes", size_));
    }
    std::uint64_t cached_until = offset;
    for (int attempts = 0; !out.empty();) {
      const ssize_t n = ReadSome(offset, out, most_bytes, cached_until);
      if (n < 0 && IsPause(errno) && ++attempts < kMaxAttempts) continue;
      if (n < 0) return ErrnoError(errno, "read", name_);
      if (n == 0) {
        return Error(ErrorKind::kTruncated, "the file became shorter while it was read")
            .File(DescribeRange(name_, offset, out.size()));
      }
      attempts = 0;
      CKPT_RETURN_IF_ERROR(seen(ByteSpan(out.first(static_cast<std::size_t>(n)))));
      out = out.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
    return OkStatus();
  }

  // Large ranges come from the page cache if they are there. Otherwise they are read past it: the
  // system reads them faster so, and keeps what it has in memory. `cached_until`: where the answer
  // ends that what lies at `offset` is there.
  ssize_t ReadSome(std::uint64_t offset, MutableByteSpan out, std::size_t most_bytes,
                   std::uint64_t& cached_until) const {
    if (offset >= cached_until && out.size() >= DirectFile::kMinBytes) {
      if (direct_.IsCached(offset, out.size())) {
        cached_until = offset + DirectFile::kReadBytes;
      } else {
        // Else small reads between these would fill the page cache ahead of them.
        if (reads_ahead_.exchange(false)) ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_RANDOM);
        const ssize_t direct = direct_.ReadSome(offset, out);
        if (direct != 0) return direct;
      }
    }
    const std::size_t size = std::min(out.size(), most_bytes);
    return ::pread(fd_.get(), out.data(), size, static_cast<off_t>(offset));
  }

  Descriptor fd_;
  mutable DirectFile direct_;
  mutable std::atomic<bool> reads_ahead_ = true;
  std::uint64_t size_;
  std::string name_;
};

// Network file systems may lack locks on directories: NFS requires a descriptor open for writing.
bool CannotLock(int code) {
  return code == EBADF || code == EINVAL || code == ENOLCK || code == ENOSYS || code == EOPNOTSUPP;
}

// 0, or the system's error number. EWOULDBLOCK: another process holds the lock.
int TryLock(const Descriptor& fd) {
  return Uninterrupted([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) == 0 ? 0 : errno;
}

Status HeldByAnother(std::string_view what, const std::string& name) {
  return Error(ErrorKind::kAlreadyExists, fmt::format("another run is writing this {}", what))
      .File(name)
      .Hint("wait until it ends, or choose another name");
}

// Whether the name still leads to what was opened under it. Another process may have renamed or
// removed it meanwhile; a lock on the descriptor then keeps nobody from the name.
Result<bool> StillHasName(const Descriptor& fd, const std::string& name) {
  struct stat opened {};
  if (!StatDescriptor(fd, opened)) return ErrnoError(errno, "stat", name);
  struct stat named {};
  if (Uninterrupted([&] { return ::lstat(name.c_str(), &named); }) != 0) {
    if (errno == ENOENT) return false;
    return ErrnoError(errno, "stat", name);
  }
  return opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(Descriptor fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  [[nodiscard]] const std::string& name() const override { return name_; }

  Status WriteAt(std::uint64_t offset, ByteSpan bytes) override {
    for (int attempts = 0; !bytes.empty();) {
      const std::size_t size = std::min(bytes.size(), kWrittenBytes);
      const ssize_t n = ::pwrite(fd_.get(), bytes.data(), size, static_cast<off_t>(offset));
      const int code = n < 0 ? errno : EIO;
      if (n <= 0) {
        if ((n == 0 || IsPause(code)) && ++attempts < kMaxAttempts) continue;
        return ErrnoError(code, "write", name_);
      }
      attempts = 0;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
    return OkStatus();
  }

  Status Resize(std::uint64_t size_bytes) override {
    const auto size = static_cast<off_t>(size_bytes);
    if (Uninterrupted([&] { return ::ftruncate(fd_.get(), size); }) != 0) {
      return ErrnoError(errno, "resize", name_);
    }
    // Reserving space finds a full disk before hours of work; file systems that cannot reserve say
    // so. posix_fallocate is not used: its emulation reads the file, which is open for writing
    // only.
    if (size_bytes == 0) return OkStatus();
    const int result = Uninterrupted([&] { return ::fallocate(fd_.get(), 0, 0, size); });
    const int code = result == 0 ? 0 : errno;
    const bool cannot_reserve = code == EOPNOTSUPP || code == ENOSYS || code == EINVAL;
    if (code != 0 && !cannot_reserve) return ErrnoError(code, "reserve space", name_);
    return OkStatus();
  }

  void StartWriteback(std::uint64_t offset, std::uint64_t length) override {
    ::sync_file_range(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(length),
                      SYNC_FILE_RANGE_WRITE);
  }

  Status Sync() override {
    if (Uninterrupted([&] { return ::fsync(fd_.get()); }) != 0) {
      return ErrnoError(errno, "fsync", name_);
    }
    return OkStatus();
  }

  Status Lock() override {
    const int code = TryLock(fd_);
    if (code == EWOULDBLOCK) return HeldByAnother("file", name_);
    if (code != 0 && !CannotLock(code)) return ErrnoError(code, "lock", name_);
    CKPT_ASSIGN_OR_RETURN(const bool is_named, StillHasName(fd_, name_));
    return is_named ? OkStatus() : ErrnoError(ENOENT, "lock", name_);
  }

  Status Close() override {
    if (fd_.Close() != 0) return ErrnoError(errno, "close", name_);
    return OkStatus();
  }

 private:
  Descriptor fd_;
  std::string name_;
};

class PosixDirectoryLock final : public DirectoryLock {
 public:
  explicit PosixDirectoryLock(Descriptor fd) : fd_(std::move(fd)) {}

 private:
  Descriptor fd_;  // closing it releases the lock
};

FileType TypeOf(mode_t mode) {
  if (S_ISREG(mode)) return FileType::kRegular;
  return S_ISDIR(mode) ? FileType::kDirectory : FileType::kOther;
}

// A checkpoint may have more files than the soft limit, which is low because of select().
void RaiseOpenFileLimit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

class PosixStorageImpl final : public Storage {
 public:
  PosixStorageImpl() { RaiseOpenFileLimit(); }

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    // O_NONBLOCK: opening a FIFO must fail below, not wait for its other end.
    Descriptor fd = OpenDescriptor(path, O_RDONLY | O_NONBLOCK);
    if (fd.get() < 0) return ErrnoError(errno, "open", path.string());
    struct stat info {};
    if (!StatDescriptor(fd, info)) return ErrnoError(errno, "stat", path.string());
    if (!S_ISREG(info.st_mode)) {
      return Error(ErrorKind::kIo, "not a regular file").File(path.string());
    }
    return std::shared_ptr<const ReadableFile>(std::make_shared<PosixReadableFile>(
        std::move(fd), static_cast<std::uint64_t>(info.st_size), path.string()));
  }

  Result<std::unique_ptr<WritableFile>> Create(const Path& path) override {
    return OpenWritable(path, O_WRONLY | O_CREAT | O_EXCL, "create");
  }

  Result<std::unique_ptr<WritableFile>> OpenForUpdate(const Path& path) override {
    return OpenWritable(path, O_WRONLY, "open for writing");
  }

  Result<FileStat> Stat(const Path& path) override {
    struct stat info {};
    if (Uninterrupted([&] { return ::stat(path.c_str(), &info); }) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) return FileStat{};
      return ErrnoError(errno, "stat", path.string());
    }
    return FileStat{
        .type = TypeOf(info.st_mode),
        .size_bytes = static_cast<std::uint64_t>(info.st_size),
        .modified_ns = std::int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec,
        .mode = static_cast<std::uint32_t>(info.st_mode & 07777)};
  }

  Result<std::vector<DirectoryEntry>> List(const Path& directory) override {
    std::vector<DirectoryEntry> entries;
    const auto list = [&](boost::system::error_code& error) {
      entries.clear();
      fs::directory_iterator it(directory, error);
      for (; !error && it != fs::directory_iterator(); it.increment(error)) {
        boost::system::error_code ignored;  // an entry that vanished is not a link
        entries.push_back({.name = it->path().filename().string(),
                           .is_link = fs::is_symlink(it->symlink_status(ignored))});
      }
    };
    if (const auto error = UninterruptedByCode(list)) {
      return ErrnoError(error.value(), "list", directory.string());
    }
    for (DirectoryEntry& entry : entries) {
      CKPT_ASSIGN_OR_RETURN(const FileStat stat, Stat(directory / entry.name));
      entry.type = stat.type;
    }
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }

  Status MakeDirectories(const Path& directory) override {
    const auto create = [&](auto& code) { fs::create_directories(directory, code); };
    if (const auto error = UninterruptedByCode(create))
      return ErrnoError(error.value(), "create directory", directory.string());
    return OkStatus();
  }

  Status Rename(const Path& from, const Path& to) override {
    if (RenameAt(from, to, RENAME_NOREPLACE) == 0) return OkStatus();
    // Network file systems lack the flag, so look first. Even so, a directory never replaces a file
    // or a non-empty directory.
    const int code = errno;
    struct stat info {};
    if (LacksFlag(code) && ::lstat(to.c_str(), &info) != 0 && errno == ENOENT) {
      return RenameWith(from, to, 0, "rename to");
    }
    return ErrnoError(LacksFlag(code) ? EEXIST : code, "rename to " + to.string(), from.string());
  }

  Status Exchange(const Path& a, const Path& b) override {
    if (RenameAt(a, b, RENAME_EXCHANGE) == 0) return OkStatus();
    // Network file systems lack the flag. Replacing one file with another still works.
    const int code = errno;
    if (LacksFlag(code) && IsFile(a) && IsFile(b)) return RenameWith(a, b, 0, "rename to");
    return ErrnoError(code, "exchange with " + b.string(), a.string());
  }

  Status RemoveAll(const Path& path) override {
    const auto remove = [&](auto& code) { fs::remove_all(path, code); };
    if (const auto error = UninterruptedByCode(remove))
      return ErrnoError(error.value(), "remove", path.string());
    return OkStatus();
  }

  Status RemoveEmptyDirectory(const Path& directory) override {
    if (Uninterrupted([&] { return ::rmdir(directory.c_str()); }) == 0) return OkStatus();
    const int code = errno == ENOTEMPTY ? EEXIST : errno;
    return ErrnoError(code, "remove directory", directory.string());
  }

  Result<std::unique_ptr<DirectoryLock>> Lock(const Path& directory) override {
    while (true) {
      Descriptor fd = OpenDescriptor(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
      if (fd.get() < 0 && (errno == ENOTDIR || errno == ELOOP)) {
        CKPT_ASSIGN_OR_RETURN(const FileStat stat, Stat(directory));
        if (stat.type == FileType::kOther) {
          return Error(ErrorKind::kAlreadyExists, "a device or a pipe has the directory's name")
              .File(directory.string())
              .Hint("choose another name");
        }
        return Error(ErrorKind::kAlreadyExists, "a link or a file has the directory's name")
            .File(directory.string())
            .Hint("remove it yourself if it is not needed");
      }
      if (fd.get() < 0) return ErrnoError(errno, "open directory", directory.string());
      const int code = TryLock(fd);
      if (code == EWOULDBLOCK) return HeldByAnother("target", directory.string());
      if (code != 0 && !CannotLock(code)) return ErrnoError(code, "lock", directory.string());
      // The process that held the lock last may have renamed or removed it between the two calls.
      CKPT_ASSIGN_OR_RETURN(const bool is_named, StillHasName(fd, directory.string()));
      if (!is_named) continue;
      return std::unique_ptr<DirectoryLock>(std::make_unique<PosixDirectoryLock>(std::move(fd)));
    }
  }

  Status SyncDirectory(const Path& directory) override {
    const Path& target = directory.empty() ? Path(".") : directory;
    const Descriptor fd = OpenDescriptor(target, O_RDONLY | O_DIRECTORY);
    if (fd.get() < 0) return ErrnoError(errno, "open directory", target.string());
    if (Uninterrupted([&] { return ::fsync(fd.get()); }) != 0) {
      return ErrnoError(errno, "fsync directory", target.string());
    }
    return OkStatus();
  }

 private:
  static Result<std::unique_ptr<WritableFile>> OpenWritable(const Path& path, int flags,
                                                            std::string_view verb) {
    // O_NONBLOCK: opening a FIFO must fail, not wait for a reader.
    Descriptor fd = OpenDescriptor(path, flags | O_NOFOLLOW | O_NONBLOCK);
    if (fd.get() < 0) return ErrnoError(errno, verb, path.string());
    struct stat info {};
    if (!StatDescriptor(fd, info)) return ErrnoError(errno, "stat", path.string());
    if (!S_ISREG(info.st_mode)) {
      return Error(ErrorKind::kIo, "not a regular file").File(path.string());
    }
    return std::unique_ptr<WritableFile>(
        std::make_unique<PosixWritableFile>(std::move(fd), path.string()));
  }

  static bool IsFile(const Path& path) {
    struct stat info {};
    return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  }

  static Status RenameWith(const Path& from, const Path& to, unsigned flags,
                           std::string_view verb) {
    if (RenameAt(from, to, flags) != 0) {
      return ErrnoError(errno, std::string(verb) + " " + to.string(), from.string());
    }
    return OkStatus();
  }
};

}  // namespace

Storage& PosixStorage() {
  static PosixStorageImpl storage;
  return storage;
}

}  // namespace ckpt
