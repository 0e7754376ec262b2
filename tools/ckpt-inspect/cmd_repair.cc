#include <algorithm>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/hash.h"
#include "core/base/quote.h"
#include "core/base/task_pool.h"
#include "core/base/units.h"
#include "core/io/disk_space.h"
#include "core/io/staged_directory.h"
#include "core/io/staging_name.h"
#include "core/json/json_writer.h"
#include "core/manifest/find_damage.h"
#include "core/manifest/manifest.h"
#include "core/manifest/read_manifest.h"
#include "core/manifest/verify_manifest.h"
#include "core/repair/repair_plan.h"
#include "core/repair/write_repaired.h"
#include "formats/registry/registry.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/covered_directory.h"
#include "tools/ckpt-inspect/problem_list.h"
#include "tools/ckpt-inspect/target_path.h"
#include "tools/cli/reporting.h"
#include "tools/cli/stop_on_signal.h"

namespace ckpt::inspect {
namespace {

struct Outcome {
  std::vector<RepairedPlace> repaired;
  std::vector<Problem> problems;  // if one is an error, nothing was published
};

// What is repaired, and where the copy goes.
struct Job {
  Path directory;  // the directory that the manifest covers
  StoredManifest stored;
  std::string subdirectory;  // of the copy: under a root, as its tracker names it; else empty
  int threads = 1;
  std::stop_token stop = {};

  [[nodiscard]] const Manifest& manifest() const { return stored.manifest; }
};

// The target must not exist, and must not overlap with the source.
Status CheckTarget(Storage& storage, const Path& path, const Path& target) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(target));
  if (stat.type != FileType::kMissing) {
    return Error(ErrorKind::kAlreadyExists, "the target exists already")
        .File(target.string())
        .Hint("choose a new name: repair never changes existing files");
  }
  const Path source = CanonicalPath(path);
  return CheckOutside("the copy", target, {&source, 1});
}

Result<Job> Open(Storage& storage, const RepairOptions& options) {
  Job job;
  CKPT_ASSIGN_OR_RETURN(job.directory,
                        FindCoveredDirectory(storage, options.path, options.iteration));
  Result<std::optional<StoredManifest>> stored = FindManifest(storage, job.directory);
  if (!stored.ok()) {
    return std::move(stored).status().While("reading the checksums that repair needs");
  }
  if (!stored->has_value()) {
    return Error(ErrorKind::kNotFound,
                 "the checkpoint's manifest vanished while repair looked for it")
        .File((job.directory / std::string(kManifestName)).string())
        .Hint("another process changes the checkpoint: run repair again when it is done");
  }
  job.stored = **std::move(stored);
  const bool is_root = CanonicalPath(options.path) != CanonicalPath(job.directory);
  if (is_root && job.manifest().FindTracker()) {
    job.subdirectory = CanonicalPath(job.directory).filename().string();
  }
  job.threads = options.common.threads > 0 ? options.common.threads : DefaultThreads();
  return job;
}

bool IsAsWritten(const ManifestFile& file, std::string_view text) {
  return text.size() == file.size_bytes && file.block_crc32c.size() == 1 &&
         Crc32c(AsBytes(text)) == file.block_crc32c.front();
}

// The copy holds one checkpoint, so its tracker names that one, whatever the root's tracker says
// now.
Status WriteTracker(Storage& storage, const Job& job, const Path& root, const Damage& damage,
                    Outcome& outcome) {
  const std::size_t number = *job.manifest().FindTracker();
  const ManifestFile& file = job.manifest().files[number];
  const auto is_it = [number](const auto& damaged) { return damaged.file == number; };
  const bool is_damaged = std::any_of(damage.files.begin(), damage.files.end(), is_it) ||
                          std::any_of(damage.blocks.begin(), damage.blocks.end(), is_it);
  std::string text = KnownRunRoot().tracker_text(job.subdirectory);
  if (!IsAsWritten(file, text)) {
    // The tracker may have been written by hand, with a line end.
    CKPT_ASSIGN_OR_RETURN(text,
                          ReadSmallFile(storage, job.directory / file.name, kMaxTrackerBytes));
    if (!IsAsWritten(file, text)) {
      outcome.problems.push_back(
          Error(ErrorKind::kChecksum, "the tracker's content cannot be restored")
              .File(file.name)
              .first());
      return OkStatus();
    }
  }
  if (is_damaged) {
    outcome.repaired.insert(
        outcome.repaired.begin(),
        {.file = file.name, .size_bytes = file.size_bytes, .source = RepairSource::kManifest});
  }
  return WriteSmallFile(storage, root / Path(file.name).filename(), AsBytes(text));
}

// Writes the manifest in both of its places, whichever it was read from.
Status WriteManifest(Storage& storage, const Job& job, const Path& copy, Outcome& outcome) {
  const ByteSpan text = AsBytes(job.stored.text);
  CKPT_RETURN_IF_ERROR(WriteSmallFile(storage, copy / std::string(kManifestName), text));
  if (job.manifest().has_copy) {
    CKPT_RETURN_IF_ERROR(WriteSmallFile(storage, copy / std::string(kManifestCopyName), text));
  }
  if (job.stored.lost) {
    outcome.repaired.insert(outcome.repaired.begin(),
                            {.file = Path(job.stored.lost->file).filename().string(),
                             .size_bytes = text.size(),
                             .source = RepairSource::kCopy});
  }
  return OkStatus();
}

// Announces a phase that reads every covered byte.
void AnnounceReading(std::string_view phase, const Job& job, ProgressSink& progress) {
  std::uint64_t bytes = 0;
  for (const ManifestFile& file : job.manifest().files) bytes += file.size_bytes;
  progress.OnPhase(phase, bytes, job.manifest().files.size());
}

// Compares the finished copy with the manifest.
Status VerifyCopy(Storage& storage, const Job& job, const Path& copy, ProgressSink& progress) {
  AnnounceReading("verify", job, progress);
  CKPT_ASSIGN_OR_RETURN(
      std::vector<Problem> problems,
      VerifyManifest(
          storage, copy, job.manifest(), KnownRunRoot(),
          {.threads = job.threads,
           .on_progress = [&](std::uint64_t bytes) { progress.OnDone(kManifestName, bytes); },
           .stop = job.stop}));
  const std::optional<std::size_t> tracker = job.manifest().FindTracker();
  std::erase_if(problems, [&](const Problem& problem) {
    const bool is_outside = job.subdirectory.empty() && tracker &&
                            problem.file.starts_with(job.manifest().files[*tracker].name);
    return is_outside || problem.severity != Severity::kError;
  });
  return Status(std::move(problems));
}

// Whether the copy is wrong, rather than the disk or the system.
bool IsDamage(const Status& status) { return !IsUnread(status.kind()); }

struct Diagnosis {
  Damage damage;
  RepairPlan plan;
};

// Blocks that the disk cannot read are treated as lost, if all of them can be repaired. Otherwise
// the read error is the answer.
Result<Diagnosis> Diagnose(Storage& storage, const Job& job, ProgressSink& progress) {
  ckpt::VerifyOptions options{
      .threads = job.threads,
      .on_progress = [&](std::uint64_t bytes) { progress.OnDone(kManifestName, bytes); },
      .stop = job.stop};
  AnnounceReading("check", job, progress);
  Result<Damage> damage =
      FindDamage(storage, job.directory, job.manifest(), KnownRunRoot(), options);
  if (damage.ok()) {
    RepairPlan plan = PlanRepair(job.manifest(), *damage);
    return Diagnosis{*std::move(damage), std::move(plan)};
  }
  if (damage.status().kind() != ErrorKind::kIo) return std::move(damage).status();
  options.unreadable_is_damage = true;
  AnnounceReading("check", job, progress);
  CKPT_ASSIGN_OR_RETURN(
      Damage readable, FindDamage(storage, job.directory, job.manifest(), KnownRunRoot(), options));
  RepairPlan plan = PlanRepair(job.manifest(), readable);
  if (!plan.beyond_repair.empty()) return std::move(damage).status();
  return Diagnosis{std::move(readable), std::move(plan)};
}

// Returns an error if the environment prevents the work. Damage that cannot be repaired is in the
// outcome.
Result<Outcome> Repair(Storage& storage, const Job& job, const Path& target,
                       ProgressSink& progress) {
  CKPT_ASSIGN_OR_RETURN(const Diagnosis diagnosis, Diagnose(storage, job, progress));
  const Damage& damage = diagnosis.damage;
  const RepairPlan& plan = diagnosis.plan;
  Outcome outcome{.repaired = {}, .problems = plan.beyond_repair};
  for (const std::string& name : damage.leftovers) {
    outcome.problems.push_back(DescribeLeftover(name));
  }
  if (HasErrors(outcome.problems)) return outcome;

  CKPT_ASSIGN_OR_RETURN(StagedDirectory staged, StagedDirectory::Open(storage, target, {}));
  const Path copy = job.subdirectory.empty() ? staged.path() : staged.path() / job.subdirectory;
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(copy));
  const auto repair = [&]() -> Status {
    CKPT_ASSIGN_OR_RETURN(
        outcome.repaired,
        WriteRepaired(storage, job.directory, job.manifest(), plan, copy,
                      {.threads = job.threads, .progress = &progress, .stop = job.stop}));
    CKPT_RETURN_IF_ERROR(WriteManifest(storage, job, copy, outcome));
    if (!job.subdirectory.empty()) {
      CKPT_RETURN_IF_ERROR(WriteTracker(storage, job, staged.path(), damage, outcome));
      if (HasErrors(outcome.problems)) return OkStatus();
    }
    return VerifyCopy(storage, job, copy, progress).While("verifying the repaired copy");
  };
  if (const Status repaired = repair(); !repaired.ok()) {
    CKPT_RETURN_IF_ERROR(storage.RemoveAll(staged.path()));
    if (!IsDamage(repaired)) return repaired;
    const std::vector<Problem>& wrong = repaired.problems();
    outcome.problems.insert(outcome.problems.begin(), wrong.begin(), wrong.end());
    return outcome;
  }
  if (HasErrors(outcome.problems)) {
    CKPT_RETURN_IF_ERROR(storage.RemoveAll(staged.path()));
    return outcome;
  }
  CKPT_RETURN_IF_ERROR(staged.Publish());
  return outcome;
}

// Bytes that the copy takes on disk.
std::uint64_t NeededBytes(const Job& job) {
  std::uint64_t bytes = job.stored.text.size() * (job.manifest().has_copy ? 2 : 1);
  for (const ManifestFile& file : job.manifest().files) bytes += file.size_bytes;
  return bytes;
}

// Adds to the failure of a repair, which removed the copy, what the user can do now.
Status HowToResume(Status failure, const Job& job, const Path& target) {
  if (failure.kind() == ErrorKind::kCancelled) {
    return std::move(failure).Hint("the copy was removed: run repair again");
  }
  if (failure.kind() != ErrorKind::kNoSpace) return failure;
  const std::uint64_t needed = NeededBytes(job);
  std::string room = fmt::format("it takes {} ({} bytes)", FormatByteSize(needed), needed);
  if (const auto free = FreeBytes(target)) {
    room += fmt::format(", {} ({} bytes) are free", FormatByteSize(*free), *free);
  }
  return std::move(failure).Hint(fmt::format(
      "the copy was removed: {}; make room, or choose a target on another disk, and run "
      "repair again",
      room));
}

void PrintJson(const Outcome& outcome, Streams& streams) {
  const bool is_ok = !HasErrors(outcome.problems);
  JsonWriter json(2);
  json.BeginObject().Key("ok").Bool(is_ok);
  json.Key("repaired").BeginArray();
  for (const RepairedPlace& place : outcome.repaired) {
    if (!is_ok) break;  // the copy was removed
    json.BeginObject().Key("file").Text(place.file).Key("offset").Int(place.offset_bytes);
    switch (place.source) {
      case RepairSource::kBit:
        json.Key("bit").Int(place.bit);
        break;
      case RepairSource::kParity:
        json.Key("length").Int(place.size_bytes).Key("from").Text("parity");
        break;
      case RepairSource::kManifest:
        json.Key("length").Int(place.size_bytes).Key("from").Text("manifest");
        break;
      case RepairSource::kCopy:
        json.Key("length").Int(place.size_bytes).Key("from").Text("copy");
        break;
    }
    json.End();
  }
  json.End();
  AppendProblemList(outcome.problems, json);
  json.End();
  streams.out.Write(json.Take() + "\n");
}

std::string DescribePlace(const RepairedPlace& place) {
  switch (place.source) {
    case RepairSource::kBit:
      return fmt::format("{}: bit {} of byte {} flipped back", place.file, place.bit,
                         place.offset_bytes);
    case RepairSource::kParity:
      return fmt::format("{}: rebuilt from parity",
                         DescribeRange(place.file, place.offset_bytes, place.size_bytes));
    case RepairSource::kManifest:
      return fmt::format("{}: length and content as the manifest says", place.file);
    case RepairSource::kCopy:
      return fmt::format("{}: written again from its copy", place.file);
  }
  return {};
}

void PrintText(const Outcome& outcome, const Path& target, Streams& streams) {
  PrintProblemList(outcome.problems, streams);
  if (HasErrors(outcome.problems)) {
    streams.out.Write("damaged: not everything can be repaired; nothing was written\n");
    return;
  }
  for (const RepairedPlace& place : outcome.repaired) {
    streams.out.Write(fmt::format("repaired: {}\n", EscapeControls(DescribePlace(place))));
  }
  streams.out.Write(fmt::format("ok: {} repaired, the copy at {} is verified\n",
                                Counted(outcome.repaired.size(), "place"),
                                EscapeControls(target.string())));
}

}  // namespace

Result<ExitCode> RunRepair(Storage& storage, const RepairOptions& options, Streams& streams) {
  CKPT_ASSIGN_OR_RETURN(Job job, Open(storage, options));
  CKPT_RETURN_IF_ERROR(CheckTarget(storage, options.path, options.target));
  CKPT_RETURN_IF_ERROR(CheckTarget(storage, job.directory, options.target));
  if (const auto free_bytes = FreeBytes(options.target)) {
    // The files of an earlier run are removed, so their space counts as free.
    const std::uint64_t room = *free_bytes + AllocatedBytes(StagingOf(options.target));
    CKPT_RETURN_IF_ERROR(
        CheckRoom(options.target, NeededBytes(job), room)
            .Hint("nothing was written: free space, or choose a target on another disk"));
  }
  const cli::StopOnSignal signal;
  job.stop = signal.token();
  auto progress = cli::MakeProgress(options.common, streams);
  const Result<Outcome> outcome = Repair(storage, job, options.target, *progress);
  progress.reset();  // a bar clears its line before anything else is printed
  if (!outcome.ok()) return HowToResume(outcome.status(), job, options.target);
  options.common.json ? PrintJson(*outcome, streams) : PrintText(*outcome, options.target, streams);
  return HasErrors(outcome->problems) ? ExitCode::kDifferent : ExitCode::kDone;
}

}  // namespace ckpt::inspect
