// The operating system behind one interface, so that tests can keep files in memory and make any
// call fail.
#ifndef CKPT_CORE_IO_STORAGE_H_
#define CKPT_CORE_IO_STORAGE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/io/path.h"

namespace ckpt {

// A file's bytes as one contiguous range, valid as long as this object.
//
// If another process truncates a mapped file, access raises SIGBUS. Our own writers never truncate
// a visible file; they rename. Use `ReadAt` where foreign writers may be active.
class FileView {
 public:
  virtual ~FileView() = default;
  [[nodiscard]] virtual ByteSpan bytes() const = 0;
  // Hint: the bytes before `offset` will not be needed soon, so their pages need not stay resident.
  virtual void DropBefore(std::uint64_t offset) const = 0;
};

// An open file of fixed size. Thread-safety: all methods may run concurrently.
class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  [[nodiscard]] virtual std::uint64_t size_bytes() const = 0;
  // The name for messages.
  [[nodiscard]] virtual const std::string& name() const = 0;
  // Whether everything that is read was already compared with a checksum. A second checksum over
  // the same bytes then proves nothing more.
  [[nodiscard]] virtual bool is_checked() const { return false; }

  // Fills `out` from `offset`. Errors: kTruncated (the file ends earlier), kIo.
  virtual Status ReadAt(std::uint64_t offset, MutableByteSpan out) const = 0;
  // The same for a reader that looks at what was read (for its checksum, say): shows `seen` every
  // piece of `out`, in order, while the processor's caches hold it. The kernel copies a long read
  // past them, and whoever looks at it afterwards fetches all of it from memory again. Errors:
  // those of ReadAt, and of `seen`, which end the reading.
  virtual Status ReadInPieces(std::uint64_t offset, MutableByteSpan out,
                              const std::function<Status(ByteSpan)>& seen) const;

  // Errors: kIo.
  [[nodiscard]] virtual Result<std::unique_ptr<FileView>> View() const = 0;
};

// A file that is being written. It is visible under its name from the start, so callers write below
// a staged directory. Thread-safety: `WriteAt` on disjoint ranges may run concurrently.
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  [[nodiscard]] virtual const std::string& name() const = 0;
  // Errors: kNoSpace, kIo. A short write is an error.
  virtual Status WriteAt(std::uint64_t offset, ByteSpan bytes) = 0;
  // Extends (and reserves space) or cuts the file to exactly `size_bytes`. New bytes read as zero.
  virtual Status Resize(std::uint64_t size_bytes) = 0;
  // Hint: start writing [offset, offset + length) to the device, so that `Sync` has less to wait
  // for.
  virtual void StartWriteback(std::uint64_t offset, std::uint64_t length) = 0;
  // Returns when the bytes are durable. An error is final: the file must be discarded.
  virtual Status Sync() = 0;
  // Locks the file against other callers of Lock until it is closed. On file systems without locks
  // everyone gets the lock. Errors: kAlreadyExists (another process holds it), kNotFound (the file
  // was removed or replaced since it was opened, so the lock would protect nothing), kIo.
  virtual Status Lock() = 0;
  virtual Status Close() = 0;
};

enum class FileType : std::uint8_t { kMissing, kRegular, kDirectory, kOther };

struct FileStat {
  FileType type = FileType::kMissing;  // links are followed
  std::uint64_t size_bytes = 0;        // of a regular file
  std::int64_t modified_ns = 0;        // since 1970; 0 where the storage does not know
  std::uint32_t mode = 0644;           // permission bits
};

struct DirectoryEntry {
  std::string name;
  FileType type = FileType::kMissing;  // links are followed
  bool is_link = false;
};

// Locks a directory for its holder until this is destroyed or the process ends.
class DirectoryLock {
 public:
  virtual ~DirectoryLock() = default;
};

// Thread-safety: all methods may run concurrently on distinct paths.
class Storage {
 public:
  virtual ~Storage() = default;

  // Errors: kNotFound, kIo (also for a directory, a device or a FIFO: only regular files are
  // opened).
  [[nodiscard]] virtual Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) = 0;
  // Creates a new file. Errors: kAlreadyExists, kNoSpace, kIo.
  [[nodiscard]] virtual Result<std::unique_ptr<WritableFile>> Create(const Path& path) = 0;
  // Opens an existing file to write more of it. Errors: kNotFound, kIo.
  [[nodiscard]] virtual Result<std::unique_ptr<WritableFile>> OpenForUpdate(const Path& path) = 0;

  // A missing path is not an error: its type is kMissing.
  [[nodiscard]] virtual Result<FileStat> Stat(const Path& path) = 0;
  // Entries sorted by the bytes of their names, without "." and "..".
  [[nodiscard]] virtual Result<std::vector<DirectoryEntry>> List(const Path& directory) = 0;

  // Creates the directory and its parents; one that exists is fine.
  virtual Status MakeDirectories(const Path& directory) = 0;
  // Moves atomically. Errors: kAlreadyExists if `to` exists.
  virtual Status Rename(const Path& from, const Path& to) = 0;
  // Swaps two existing paths atomically. Where the file system cannot do that, a file replaces the
  // other one (`a` no longer exists then), and directories are an error.
  virtual Status Exchange(const Path& a, const Path& b) = 0;
  // Removes a file or a whole directory; a missing path is fine.
  virtual Status RemoveAll(const Path& path) = 0;
  // Removes an empty directory. Errors: kAlreadyExists (it is not empty, and stays), kNotFound,
  // kIo.
  virtual Status RemoveEmptyDirectory(const Path& directory) = 0;
  // Locks an existing directory against other callers of Lock. The lock stays with the directory
  // when it is renamed. On file systems without locks everyone gets the lock.
  // Errors: kAlreadyExists (another process holds it, or the path is a link or not a directory),
  // kNotFound, kIo.
  [[nodiscard]] virtual Result<std::unique_ptr<DirectoryLock>> Lock(const Path& directory) = 0;
  // Makes the directory's entries durable.
  virtual Status SyncDirectory(const Path& directory) = 0;
};

// The whole content of a small file. Errors: kResource if larger than `max_bytes`.
Result<std::string> ReadSmallFile(Storage& storage, const Path& path, std::uint64_t max_bytes);

// Creates `path` with this content and syncs it.
Status WriteSmallFile(Storage& storage, const Path& path, ByteSpan content);

// Gives `path` this content, whether or not it exists. Readers see the old content or the new one,
// and the new one is durable.
Status ReplaceSmallFile(Storage& storage, const Path& path, ByteSpan content);

// Regular files below `directory`, as relative names with '/', sorted by bytes. Links to
// directories are not followed. Errors: kResource if there are more than `max_files`.
Result<std::vector<std::string>> ListRecursively(Storage& storage, const Path& directory,
                                                 std::size_t max_files = 1'000'000);

// "name [offset, +length)".
std::string DescribeRange(std::string_view name, std::uint64_t offset, std::uint64_t length);

// A file held in memory, for decoded items and tests.
std::shared_ptr<const ReadableFile> MakeMemoryFile(std::string name, Bytes content);
// The same over memory that is filled again and again, but never while it is being read. Its size
// stays.
std::shared_ptr<const ReadableFile> MakeMemoryFile(std::string name,
                                                   std::shared_ptr<const Bytes> content);

}  // namespace ckpt

#endif  // CKPT_CORE_IO_STORAGE_H_
