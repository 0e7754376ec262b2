// Parity files: a parity file and all but one file of its group are enough to rebuild that one
// file.
#ifndef CKPT_CORE_REPAIR_PARITY_H_
#define CKPT_CORE_REPAIR_PARITY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <stop_token>
#include <vector>

#include "core/base/result.h"
#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"

namespace ckpt {

struct ParityOptions {
  // How many files share a parity file, at most. A smaller group can repair more damage and takes
  // more space: about one part in `group_size`.
  std::size_t group_size = 1;
  // For all threads together; each gets at least two blocks.
  std::uint64_t memory_budget_bytes = std::uint64_t{1} << 30;
  int threads = 1;
  ProgressSink* progress = nullptr;  // may be null
  std::stop_token stop = {};
};

struct WrittenParity {
  std::vector<ManifestFile> files;  // one per group
  std::vector<ParityGroup> groups;
};

// How many parity files WriteParity makes for this many files. The tracker does not count.
[[nodiscard]] std::size_t CountParityFiles(std::size_t num_files, std::size_t group_size);

// Which files share a parity file. Files of similar size share one, since it is as long as the
// longest of them; files of equal size are grouped in order of their names. Every file except
// the tracker is in a group: later saves rewrite the tracker, and it can be restored from
// the name of its directory.
[[nodiscard]] std::vector<ParityGroup> GroupForParity(std::span<const ManifestFile> files,
                                                      std::size_t group_size);

// Writes the parity files of `files` into `directory`, which holds them, and makes them durable.
// Every block is compared with its checksum before it is used, so that damage never becomes parity.
// The same files give the same bytes, whatever the threads and the budget.
//
// Errors: kChecksum, kTruncated (a file is not what `files` says), kAlreadyExists (a parity file
// exists already), kNoSpace, kIo, kCancelled.
// Cost: reads everything once; writes the longest file of each group.
Result<WrittenParity> WriteParity(Storage& storage, const Path& directory,
                                  std::span<const ManifestFile> files,
                                  const ParityOptions& options);

}  // namespace ckpt

#endif  // CKPT_CORE_REPAIR_PARITY_H_
