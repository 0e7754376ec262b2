#include "core/io/internal/direct_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

namespace ckpt {
namespace {

// Ranges in files and memory must begin and end at a multiple of the disk's block: 512 bytes or
// 4 KiB.
constexpr std::uint64_t kBlockBytes = 4096;
// The system call cachestat, newer than the C library, and what it takes and gives.
constexpr long kCacheStat = 451;
struct CacheRange {
  std::uint64_t offset;
  std::uint64_t size_bytes;
};
struct CacheCounts {
  std::uint64_t pages;
  std::uint64_t others[4];  // dirty, under way to the disk, evicted, evicted recently
};

struct Freed {
  void operator()(std::byte* memory) const { std::free(memory); }
};

// A thread's memory that begins at a block; null if there is none.
std::byte* PieceOfThisThread() {
  thread_local const std::unique_ptr<std::byte, Freed> piece(
      static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, DirectFile::kReadBytes)));
  return piece.get();
}

std::uint64_t RoundedDown(std::uint64_t offset) { return offset / kBlockBytes * kBlockBytes; }

}  // namespace

DirectFile::~DirectFile() {
  if (direct_ >= 0) ::close(direct_);
}

int DirectFile::descriptor() {
  std::call_once(opened_, [&] {
    // By its number, since the name may lead to another file by now.
    const std::string path = "/proc/self/fd/" + std::to_string(fd_);
    direct_ = ::open(path.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (direct_ < 0) is_usable_ = false;
  });
  return is_usable() ? direct_.load() : -1;
}

bool DirectFile::GivesUp(int code) {
  const bool cannot = code == EINVAL || code == EOPNOTSUPP || code == ENOSYS;
  if (cannot) is_usable_ = false;
  return cannot;
}

bool DirectFile::IsCached(std::uint64_t offset, std::uint64_t size_bytes) {
  const CacheRange range = {offset, std::min(size_bytes, kReadBytes)};
  CacheCounts counts = {};
  const bool is_told = is_usable() && ::syscall(kCacheStat, fd_, &range, &counts, 0) == 0;
  return !is_told || counts.pages > range.size_bytes / kBlockBytes / 2;
}

ssize_t DirectFile::ReadSome(std::uint64_t offset, MutableByteSpan out) {
  std::byte* const piece = PieceOfThisThread();
  if (out.empty() || piece == nullptr || descriptor() < 0) return 0;
  const std::uint64_t begin = RoundedDown(offset);
  const std::uint64_t skipped = offset - begin;
  // Ends at a block, so that no block is read twice; the file may end before.
  const std::uint64_t size =
      std::min(RoundedDown(skipped + out.size() + kBlockBytes - 1), kReadBytes);
  const ssize_t got = ::pread(descriptor(), piece, size, static_cast<off_t>(begin));
  if (got < 0) return GivesUp(errno) ? 0 : got;
  if (static_cast<std::uint64_t>(got) <= skipped) return 0;
  const std::uint64_t count =
      std::min<std::uint64_t>(static_cast<std::uint64_t>(got) - skipped, out.size());
  std::memcpy(out.data(), piece + skipped, count);
  return static_cast<ssize_t>(count);
}

}  // namespace ckpt
