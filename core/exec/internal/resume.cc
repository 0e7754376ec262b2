#include "core/exec/internal/resume.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/bytes.h"
#include "core/io/checksummed_read.h"
#include "core/manifest/manifest.h"
#include "core/plan/plan_check.h"

namespace ckpt {
namespace {

// Removes files that the plan does not have: side files that the source had when the interrupted
// run began.
Status RemoveForeignFiles(Storage& storage, const Path& directory, const WritePlan& plan) {
  std::set<std::string_view> own = {kJournalName};
  for (const WriteFile& file : plan.files) own.insert(file.name);
  for (const WriteCopy& copy : plan.copies) own.insert(copy.name);
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListRecursively(storage, directory));
  for (const std::string& name : names) {
    if (!own.contains(name)) CKPT_RETURN_IF_ERROR(storage.RemoveAll(directory / name));
  }
  return OkStatus();
}

}  // namespace

Result<OpenedJournal> OpenJournal(Storage& storage, const Path& directory,
                                  const ConversionPlan& plan, const ExecuteOptions& options) {
  const std::string plan_hash = HashPlan(plan);
  OpenedJournal opened;
  if (options.worker) {
    const Path own = directory / options.worker->journal;
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(own));
    const bool is_new = stat.type == FileType::kMissing;
    CKPT_ASSIGN_OR_RETURN(opened.journal,
                          is_new ? Journal::Create(storage, own, plan_hash)
                                 : Journal::Resume(storage, own, plan_hash, opened.records));
    return opened;
  }
  const Path path = directory / kJournalName;
  if (options.resume) {
    Result<std::unique_ptr<Journal>> journal =
        Journal::Resume(storage, path, plan_hash, opened.records);
    if (journal.ok()) {
      opened.journal = std::move(journal).value();
      CKPT_RETURN_IF_ERROR(RemoveForeignFiles(storage, directory, plan.write));
      return opened;
    }
    if (journal.status().kind() != ErrorKind::kNotFound) return std::move(journal).status();
    CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> leftovers, storage.List(directory));
    for (const DirectoryEntry& entry : leftovers) {
      CKPT_RETURN_IF_ERROR(storage.RemoveAll(directory / entry.name));
    }
  }
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(path));
  CKPT_ASSIGN_OR_RETURN(opened.journal, Journal::Create(storage, path, plan_hash));
  return opened;
}

Result<std::optional<PiecesByFile>> FindRecorded(Storage& storage, const Path& directory,
                                                 const WritePlan& plan,
                                                 const JournalRecord& record) {
  PiecesByFile pieces;
  Bytes block;
  std::optional<std::uint32_t> opened;
  std::shared_ptr<const ReadableFile> file;
  for (const auto& [file_id, piece] : record.pieces) {
    // A piece lies within a block: no run wrote a longer one.
    if (file_id >= plan.files.size() || piece.length_bytes > kManifestBlockBytes) {
      return std::optional<PiecesByFile>();
    }
    if (opened != file_id) {
      CKPT_ASSIGN_OR_RETURN(file, storage.Open(directory / plan.files[file_id].name));
      opened = file_id;
    }
    block.resize(piece.length_bytes);
    const Result<std::uint32_t> crc32c = ReadAtWithCrc32c(*file, piece.offset_bytes, block);
    if (!crc32c.ok() || *crc32c != piece.crc32c) return std::optional<PiecesByFile>();
    pieces[file_id].push_back(piece);
  }
  return std::optional(std::move(pieces));
}

}  // namespace ckpt
