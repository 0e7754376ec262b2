// Finds the files and blocks of a checkpoint that differ from its manifest.
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
  // Called with the bytes read since the last call, from any thread.
  std::function<void(std::uint64_t bytes)> on_progress = {};
  // Files whose size alone is compared, because their reader checks the blocks (checked_storage.h).
  std::function<bool(std::string_view file)> leaves_blocks = {};
  // Treats a block that the storage cannot read as lost, instead of as an error.
  bool unreadable_is_damage = false;
  std::stop_token stop = {};  // ends the work early with kCancelled
};

// A block that does not hold the bytes that were written.
struct DamagedBlock {
  std::size_t file = 0;  // position in Manifest::files
  std::uint64_t block = 0;
  // The checksum of what lies there. Nothing if the file is missing or ends before the block does.
  std::optional<std::uint32_t> crc32c = {};
  // The one bit whose flip explains both checksums, counted from the start of the file. Arbitrary
  // wrong bytes look like a flipped bit with a chance of 2^-41.
  std::optional<FlippedBit> flip = {};

  friend bool operator==(const DamagedBlock&, const DamagedBlock&) = default;
};

// A file that is missing or has another size.
struct DamagedFile {
  std::size_t file = 0;                          // position in Manifest::files
  std::optional<std::uint64_t> size_bytes = {};  // nothing: it is missing

  friend bool operator==(const DamagedFile&, const DamagedFile&) = default;
};

// The state of the tracker, which lies outside the checkpoint. Training that continues rewrites it,
// and a copy of the checkpoint alone lacks it. Neither affects what the manifest proves.
enum class TrackerState : std::uint8_t { kAsWritten, kMissing, kRewritten };

// The same for any number of threads. Blocks of the tracker are listed only if its text is no
// longer a tracker's; its state is then kAsWritten.
struct Damage {
  std::vector<DamagedFile> files = {};    // sorted
  std::vector<DamagedBlock> blocks = {};  // sorted by file and block, missing files included
  TrackerState tracker = TrackerState::kAsWritten;
  std::vector<std::string> leftovers = {};  // files that the manifest does not know, sorted
};

// Compares one whole block, `bytes`, whose CRC-32C is `crc32c`. Nothing if it is as written. If the
// manifest has no CRC-32, no flipped bit is named.
[[nodiscard]] std::optional<DamagedBlock> CompareBlock(const Manifest& manifest, std::size_t file,
                                                       std::uint64_t block, std::uint32_t crc32c,
                                                       ByteSpan bytes);

// `root` says which file outside the directory the manifest may name, and what a rewritten tracker
// may contain.
//
// Errors: kIo and other errors of reading, which do not mean that the bytes are wrong; kBadMetadata
// (the manifest names another file outside the directory); kSystem (no memory); kCancelled.
// Cost: reads everything once; memory for one block per thread.
Result<Damage> FindDamage(Storage& storage, const Path& directory, const Manifest& manifest,
                          const RunRoot& root, const VerifyOptions& options = {});

// Where a block of a file of `size_bytes` begins, and how long it is.
struct BlockExtent {
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};
[[nodiscard]] BlockExtent ExtentOfBlock(std::uint64_t block, std::uint64_t size_bytes);

}  // namespace ckpt

#endif  // CKPT_CORE_MANIFEST_FIND_DAMAGE_H_
