// Which files and blocks of a checkpoint are not what its manifest says.
#ifndef CKPT_CORE_MANIFEST_FIND_DAMAGE_H_
#define CKPT_CORE_MANIFEST_FIND_DAMAGE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/crc32c_flip.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"
#include "core/manifest/run_root.h"

namespace ckpt {

struct VerifyOptions {
  int threads = 1;
  // Called with the bytes read since the last call; from any thread.
  std::function<void(std::uint64_t bytes)> on_progress = {};
  // Files of which only the size is compared, as whoever reads them checks their blocks
  // (checked_storage.h).
  std::function<bool(std::string_view file)> leaves_blocks = {};
  // A block that the storage cannot read is as if it were not there, rather than an error.
  bool unreadable_is_damage = false;
  // The convention of the directory around: what a rewritten tracker may say. Null: only what was written.
  const RunRoot* root = nullptr;
  std::stop_token stop = {};  // ends the work early with kCancelled
};

// A block that does not hold the bytes that were written.
struct DamagedBlock {
  std::size_t file = 0;  // position in Manifest::files
  std::uint64_t block = 0;
  // Of what lies there; nothing if nothing does: the file ends before the block does, or is missing.
  std::optional<std::uint32_t> crc32c = {};
  // The one bit whose flip explains both checksums, counted from the start of the file. Bytes that are
  // wrong altogether look like one with a chance of 2^-41.
  std::optional<FlippedBit> flip = {};

  friend bool operator==(const DamagedBlock&, const DamagedBlock&) = default;
};

// A file that is missing or has another size.
struct DamagedFile {
  std::size_t file = 0;                          // position in Manifest::files
  std::optional<std::uint64_t> size_bytes = {};  // nothing: it is missing

  friend bool operator==(const DamagedFile&, const DamagedFile&) = default;
};

// What has become of the tracker, which lies outside the checkpoint: training that goes on
// rewrites it, a copy of the checkpoint alone lacks it. Neither touches what the manifest proves.
enum class TrackerState : std::uint8_t { kAsWritten, kMissing, kRewritten };

// The same whatever the number of threads. Blocks of the tracker are listed only if it is no tracker
// any more, in which case its state is kAsWritten.
struct Damage {
  std::vector<DamagedFile> files = {};    // in order
  std::vector<DamagedBlock> blocks = {};  // in order of file and block; those of missing files, too
  TrackerState tracker = TrackerState::kAsWritten;
  std::vector<std::string> leftovers = {};  // files that the manifest does not know, in order
};

// Compares one whole block, `bytes` of CRC-32C `crc32c`; nothing if it is as it was written. Where the
// manifest has no CRC-32, no bit is named.
[[nodiscard]] std::optional<DamagedBlock> CompareBlock(const Manifest& manifest, std::size_t file,
                                                       std::uint64_t block, std::uint32_t crc32c,
                                                       ByteSpan bytes);

// Errors: kIo and others of reading, which say nothing about the bytes; kCancelled.
// Cost: reads everything once; memory is one block a thread.
Result<Damage> FindDamage(Storage& storage, const Path& directory, const Manifest& manifest,
                          const VerifyOptions& options = {});

// Where a block begins, and its length, in a file of `size_bytes`.
struct BlockExtent {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};
[[nodiscard]] BlockExtent ExtentOfBlock(std::uint64_t block, std::uint64_t size_bytes);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_FIND_DAMAGE_H_
