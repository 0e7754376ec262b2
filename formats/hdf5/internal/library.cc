#include "formats/hdf5/internal/library.h"

#include <cstdint>
#include <limits>
#include <new>
#include <string_view>
#include <type_traits>

#include <fmt/format.h>
#include <hdf5.h>

#include "core/base/bytes.h"
#include "core/base/thrown.h"

namespace ckpt::hdf5 {
namespace {

Mutex& LibraryMutex() {
  static Mutex mutex;
  return mutex;
}

// The library is C: nothing that it calls may throw.

// What the library keeps of a file that our driver opened. It begins with the library's own part.
struct DriverFile {
  H5FD_t of_library;
  LibraryFile* file;
  haddr_t end;  // of what the library uses
};

DriverFile* Ours(H5FD_t* file) { return reinterpret_cast<DriverFile*>(file); }
const DriverFile* Ours(const H5FD_t* file) { return reinterpret_cast<const DriverFile*>(file); }

H5FD_t* DriverOpen(const char* /*name*/, unsigned /*flags*/, hid_t access, haddr_t /*max*/) {
  const auto* const file = static_cast<LibraryFile* const*>(H5Pget_driver_info(access));
  if (file == nullptr) return nullptr;
  auto* const ours = new (std::nothrow) DriverFile{.of_library = {}, .file = *file, .end = 0};
  return ours == nullptr ? nullptr : &ours->of_library;
}

herr_t DriverClose(H5FD_t* file) {
  delete Ours(file);
  return 0;
}

haddr_t DriverEnd(const H5FD_t* file, H5FD_mem_t /*type*/) { return Ours(file)->end; }

herr_t DriverSetEnd(H5FD_t* file, H5FD_mem_t /*type*/, haddr_t end) {
  Ours(file)->end = end;
  return 0;
}

haddr_t DriverEndOfFile(const H5FD_t* file, H5FD_mem_t /*type*/) {
  return Ours(file)->file->size_bytes();
}

herr_t DriverRead(H5FD_t* file, H5FD_mem_t /*type*/, hid_t /*transfer*/, haddr_t at, size_t size,
                  void* out) {
  return Ours(file)->file->Read(at, size, out) ? 0 : -1;
}

herr_t DriverWrite(H5FD_t* /*file*/, H5FD_mem_t /*type*/, hid_t /*transfer*/, haddr_t /*at*/,
                   size_t /*size*/, const void* /*bytes*/) {
  return -1;
}

// REQUIRES: a LibraryLock is held.
hid_t OurDriver() {
  static const hid_t kDriver = [] {
    H5FD_class_t driver = {};
    driver.name = "ckptkit";
    driver.maxaddr = std::numeric_limits<std::int64_t>::max();
    driver.fc_degree = H5F_CLOSE_STRONG;
    driver.fapl_size = sizeof(LibraryFile*);
    driver.open = &DriverOpen;
    driver.close = &DriverClose;
    driver.get_eoa = &DriverEnd;
    driver.set_eoa = &DriverSetEnd;
    driver.get_eof = &DriverEndOfFile;
    driver.read = &DriverRead;
    driver.write = &DriverWrite;
    return H5FDregister(&driver);
  }();
  return kDriver;
}

// The deepest call that failed says why.
herr_t TakeDeepest(unsigned position, const H5E_error2_t* error, void* text) {
  if (position != 0) return 0;
  const Status taken = StatusOfCall([&] {
    *static_cast<std::string*>(text) = fmt::format("{}: {}", error->func_name, error->desc);
    return OkStatus();
  });
  return taken.ok() ? 0 : -1;
}

}  // namespace

static_assert(std::is_same_v<LibraryId, hid_t>);

Handle::~Handle() {
  if (ok()) H5Idec_ref(id_);
}

LibraryLock::LibraryLock() : lock_(LibraryMutex()) {
  H5open();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  H5PLset_loading_state(0);
}

Status LibraryError(std::string_view message) {
  std::string reason;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, &TakeDeepest, &reason);
  H5Eclear2(H5E_DEFAULT);
  return Error(ErrorKind::kBadMetadata, message).Actual(reason);
}

Result<std::unique_ptr<LibraryFile>> LibraryFile::Open(std::shared_ptr<const ReadableFile> file) {
  std::unique_ptr<LibraryFile> opened(new LibraryFile(std::move(file)));
  LibraryFile* const info = opened.get();
  const Handle access(H5Pcreate(H5P_FILE_ACCESS));
  if (!access.ok() || H5Pset_driver(access.id(), OurDriver(), &info) < 0) {
    return opened->Fail("the HDF5 library does not take our files");
  }
  opened->id_ = Handle(H5Fopen(opened->name().c_str(), H5F_ACC_RDONLY, access.id()));
  if (!opened->id_.ok()) return opened->Fail("the HDF5 library does not open the file");
  return opened;
}

Status LibraryFile::Fail(std::string_view message) const {
  Status why = LibraryError(message).File(name());
  return read_error_.ok() ? why : read_error_;
}

bool LibraryFile::Read(std::uint64_t at, std::size_t size, void* out) noexcept {
  Status status = StatusOfCall(
      [&] { return file_->ReadAt(at, MutableByteSpan(static_cast<std::byte*>(out), size)); });
  if (status.ok()) return true;
  if (read_error_.ok()) read_error_ = std::move(status);
  return false;
}

}  // namespace ckpt::hdf5
