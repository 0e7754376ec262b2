// Writes the mended copy that a RepairPlan promises.
#ifndef CKPT_CORE_REPAIR_WRITE_MENDED_H_
#define CKPT_CORE_REPAIR_WRITE_MENDED_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"
#include "core/repair/repair_plan.h"

namespace ckpt {

// Where the right bytes came from.
enum class MendSource : std::uint8_t {
  kBit,       // one bit was flipped back
  kParity,    // from the other files of the group
  kManifest,  // it says how long the file was
  kCopy,      // the manifest's copy, or the manifest of its copy
};

struct MendedPlace {
  std::string file;
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;  // 1 for a bit; 0 for what was too much
  MendSource source = MendSource::kBit;
  int bit = 0;  // of kBit

  friend bool operator==(const MendedPlace&, const MendedPlace&) = default;
};

struct WriteMendedOptions {
  int threads = 1;
  ProgressSink* progress = nullptr;  // may be null
  std::stop_token stop = {};
};

// Copies every file of `manifest` but the tracker from `from` to `to`, mended as `plan` says, and
// makes the files durable. `to` exists and has none of them. Returns what was mended, in order of file
// and place; neighbouring blocks that parity gave are one place.
//
// Every block, mended or not, is compared with its checksums before it is written.
//
// Errors: kChecksum, kTruncated (what was read is not what the plan was made for, or the parity does not
// fit), kNoSpace, kIo, kCancelled.
// Cost: reads everything once, and of the groups of damaged blocks these blocks once more. Memory is
// three blocks a thread.
Result<std::vector<MendedPlace>> WriteMended(Storage& storage, const Path& from,
                                             const Manifest& manifest, const RepairPlan& plan,
                                             const Path& to,
                                             const WriteMendedOptions& options = {});

}  // namespace ckpt

#endif  // CKPT_CORE_REPAIR_WRITE_MENDED_H_
