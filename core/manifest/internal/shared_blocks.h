// SharedBlocks: checked blocks in memory, for all threads that read parts of them.
#ifndef CKPT_CORE_MANIFEST_INTERNAL_SHARED_BLOCKS_H_
#define CKPT_CORE_MANIFEST_INTERNAL_SHARED_BLOCKS_H_

#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/mutex.h"
#include "core/base/result.h"

namespace ckpt {

// A block has one checksum, so whoever needs a part of it must read all of it first. The rest is
// kept here: a reader usually continues in the block where it stopped, one that fuses tensors
// (queries, keys and values) reads several places in turn, and the ranks of a run whose rows meet
// in a block read one part each. The block that was used longest ago makes room for another one:
// first among those of which as many bytes were taken as they have. Some of these are kept, too,
// because readers of headers take bytes that are taken once more.
//
// Thread-safe.
class SharedBlocks {
 public:
  // How many are kept at most. Besides, every thread may read one.
  static constexpr std::size_t kMaxBlocks = 32;
  // So many are kept although all of their bytes were taken.
  static constexpr std::size_t kFewBlocks = 8;

  struct Name {
    std::uint64_t file = 0;
    std::uint64_t block = 0;
    friend auto operator<=>(const Name&, const Name&) = default;
  };
  // How to get a block that is not here.
  struct Source {
    std::uint64_t size_bytes = 0;  // of the block, at most kManifestBlockBytes
    // Whether the block was checked before. Then a part of it can be read alone.
    std::function<bool()> is_checked;
    // Reads the block and checks it.
    std::function<Status(MutableByteSpan whole)> read;
  };

  // Copies bytes of a block, from `skipped_bytes` on, to `out`. If the block is not here, it is
  // read; threads that need it meanwhile wait for it. Returns false if it is not here and was
  // checked before: then nothing is copied. Errors: those of `source.read`; if it throws, kSystem
  // (no memory) or kInternal. Threads that waited for a read that failed read the block themselves.
  Result<bool> CopyPart(const Name& name, const Source& source, std::uint64_t skipped_bytes,
                        MutableByteSpan out) CKPT_EXCLUDES(mutex_);

 private:
  struct Block {
    Name name;
    bool is_here = false;          // else a thread is reading it, or nothing is in it
    int users = 0;                 // threads that read it or copy from it now
    std::uint64_t left_bytes = 0;  // that nobody has taken
    std::unique_ptr<std::byte[]> bytes;
  };

  // Null if nobody has read the block or is reading it.
  [[nodiscard]] Block* Find(const Name& name) CKPT_REQUIRES(mutex_);
  // Room for a block that the caller will read.
  [[nodiscard]] Block& Reserve(const Name& name) CKPT_REQUIRES(mutex_);

  Mutex mutex_;
  std::condition_variable was_read_;  // or could not be read
  // The one that was used last comes first.
  std::vector<std::unique_ptr<Block>> blocks_ CKPT_GUARDED_BY(mutex_);
};

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_INTERNAL_SHARED_BLOCKS_H_
