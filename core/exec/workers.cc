#include "core/exec/workers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/name_list.h"
#include "core/base/text_number.h"
#include "core/exec/internal/journal.h"
#include "core/plan/plan_check.h"

namespace ckpt {
namespace {

constexpr std::string_view kPrefix = ".ckptkit-worker-";
constexpr std::string_view kOf = "-of-";
// Far more hosts than anyone has.
constexpr std::int64_t kMaxWorkers = 1 << 16;

std::string DirectoryOf(const WorkerId& worker) {
  return fmt::format("{}{}{}{}", kPrefix, worker.number, kOf, worker.count);
}

std::string NameOf(const WorkerId& worker) {
  return fmt::format("{}/{}", worker.number, worker.count);
}

// Two numbers with `between` them.
std::optional<WorkerId> ParseNumbers(std::string_view text, std::string_view between) {
  const std::optional<std::uint32_t> number = TakeNumber<std::uint32_t>(text);
  if (!number || !TakePrefix(between, text)) return std::nullopt;
  const std::optional<std::uint32_t> count = ParseNumber<std::uint32_t>(text);
  const bool is_one = count && *number < *count && *count <= kMaxWorkers;
  return is_one ? std::optional(WorkerId{.number = *number, .count = *count}) : std::nullopt;
}

std::optional<WorkerId> ParseDirectory(std::string_view name) {
  return TakePrefix(kPrefix, name) ? ParseNumbers(name, kOf) : std::nullopt;
}

// What is in a staging directory, which need not exist.
Result<std::vector<DirectoryEntry>> ListStaging(Storage& storage, const Path& staging) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(staging));
  if (stat.type != FileType::kDirectory) return std::vector<DirectoryEntry>();
  return storage.List(staging);
}

// Those that have a directory, by number.
std::vector<WorkerId> WorkersAmong(const std::vector<DirectoryEntry>& entries) {
  std::vector<WorkerId> workers;
  for (const DirectoryEntry& entry : entries) {
    if (const auto worker = ParseDirectory(entry.name)) workers.push_back(*worker);
  }
  std::ranges::sort(workers, {}, &WorkerId::number);
  return workers;
}

Result<std::vector<WorkerId>> ListWorkers(Storage& storage, const Path& staging) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, ListStaging(storage, staging));
  return WorkersAmong(entries);
}

Path JournalOf(const WorkerId& worker) { return Path(DirectoryOf(worker)) / "journal"; }

// How many of its tensors a journal says that the worker wrote, and how many it has to write.
struct Progress {
  std::size_t written = 0;
  std::size_t all = 0;

  [[nodiscard]] bool is_finished() const { return written == all; }
};

Progress ProgressOf(const std::vector<JournalRecord>& records, const std::vector<bool>& own) {
  std::vector<bool> left = own;
  for (const JournalRecord& record : records) {
    if (record.tensor < left.size()) left[record.tensor] = false;
  }
  const auto all = static_cast<std::size_t>(std::ranges::count(own, true));
  return {.written = all - static_cast<std::size_t>(std::ranges::count(left, true)), .all = all};
}

// The records of a worker's journal; nothing if it did not begin one. Errors: kValueMismatch.
Result<std::optional<std::vector<JournalRecord>>> ReadJournal(Storage& storage, const Path& staging,
                                                              const WorkerId& worker,
                                                              const std::string& plan_hash) {
  const Path path = staging / JournalOf(worker);
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::string> hash, Journal::PlanHashOf(storage, path));
  if (!hash) {
    CKPT_RETURN_IF_ERROR(storage.RemoveAll(path));
    return std::optional<std::vector<JournalRecord>>();
  }
  if (*hash != plan_hash) {
    return Error(ErrorKind::kValueMismatch,
                 fmt::format("worker {} had another source or other options", NameOf(worker)))
        .File(path.string())
        .Hint(fmt::format("all workers, and what completes their work, need the same source and "
                          "options; remove {} to begin again",
                          staging.string()));
  }
  std::vector<JournalRecord> records;
  CKPT_RETURN_IF_ERROR(Journal::Resume(storage, path, plan_hash, records).status());
  return std::optional(std::move(records));
}

// Errors: kMissing (a worker is not there), kBadMetadata (of two numbers of workers).
Status CheckAllAreThere(const std::vector<WorkerId>& workers, const Path& staging) {
  const std::int64_t count = workers.front().count;
  std::vector<bool> is_there(static_cast<std::size_t>(count));
  for (const WorkerId& worker : workers) {
    if (worker.count != count) {
      return Error(ErrorKind::kBadMetadata, "workers of two numbers of workers wrote here")
          .File(staging.string())
          .Actual(fmt::format("{} and {}", NameOf(workers.front()), NameOf(worker)));
    }
    is_there[static_cast<std::size_t>(worker.number)] = true;
  }
  std::vector<std::string> missing;
  for (std::int64_t number = 0; number < count; ++number) {
    if (is_there[static_cast<std::size_t>(number)]) continue;
    missing.push_back(NameOf({.number = number, .count = count}));
  }
  if (missing.empty()) return OkStatus();
  return Error(ErrorKind::kMissing, "some workers have not run")
      .File(staging.string())
      .Expected(fmt::format("{} workers", count))
      .Actual("no " + NameSome(missing));
}

// Whether an earlier call, which was interrupted later, merged the journals of all.
Result<bool> IsMerged(Storage& storage, const Path& staging, const ConversionPlan& plan) {
  const Path path = staging / kJournalName;
  const std::string plan_hash = HashPlan(plan);
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::string> hash, Journal::PlanHashOf(storage, path));
  if (hash != plan_hash) return false;
  std::vector<JournalRecord> records;
  CKPT_RETURN_IF_ERROR(Journal::Resume(storage, path, plan_hash, records).status());
  return ProgressOf(records, TensorsOf(plan.write, {})).is_finished();
}

Status RemoveWorkers(Storage& storage, const Path& staging, const std::vector<WorkerId>& workers) {
  for (const WorkerId& worker : workers) {
    CKPT_RETURN_IF_ERROR(storage.RemoveAll(staging / DirectoryOf(worker)));
  }
  return OkStatus();
}

// What the worker wrote of its tensors, which must be all of them. Errors: those of ReadJournal and
// of Storage::Lock, kIncomplete.
Result<std::vector<JournalRecord>> TakeRecords(Storage& storage, const Path& staging,
                                               const WorkerId& worker, const WritePlan& plan,
                                               const std::string& plan_hash) {
  const Path directory = staging / DirectoryOf(worker);
  Result<std::unique_ptr<DirectoryLock>> lock = storage.Lock(directory);
  if (!lock.ok()) {
    return std::move(lock).status().While(fmt::format("taking over worker {}", NameOf(worker)));
  }
  CKPT_ASSIGN_OR_RETURN(std::optional<std::vector<JournalRecord>> read,
                        ReadJournal(storage, staging, worker, plan_hash));
  std::vector<JournalRecord> records = std::move(read).value_or(std::vector<JournalRecord>());
  const std::vector<bool> own = TensorsOf(plan, worker);
  std::erase_if(records, [&](const JournalRecord& record) {
    return record.tensor >= own.size() || !own[record.tensor];
  });
  const Progress progress = ProgressOf(records, own);
  if (progress.is_finished()) return records;
  return Error(ErrorKind::kIncomplete, fmt::format("worker {} has not finished", NameOf(worker)))
      .File(directory.string())
      .Expected(Counted(progress.all, "tensor"))
      .Actual(Counted(progress.written, "tensor"))
      .Hint("run it again: it goes on where it stopped");
}

}  // namespace

Result<WorkerId> ParseWorkerId(std::string_view text) {
  if (const auto worker = ParseNumbers(text, "/")) return *worker;
  return Error(ErrorKind::kUsage, "a worker is called NUMBER/COUNT")
      .Expected(fmt::format("a number from 0 to COUNT - 1, and at most {} workers", kMaxWorkers))
      .Actual(text);
}

Result<WorkerPlace> EnterAsWorker(Storage& storage, const Path& staging, const WorkerId& worker,
                                  const ConversionPlan& plan) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, ListStaging(storage, staging));
  const std::vector<WorkerId> others = WorkersAmong(entries);
  // Bytes of another run would show in the gaps between items. A worker cannot remove them: another
  // one may have begun in the meantime.
  if (!entries.empty() && others.empty()) {
    return Error(ErrorKind::kAlreadyExists, "another run left its files where workers would write")
        .File(staging.string())
        .Hint("a run without workers goes on from them or replaces them");
  }
  for (const WorkerId& other : others) {
    if (other.count == worker.count) continue;
    return Error(ErrorKind::kAlreadyExists,
                 fmt::format("worker {} is one of another number of workers", NameOf(worker)))
        .File(staging.string())
        .Expected(fmt::format("a worker of {}, as {}", other.count, NameOf(other)))
        .Hint("remove it to begin again");
  }
  const Path directory = staging / DirectoryOf(worker);
  WorkerPlace place;
  place.journal = JournalOf(worker);
  CKPT_ASSIGN_OR_RETURN(place.directories, MadeDirectories::Make(storage, directory));
  Result<std::unique_ptr<DirectoryLock>> lock = storage.Lock(directory);
  if (!lock.ok()) {
    return std::move(lock).status().While(fmt::format("starting worker {}", NameOf(worker)));
  }
  place.lock = *std::move(lock);
  CKPT_ASSIGN_OR_RETURN(const auto records, ReadJournal(storage, staging, worker, HashPlan(plan)));
  if (records && ProgressOf(*records, TensorsOf(plan.write, worker)).is_finished()) {
    return Error(ErrorKind::kAlreadyExists,
                 fmt::format("worker {} has finished already", NameOf(worker)))
        .File(directory.string())
        .Hint("when all have, the target can be completed");
  }
  return place;
}

Status NoWorkers(const Path& staging) {
  return Error(ErrorKind::kMissing, "no worker has written here").File(staging.string());
}

Result<bool> HasWorkers(Storage& storage, const Path& staging) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<WorkerId> workers, ListWorkers(storage, staging));
  return !workers.empty();
}

Status MergeWorkers(Storage& storage, const Path& staging, const ConversionPlan& plan) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<WorkerId> workers, ListWorkers(storage, staging));
  CKPT_ASSIGN_OR_RETURN(const bool is_merged, IsMerged(storage, staging, plan));
  if (is_merged) return RemoveWorkers(storage, staging, workers);
  if (workers.empty()) return NoWorkers(staging);
  CKPT_RETURN_IF_ERROR(CheckAllAreThere(workers, staging));
  const std::string plan_hash = HashPlan(plan);
  std::vector<JournalRecord> all;
  Status failures;
  for (const WorkerId& worker : workers) {
    Result<std::vector<JournalRecord>> records =
        TakeRecords(storage, staging, worker, plan.write, plan_hash);
    if (!records.ok()) {
      failures.Add(std::move(records).status());
      continue;
    }
    for (JournalRecord& record : *records) all.push_back(std::move(record));
  }
  if (!failures.ok()) return failures;
  const Path path = staging / kJournalName;
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(path));
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<Journal> journal,
                        Journal::Create(storage, path, plan_hash));
  for (const JournalRecord& record : all) CKPT_RETURN_IF_ERROR(journal->Append(record));
  CKPT_RETURN_IF_ERROR(journal->Sync());
  return RemoveWorkers(storage, staging, workers);
}

}  // namespace ckpt
