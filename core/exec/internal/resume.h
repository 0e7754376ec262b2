// What a run takes over from an earlier one of the same plan that was interrupted.
#ifndef CKPT_CORE_EXEC_INTERNAL_RESUME_H_
#define CKPT_CORE_EXEC_INTERNAL_RESUME_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/checkpoint/write_plan.h"
#include "core/exec/block_checksums.h"
#include "core/exec/executor.h"
#include "core/exec/internal/journal.h"
#include "core/io/storage.h"
#include "core/plan/conversion_plan.h"

namespace ckpt {

struct OpenedJournal {
  std::unique_ptr<Journal> journal;
  std::vector<JournalRecord> records;  // that it has already
};

// The journal of a run that does not share its plan. If the options say so, continues the one that
// is there. What another plan left is removed: its bytes would show in the gaps between items, and
// its other files would be published. Errors: those of Journal and Storage.
Result<OpenedJournal> OpenJournal(Storage& storage, const Path& directory,
                                  const ConversionPlan& plan, const ExecuteOptions& options);

// Checksummed pieces by the position of their file in the plan.
using PiecesByFile = std::map<std::uint32_t, std::vector<ChecksumPiece>>;

// The pieces of a record, if the bytes on disk are the recorded ones; else nothing: after a power
// failure the journal may have survived without the data. Errors: those of Storage::Open.
Result<std::optional<PiecesByFile>> FindRecorded(Storage& storage, const Path& directory,
                                                 const WritePlan& plan,
                                                 const JournalRecord& record);

}  // namespace ckpt

#endif  // CKPT_CORE_EXEC_INTERNAL_RESUME_H_
