// A file read past the page cache: large ranges that are read once.
#ifndef CKPT_CORE_IO_INTERNAL_DIRECT_FILE_H_
#define CKPT_CORE_IO_INTERNAL_DIRECT_FILE_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>

#include "core/base/bytes.h"

namespace ckpt {

// A second descriptor of an open file. Where the file system does not read so, nothing is read, and
// the caller reads through the page cache. The two agree: the system sees to it.
//
// Thread-safety: all methods may run concurrently.
class DirectFile {
 public:
  // For shorter ranges it does not pay.
  static constexpr std::uint64_t kMinBytes = 512 << 10;

  // Read at a time. Two threads fill a disk with requests of this size, and a cache holds it.
  static constexpr std::uint64_t kReadBytes = 1 << 20;

  // `fd` stays open as long as this.
  explicit DirectFile(int fd) : fd_(fd) {}
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;
  ~DirectFile();

  // Whether most of what one call of ReadSome would read is in the page cache. True, too, where the
  // system does not tell.
  [[nodiscard]] bool IsCached(std::uint64_t offset, std::uint64_t size_bytes);
  // Reads bytes of the range, which may begin and end anywhere in the file, at most some from its
  // beginning. Returns how many: 0 if the caller must read them, because this cannot be done here;
  // -1 and errno if the system reports an error.
  ssize_t ReadSome(std::uint64_t offset, MutableByteSpan out);

 private:
  // -1 if there is none.
  int descriptor();
  // False once it is known that nothing is read here.
  [[nodiscard]] bool is_usable() const { return is_usable_.load(std::memory_order_relaxed); }
  // Whether the error says that the file system cannot do it. Then it is not asked again.
  bool GivesUp(int code);

  const int fd_;
  std::once_flag opened_;
  std::atomic<int> direct_ = -1;
  std::atomic<bool> is_usable_ = true;  // a hint: no other memory depends on it
};

}  // namespace ckpt

#endif  // CKPT_CORE_IO_INTERNAL_DIRECT_FILE_H_
