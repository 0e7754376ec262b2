#include "core/exec/workers.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/name_list.h"
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
  const auto take = [&](std::int64_t& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool is_good = error == std::errc() && text.front() != '-';
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return is_good;
  };
  WorkerId worker;
  if (text.empty() || !take(worker.number) || !text.starts_with(between)) return std::nullopt;
  text.remove_prefix(between.size());
  if (text.empty() || !take(worker.count) || !text.empty()) return std::nullopt;
  const bool is_one = worker.number < worker.count && worker.count <= kMaxWorkers;
  return is_one ? std::optional(worker) : std::nullopt;
}

std::optional<WorkerId> ParseDirectory(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  return ParseNumbers(name.substr(kPrefix.size()), kOf);
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
        .Hint(
            "all workers, and what completes their work, need the same ckpt-convert command; "
            "remove " +
            staging.string() + " to begin again");
  }
  std::vector<JournalRecord> records;
  CKPT_RETURN_IF_ERROR(Journal::Resume(storage, path, plan_hash, records).status());
  return std::optional(std::move(records));
}

}  // namespace

Result<WorkerId> ParseWorkerId(std::string_view text) {
  if (const auto worker = ParseNumbers(text, "/")) return *worker;
  return Error(ErrorKind::kUsage, "--worker takes NUMBER/COUNT")
      .Expected(fmt::format("a number from 0 to COUNT - 1, and at most {} workers", kMaxWorkers))
      .Actual(text);
}

namespace {

// Whether another worker than that of the tensor before may write it; parallel to the tensors.
std::vector<bool> BeginsShare(const WritePlan& plan) {
  std::vector<bool> begins(plan.tensors.size(), true);
  if (!plan.compression) return begins;
  // A file is shared by the tensors from the first to the last that has items in it.
  std::vector<std::uint32_t> last(plan.files.size(), 0);
  for (const WriteItem& item : plan.items) {
    last[item.file] = std::max(last[item.file], item.tensor);
  }
  std::uint32_t until = 0;  // the last one that shares a file with those so far
  std::uint32_t previous = 0;
  for (const WriteItem& item : plan.items) {
    if (item.tensor != previous) begins[item.tensor] = item.tensor > until;
    until = std::max(until, last[item.file]);
    previous = item.tensor;
  }
  return begins;
}

}  // namespace

std::size_t CountShares(const WritePlan& plan) {
  return static_cast<std::size_t>(std::ranges::count(BeginsShare(plan), true));
}

namespace {

// Bytes of the tensors of every share, in order. A tensor without elements counts as a byte.
std::vector<std::uint64_t> ShareBytes(const WritePlan& plan, const std::vector<bool>& begins) {
  std::vector<std::uint64_t> of_tensors(plan.tensors.size(), 1);
  for (const WriteItem& item : plan.items) of_tensors[item.tensor] += item.payload_bytes;
  std::vector<std::uint64_t> shares;
  for (std::size_t t = 0; t < of_tensors.size(); ++t) {
    if (begins[t]) shares.push_back(0);
    shares.back() += of_tensors[t];
  }
  return shares;
}

// Hands out the shares in order, to one worker after the other: to each as many as are `most_bytes`
// together, one at least, and leaves one for each of those that follow. Returns the worker of every
// share; nothing if shares are left over.
std::optional<std::vector<std::int64_t>> HandOut(const std::vector<std::uint64_t>& shares,
                                                 std::int64_t count, std::uint64_t most_bytes) {
  std::vector<std::int64_t> owners;
  std::int64_t worker = 0;
  std::uint64_t taken = 0;
  for (std::size_t s = 0; s < shares.size(); ++s) {
    const bool fits = shares[s] <= most_bytes && taken <= most_bytes - shares[s];
    const auto left = static_cast<std::int64_t>(shares.size() - s);
    if (s > 0 && (!fits || left < count - worker)) {
      ++worker;
      taken = 0;
    }
    if (worker == count) return std::nullopt;
    owners.push_back(worker);
    taken += shares[s];
  }
  return owners;
}

// The ranges of which the largest is as small as can be.
std::vector<std::int64_t> DivideEvenly(const std::vector<std::uint64_t>& shares,
                                       std::int64_t count) {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  for (const std::uint64_t share : shares) {
    low = std::max(low, share);
    high += share;
  }
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (HandOut(shares, count, middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return HandOut(shares, count, high).value();
}

}  // namespace

std::vector<bool> TensorsOf(const WritePlan& plan, const WorkerId& worker) {
  const std::vector<bool> begins = BeginsShare(plan);
  const std::vector<std::int64_t> owners = DivideEvenly(ShareBytes(plan, begins), worker.count);
  std::vector<bool> own(plan.tensors.size());
  std::size_t share = 0;
  for (std::size_t t = 0; t < own.size(); ++t) {
    if (t > 0 && begins[t]) ++share;
    own[t] = owners[share] == worker.number;
  }
  return own;
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
        .Hint("ckpt-convert without --worker goes on from them or replaces them");
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
        .Hint("ckpt-convert --finalize completes the target when all have");
  }
  return place;
}

Status NoWorkers(const Path& staging) {
  return Error(ErrorKind::kMissing, "no worker has written here")
      .File(staging.string())
      .Hint("ckpt-convert --worker 0/N to N-1/N write the tensors first");
}

Result<bool> HasWorkers(Storage& storage, const Path& staging) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<WorkerId> workers, ListWorkers(storage, staging));
  return !workers.empty();
}

namespace {

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

}  // namespace

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
    const Path directory = staging / DirectoryOf(worker);
    Result<std::unique_ptr<DirectoryLock>> lock = storage.Lock(directory);
    if (!lock.ok()) {
      failures.Add(
          std::move(lock).status().While(fmt::format("taking over worker {}", NameOf(worker))));
      continue;
    }
    Result<std::optional<std::vector<JournalRecord>>> records =
        ReadJournal(storage, staging, worker, plan_hash);
    if (!records.ok()) {
      failures.Add(std::move(records).status());
      continue;
    }
    const std::vector<bool> own = TensorsOf(plan.write, worker);
    std::vector<JournalRecord> written = std::move(*records).value_or(std::vector<JournalRecord>());
    std::erase_if(written, [&](const JournalRecord& record) {
      return record.tensor >= own.size() || !own[record.tensor];
    });
    const Progress progress = ProgressOf(written, own);
    if (!progress.is_finished()) {
      failures.Add(
          Error(ErrorKind::kIncomplete, fmt::format("worker {} has not finished", NameOf(worker)))
              .File(directory.string())
              .Expected(fmt::format("{} tensors", progress.all))
              .Actual(fmt::format("{} tensors", progress.written))
              .Hint("run it again: it goes on where it stopped"));
    }
    for (JournalRecord& record : written) all.push_back(std::move(record));
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
