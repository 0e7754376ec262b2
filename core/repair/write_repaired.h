// Writes the repaired copy that a RepairPlan describes.
#ifndef CKPT_CORE_REPAIR_WRITE_REPAIRED_H_
#define CKPT_CORE_REPAIR_WRITE_REPAIRED_H_

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"
#include "core/repair/repair_plan.h"

namespace ckpt {

// The source of the right bytes.
enum class RepairSource : std::uint8_t {
  kBit,       // one bit was flipped back
  kParity,    // from the other files of the group
  kManifest,  // the length that it records for the file
  kCopy,      // the manifest's copy, or the manifest of its copy
};

struct RepairedPlace {
  std::string file;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;  // 1 for a bit; 0 for bytes that were removed
  RepairSource source = RepairSource::kBit;
  int bit = 0;  // only for kBit

  friend bool operator==(const RepairedPlace&, const RepairedPlace&) = default;
};

struct WriteRepairedOptions {
  int threads = 1;
  ProgressSink* progress = nullptr;  // may be null
  std::stop_token stop = {};
};

// Copies every file of `manifest` except the tracker from `from` to `to`, repaired as `plan`
// says, and makes the files durable. `to` exists and holds none of these files. Returns what was
// repaired, sorted by file and place; neighbouring blocks from parity are one place.
//
// Every block, repaired or not, is compared with its checksums before it is written.
//
// Errors: kChecksum, kTruncated (the plan was made for other bytes, or the parity does not fit),
// kNoSpace, kIo, kCancelled.
// Cost: reads everything once, and the blocks of the group again for each damaged block. Memory is
// three blocks per thread.
Result<std::vector<RepairedPlace>> WriteRepaired(Storage& storage, const Path& from,
                                                 const Manifest& manifest, const RepairPlan& plan,
                                                 const Path& to,
                                                 const WriteRepairedOptions& options = {});

}  // namespace ckpt

#endif  // CKPT_CORE_REPAIR_WRITE_REPAIRED_H_
