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

// Memory is handed out in order and taken back in reverse order. Only one queue uses it, so
// rewinding needs no wait: later work of the queue overwrites the memory only after earlier work is
// done with it.
//
// A step that needs no more than an earlier one finds all its memory in one slab and allocates
// nothing. A step that outgrows the slab gets additional chunks, and the next Consolidate replaces
// all of them by one slab. Let D be the most bytes ever handed out at once. Then the arena holds at
// most
//
//   2·D + chunk_bytes                  at any time,
//   max(17/16·D + 256, chunk_bytes)    after Consolidate,
//
// or what was reserved, if that is more.
//
// Contents of a new tensor are undefined.
class Arena {
 public:
  struct Mark {
    std::size_t chunk = 0;
    std::uint64_t offset_bytes = 0;
    std::uint64_t handed_out_bytes = 0;
  };

  // Grows by chunks of at least `chunk_bytes`. `queue` is the queue that uses the memory. Both
  // outlive the arena. Synchronise the queue before destroying the arena.
  Arena(Device& device, Queue& queue, std::uint64_t chunk_bytes);

  // Aligned to 256 bytes. If the device is out of memory, the queue fails with kSystem, and the
  // tensor must not be accessed: the queue skips all work on it.
  Tensor Allocate(DType dtype, std::initializer_list<std::int64_t> dims);

  [[nodiscard]] Mark Position() const { return position_; }
  // Takes back everything allocated since `mark`.
  void Rewind(const Mark& mark);

  // Makes one slab of this size, so that a step that needs no more allocates nothing. 0: none.
  // REQUIRES: nothing was allocated yet. Errors: kSystem (out of memory).
  Status Reserve(std::uint64_t size_bytes);

  // Call it between steps: replaces the chunks by one slab that is large enough for the largest
  // step so far. Waits for the queue if it replaces anything.
  //
  // REQUIRES: everything was taken back. Errors: kSystem (out of memory), the queue's.
  Status Consolidate();

  // The most that was handed out at once.
  [[nodiscard]] std::uint64_t peak_bytes() const { return peak_bytes_; }

 private:
  // Moves the position to a chunk with `size_bytes` left.
  Status FindRoom(std::uint64_t size_bytes);
  // Replaces the unused chunks, from `first` on, by one.
  Status ReplaceUnused(std::size_t first, std::uint64_t size_bytes);
  Status AddChunk(std::uint64_t size_bytes);

  Device& device_;
  Queue& queue_;
  const std::uint64_t chunk_bytes_;
  // Chunks before the position's are in use, those after it are not.
  std::vector<Buffer> chunks_;
  Mark position_;
  std::uint64_t peak_bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
};

// Rewinds an arena, at the end of a scope, to where it was at the start.
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
