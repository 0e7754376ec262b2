// Parity files: from them and the rest of its group, any one file of a checkpoint can be rebuilt.
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
  // Files that share a parity file, at most. The smaller, the more damage can be mended, and the more
  // space it takes: about one part in `group_size`.
  std::size_t group_size = 1;
  std::uint64_t memory_budget_bytes = std::uint64_t{1}
                                      << 30;  // of all threads; two blocks each at least
  int threads = 1;
  ProgressSink* progress = nullptr;  // may be null
  std::stop_token stop = {};
};

struct WrittenParity {
  std::vector<ManifestFile> files;  // one a group
  std::vector<ParityGroup> groups;
};

// How many parity files WriteParity makes of this many files. The tracker is not counted.
[[nodiscard]] std::size_t CountParityFiles(std::size_t num_files, std::size_t group_size);

// Who shares a parity file: files of like size, since it is as long as the longest of them; those of
// equal size in order of their names. Every file is in a group but the tracker, which later
// saves rewrite and which its directory's name restores.
[[nodiscard]] std::vector<ParityGroup> GroupForParity(std::span<const ManifestFile> files,
                                                      std::size_t group_size);

// Writes the parity files of `files` into `directory`, where they lie, and makes them durable. Every
// block read is compared with its checksum first, so that damage never becomes parity. The same files
// give the same bytes, whatever threads and budget.
//
// Errors: kChecksum, kTruncated (a file is not what `files` says), kAlreadyExists (a parity file is
// there), kNoSpace, kIo, kCancelled.
// Cost: reads everything once; writes the longest file of each group.
Result<WrittenParity> WriteParity(Storage& storage, const Path& directory,
                                  std::span<const ManifestFile> files,
                                  const ParityOptions& options);

}  // namespace ckpt

#endif  // CKPT_CORE_REPAIR_PARITY_H_
