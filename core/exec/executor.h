// The executor carries out a plan within a byte budget. It knows nothing about formats or models.
#ifndef CKPT_CORE_EXEC_EXECUTOR_H_
#define CKPT_CORE_EXEC_EXECUTOR_H_

#include <cstdint>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/exec/plan_share.h"
#include "core/exec/progress.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

struct WorkerPart {
  std::vector<bool> tensors;  // parallel to the plan's
  Path journal;               // below the target's directory
};

struct ExecuteOptions {
  // Upper limit for the buffers of all threads together.
  std::uint64_t memory_budget_bytes = std::uint64_t{1} << 30;
  int threads = 1;
  // Resume from the journal that an interrupted run of the same plan left in the directory.
  bool resume = false;
  // The part that this process writes; other processes write the rest. Nothing: all. If set, a file
  // that this process creates must not exist yet, nothing is journaled, side files are written with
  // the first file, and a tensor that is only partly written here has no digest. The checksums of a
  // file that others fill as well count their bytes as zeros. Not for plans with late bytes.
  std::optional<PlanShare> share = {};
  // The tensors that this process writes, and its own journal; other processes write the rest of
  // the same files, and nothing else: literals, late bytes and side files are left to the run that
  // resumes from the journals of all. A journal that is there already is resumed. Of a compressed
  // plan, no other process may write into the same files. Nothing: all.
  std::optional<WorkerPart> worker = {};
  // Read every tensor back while further ones are written, and compare it, and what its format puts
  // around it, with what was written; the rest of the files at the end. Tensors are read so only if
  // nothing is compressed or resumed, and nothing at all where other processes share the files.
  bool reads_back = false;
  // Tensors of the plan (positions) of which someone reads every element when all is written: of
  // these, only what is around the elements is read back.
  std::set<std::size_t> read_later = {};
  // Tensors of the source (positions in its index) whose bytes are best read in order, because
  // someone digests them. One thread then writes what begins with elements of one of them, tensor
  // after tensor.
  std::set<std::uint32_t> read_in_order = {};
  ProgressSink* progress = nullptr;    // may be null
  std::string_view phase = "convert";  // the phase that progress reports
  std::stop_token stop = {};
};

struct ExecuteResult {
  std::vector<ManifestFile> files;  // in plan order, then side files
  // Hex, parallel to the plan's tensors. An entry may be empty: see `share`.
  std::vector<std::string> tensor_xxh3;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::uint64_t cast_overflows = 0;  // finite values that a narrowing cast made infinite
  std::size_t resumed_tensors = 0;   // already finished according to the journal
  bool is_read_back = false;  // all tensors but `read_later`: their items hold what was written
  std::set<std::size_t> read_later = {};  // as asked for, if so
};

// Writes every file of `plan` below `directory`, which exists, and syncs each. Leaves
// `kJournalName` there: the caller removes it before publishing.
//
// A tensor is the unit of work. One thread writes its items front to back in windows, so that one
// pass gives the digest and the zip checksum as well. Tensors run in parallel, in as many threads
// as the budget lets read most of the source once, though it is transposed. Compressed tensors
// follow each other, and the threads encode blocks of them. Finished tensors are journaled. When
// resuming, a journaled tensor is skipped if the bytes on disk still have the recorded checksums.
//
// REQUIRES: CheckPlan(plan, source.index()) was OK.
// Errors: those of CheckpointSource::Locate, kNoSpace, kIo, kCancelled, kValueMismatch (a tensor
// that was read back is not what was written). Files written so far stay, so that a later run can
// resume.
Result<ExecuteResult> Execute(const ConversionPlan& plan, const CheckpointSource& source,
                              Storage& storage, const Path& directory,
                              const ExecuteOptions& options);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_EXECUTOR_H_
