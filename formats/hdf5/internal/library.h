// The HDF5 C library, reading structures through a Storage's files.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_H_
#define CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/mutex.h"
#include "core/base/result.h"
#include "core/io/storage.h"

namespace ckpt::hdf5 {

// What the library calls hid_t.
using LibraryId = std::int64_t;

// An identifier of the library, closed with this object.
class Handle {
 public:
  Handle() = default;
  explicit Handle(LibraryId id) : id_(id) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, kNone)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Handle();

  [[nodiscard]] bool ok() const { return id_ >= 0; }
  [[nodiscard]] LibraryId id() const { return id_; }

 private:
  static constexpr LibraryId kNone = -1;

  LibraryId id_ = kNone;
};

// The right to call the library, which serves one thread at a time. It prints nothing and loads no
// plugins.
class LibraryLock {
 public:
  LibraryLock();

 private:
  MutexLock lock_;
};

// What the library says about the call that just failed. REQUIRES: a LibraryLock is held.
Status LibraryError(std::string_view message);

// A file that the library reads through our own ReadableFile, so from any Storage. What
// the library opens by itself (external files, sources of virtual data sets) it cannot read so: ask
// it about structures alone.
// REQUIRES: a LibraryLock is held as long as the object lives.
class LibraryFile {
 public:
  // Errors: kBadMetadata (the library refuses it), those of reading.
  static Result<std::unique_ptr<LibraryFile>> Open(std::shared_ptr<const ReadableFile> file);

  [[nodiscard]] LibraryId id() const { return id_.id(); }
  [[nodiscard]] const std::string& name() const { return file_->name(); }
  // Why a call on this file failed.
  [[nodiscard]] Status Fail(std::string_view message) const;

  // For the driver that the library calls.
  bool Read(std::uint64_t at, std::size_t size, void* out) noexcept;
  [[nodiscard]] std::uint64_t size_bytes() const { return file_->size_bytes(); }

 private:
  explicit LibraryFile(std::shared_ptr<const ReadableFile> file) : file_(std::move(file)) {}

  std::shared_ptr<const ReadableFile> file_;
  Status read_error_;
  Handle id_;
};

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_LIBRARY_H_
