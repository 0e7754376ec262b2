#include "core/io/posix_storage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include <boost/filesystem/directory.hpp>
#include <boost/filesystem/operations.hpp>
#include <fmt/format.h>

#include "core/base/checked_math.h"

namespace ckpt {
namespace {

namespace fs = boost::filesystem;

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
  int Close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

// The kernel moves at most 0x7ffff000 bytes a call.
constexpr std::size_t kMaxTransfer = std::size_t{1} << 30;

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
      : fd_(std::move(fd)), size_(size), name_(std::move(name)) {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return size_; }
  [[nodiscard]] const std::string& name() const override { return name_; }

  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    if (!RangeFits(offset, out.size(), size_)) {
      return Error(ErrorKind::kTruncated, "read past the end of the file")
          .File(DescribeRange(name_, offset, out.size()))
          .Actual(fmt::format("{} bytes", size_));
    }
    while (!out.empty()) {
      const ssize_t n = ::pread(fd_.get(), out.data(), std::min(out.size(), kMaxTransfer),
                                static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoError(errno, "read", name_);
      if (n == 0) {
        return Error(ErrorKind::kTruncated, "the file became shorter while it was read")
            .File(DescribeRange(name_, offset, out.size()));
      }
      out = out.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
    return OkStatus();
  }

  Result<std::unique_ptr<FileView>> View() const override {
    if (size_ == 0) return std::unique_ptr<FileView>(std::make_unique<PosixView>(nullptr, 0));
    void* base = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_.get(), 0);
    if (base == MAP_FAILED) return ErrnoError(errno, "mmap", name_);
    ::madvise(base, size_, MADV_SEQUENTIAL);
    return std::unique_ptr<FileView>(std::make_unique<PosixView>(base, size_));
  }

 private:
  Descriptor fd_;
  std::uint64_t size_;
  std::string name_;
};

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(Descriptor fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  [[nodiscard]] const std::string& name() const override { return name_; }

  Status WriteAt(std::uint64_t offset, ByteSpan bytes) override {
    while (!bytes.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), bytes.data(), std::min(bytes.size(), kMaxTransfer),
                                 static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return ErrnoError(errno, "write", name_);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
      offset += static_cast<std::uint64_t>(n);
    }
    return OkStatus();
  }

  Status Resize(std::uint64_t size_bytes) override {
    if (::ftruncate(fd_.get(), static_cast<off_t>(size_bytes)) != 0) {
      return ErrnoError(errno, "resize", name_);
    }
    // Reserving finds a full disk before hours of work; file systems that cannot reserve say so.
    // Not posix_fallocate: its emulation reads the file, which is open for writing only.
    if (size_bytes == 0) return OkStatus();
    int code = 0;
    do {
      code = ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size_bytes)) == 0 ? 0 : errno;
    } while (code == EINTR);
    const bool cannot_reserve = code == EOPNOTSUPP || code == ENOSYS || code == EINVAL;
    if (code != 0 && !cannot_reserve) return ErrnoError(code, "reserve space", name_);
    return OkStatus();
  }

  void StartWriteback(std::uint64_t offset, std::uint64_t length) override {
    ::sync_file_range(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(length),
                      SYNC_FILE_RANGE_WRITE);
  }

  Status Sync() override {
    if (::fsync(fd_.get()) != 0) return ErrnoError(errno, "fsync", name_);
    return OkStatus();
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
  Descriptor fd_;  // closing it gives the lock back
};

// Network file systems may lack locks on directories: NFS wants a descriptor open for writing.
bool CannotLock(int code) {
  return code == EBADF || code == EINVAL || code == ENOLCK || code == ENOSYS || code == EOPNOTSUPP;
}

bool IsSameFile(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

FileType TypeOf(mode_t mode) {
  if (S_ISREG(mode)) return FileType::kRegular;
  return S_ISDIR(mode) ? FileType::kDirectory : FileType::kOther;
}

// A checkpoint may have more files than the soft limit, which is low for the sake of select().
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
    Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (fd.get() < 0) return ErrnoError(errno, "open", path.string());
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return ErrnoError(errno, "stat", path.string());
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
    if (::stat(path.c_str(), &info) != 0) {
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
    boost::system::error_code error;
    fs::directory_iterator it(directory, error);
    for (; !error && it != fs::directory_iterator(); it.increment(error)) {
      CKPT_ASSIGN_OR_RETURN(const FileStat stat, Stat(it->path()));
      boost::system::error_code ignored;  // an entry that vanished is no link
      entries.push_back({.name = it->path().filename().string(),
                         .type = stat.type,
                         .is_link = fs::is_symlink(it->symlink_status(ignored))});
    }
    if (error) return ErrnoError(error.value(), "list", directory.string());
    std::sort(entries.begin(), entries.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });
    return entries;
  }

  Status MakeDirectories(const Path& directory) override {
    boost::system::error_code error;
    fs::create_directories(directory, error);
    if (error) return ErrnoError(error.value(), "create directory", directory.string());
    return OkStatus();
  }

  Status Rename(const Path& from, const Path& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) {
      return OkStatus();
    }
    // Network file systems lack the flag. Then look first; a directory still never replaces a file
    // or a directory with something in it.
    const int code = errno;
    struct stat info {};
    const bool lacks_flag = code == EINVAL || code == ENOSYS;
    if (lacks_flag && ::lstat(to.c_str(), &info) != 0 && errno == ENOENT) {
      return RenameWith(from, to, 0, "rename to");
    }
    return ErrnoError(lacks_flag ? EEXIST : code, "rename to " + to.string(), from.string());
  }

  Status Exchange(const Path& a, const Path& b) override {
    return RenameWith(a, b, RENAME_EXCHANGE, "exchange with");
  }

  Status RemoveAll(const Path& path) override {
    boost::system::error_code error;
    fs::remove_all(path, error);
    if (error) return ErrnoError(error.value(), "remove", path.string());
    return OkStatus();
  }

  Result<std::unique_ptr<DirectoryLock>> Lock(const Path& directory) override {
    while (true) {
      Descriptor fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (fd.get() < 0 && (errno == ENOTDIR || errno == ELOOP)) {
        return Error(ErrorKind::kAlreadyExists, "a link or a file is in the directory's place")
            .File(directory.string())
            .Hint("remove it yourself if it is not needed");
      }
      if (fd.get() < 0) return ErrnoError(errno, "open directory", directory.string());
      int code = 0;
      do {
        code = ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
      } while (code == EINTR);
      if (code == EWOULDBLOCK) {
        return Error(ErrorKind::kAlreadyExists, "another run is writing this target")
            .File(directory.string())
            .Hint("wait for its end, or choose another name");
      }
      if (code != 0 && !CannotLock(code)) return ErrnoError(code, "lock", directory.string());
      struct stat locked {};
      if (::fstat(fd.get(), &locked) != 0) return ErrnoError(errno, "stat", directory.string());
      // Its last holder may have renamed or removed it between the two calls.
      struct stat named {};
      if (::lstat(directory.c_str(), &named) != 0 || !IsSameFile(locked, named)) continue;
      return std::unique_ptr<DirectoryLock>(std::make_unique<PosixDirectoryLock>(std::move(fd)));
    }
  }

  Status SyncDirectory(const Path& directory) override {
    const Path& target = directory.empty() ? Path(".") : directory;
    Descriptor fd(::open(target.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (fd.get() < 0) return ErrnoError(errno, "open directory", target.string());
    if (::fsync(fd.get()) != 0) return ErrnoError(errno, "fsync directory", target.string());
    return OkStatus();
  }

 private:
  static Result<std::unique_ptr<WritableFile>> OpenWritable(const Path& path, int flags,
                                                            std::string_view verb) {
    // O_NONBLOCK: a FIFO in the file's place must fail, not wait for a reader.
    Descriptor fd(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (fd.get() < 0) return ErrnoError(errno, verb, path.string());
    struct stat info {};
    if (::fstat(fd.get(), &info) != 0) return ErrnoError(errno, "stat", path.string());
    if (!S_ISREG(info.st_mode)) {
      return Error(ErrorKind::kIo, "not a regular file").File(path.string());
    }
    return std::unique_ptr<WritableFile>(
        std::make_unique<PosixWritableFile>(std::move(fd), path.string()));
  }

  static Status RenameWith(const Path& from, const Path& to, unsigned flags,
                           std::string_view verb) {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), flags) != 0) {
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
