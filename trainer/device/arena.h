// Arena: stack-like device memory for activations.
#ifndef CKPT_TRAINER_DEVICE_ARENA_H_
#define CKPT_TRAINER_DEVICE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "core/base/status.h"
#include "trainer/device/device.h"
#include "trainer/device/queue.h"

namespace ckpt::trainer {

// Memory is handed out in order and taken back in reverse. All of it is used by one queue, so that
// rewinding needs no wait: later work on the queue overwrites what earlier work has done with.
//
// A step that needs no more than an earlier one finds all its memory in one slab and allocates
// nothing. A step that outgrows the slab gets chunks beside it, and the next Consolidate makes one
// slab again. With D the most that was ever handed out at once, the arena holds at most
//
//   2·D + chunk_bytes                  at any time,
//   max(17/16·D + 256, chunk_bytes)    behind Consolidate.
//
// Contents of a new tensor are undefined.
class Arena {
 public:
  struct Mark {
    std::size_t chunk = 0;
    std::uint64_t offset_bytes = 0;
    std::uint64_t handed_out_bytes = 0;
  };

  // Grows by chunks of at least `chunk_bytes`. `queue` is the one that uses the memory. Both outlive
  // the arena, and whoever destroys it has synchronised the queue.
  Arena(Device& device, Queue& queue, std::uint64_t chunk_bytes);

  // Aligned to 256 bytes. If the device has no memory left, the queue fails with an error that says
  // so (kSystem), and the tensor is one that nothing may touch: the queue skips all work on it.
  Tensor Allocate(DType dtype, std::initializer_list<std::int64_t> dims);

  [[nodiscard]] Mark Position() const { return position_; }
  // Takes back everything allocated since `mark`.
  void Rewind(const Mark& mark);

  // Between steps: one slab for what the largest step so far needed. Waits for the queue if there is
  // anything to do.
  //
  // REQUIRES: everything was taken back. Errors: kSystem (out of memory), those of the queue.
  Status Consolidate();

  // The most that was handed out at once.
  [[nodiscard]] std::uint64_t peak_bytes() const { return peak_bytes_; }

 private:
  // Moves to a chunk with `size_bytes` left.
  Status FindRoom(std::uint64_t size_bytes);
  // One chunk in place of the unused ones from `first` on.
  Status ReplaceUnused(std::size_t first, std::uint64_t size_bytes);
  Status AddChunk(std::uint64_t size_bytes);

  Device& device_;
  Queue& queue_;
  const std::uint64_t chunk_bytes_;
  std::vector<Buffer> chunks_;  // those before the position's are in use, those behind it are not
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
