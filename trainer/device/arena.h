// Arena: stack-like device memory for activations.
#ifndef CKPT_TRAINER_DEVICE_ARENA_H_
#define CKPT_TRAINER_DEVICE_ARENA_H_

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "trainer/device/device.h"

namespace ckpt::trainer {

// Memory is handed out in order and taken back in reverse. All of it is used by one queue, so that
// rewinding needs no wait: later work on the queue overwrites what earlier work has done with.
//
// Contents of a new tensor are undefined.
class Arena {
 public:
  struct Mark {
    std::size_t chunk = 0;
    std::uint64_t offset_bytes = 0;
  };

  // Grows by chunks of at least `chunk_bytes`; memory stays with the arena until it is destroyed.
  Arena(Device& device, std::uint64_t chunk_bytes) : device_(device), chunk_bytes_(chunk_bytes) {}

  // Aligned to 256 bytes. Out of memory aborts: activations of a step are known beforehand.
  Tensor Allocate(DType dtype, std::initializer_list<std::int64_t> dims);

  [[nodiscard]] Mark Position() const { return position_; }
  // Takes back everything allocated since `mark`.
  void Rewind(const Mark& mark);

  [[nodiscard]] std::uint64_t peak_bytes() const { return peak_bytes_; }

 private:
  void AddChunk(std::uint64_t size_bytes);

  Device& device_;
  const std::uint64_t chunk_bytes_;
  std::vector<Buffer> chunks_;
  std::vector<std::uint64_t> chunk_starts_;  // bytes in the chunks before
  Mark position_;
  std::uint64_t peak_bytes_ = 0;
};

// Rewinds an arena to where it was, at the end of a scope.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.Position()) {}
  ~ArenaScope() { arena_.Rewind(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  const Arena::Mark mark_;
};

}  // namespace ckpt::trainer

#endif  // CKPT_TRAINER_DEVICE_ARENA_H_
