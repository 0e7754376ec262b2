#include "converters/verbs/convert.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/verbs/internal/files_beside.h"
#include "converters/verbs/internal/lost_copies.h"
#include "converters/verbs/internal/name_in_manifest.h"
#include "converters/verbs/internal/verify_conversion.h"
#include "converters/verbs/internal/vocabulary_padding.h"
#include "converters/verbs/model_digest.h"
#include "converters/verbs/target_space.h"
#include "core/base/hash.h"
#include "core/base/warning.h"
#include "core/checkpoint/digesting_source.h"
#include "core/exec/executor.h"
#include "core/exec/worker_tensors.h"
#include "core/io/staged_directory.h"
#include "core/io/staging_name.h"
#include "core/manifest/manifest_text.h"
#include "core/manifest/replaceable.h"
#include "core/repair/parity.h"
#include "formats/registry/registry.h"

namespace ckpt {
namespace {

constexpr std::string_view kRunWorkers =
    "ckpt-convert --worker 0/N to N-1/N write the tensors first";
constexpr std::string_view kReplaceTarget =
    "choose another name, or replace it with ckpt-convert --overwrite";

// Writes parity of all files, and then the manifest, which covers the files and the parity.
Status WriteManifest(Storage& storage, const PreparedConversion& prepared,
                     const ConvertOptions& options, const ExecuteResult& executed,
                     const Path& staging, ConvertReport& report) {
  Manifest manifest;
  manifest.tool = "ckptkit " CKPT_VERSION;
  manifest.origin = prepared.origin;
  manifest.files = executed.files;
  for (ManifestFile& file : manifest.files) {
    file.name = NameInManifest(file.name, prepared.checkpoint_directory);
  }
  const Path directory = staging / prepared.checkpoint_directory;
  if (options.parity_group != 0) {
    CKPT_ASSIGN_OR_RETURN(WrittenParity parity,
                          WriteParity(storage, directory, manifest.files,
                                      {.group_size = options.parity_group,
                                       .memory_budget_bytes = options.memory_budget_bytes,
                                       .threads = options.threads,
                                       .progress = options.progress,
                                       .stop = options.stop}));
    for (ManifestFile& file : parity.files) {
      ++report.parity_files;
      report.parity_bytes += file.size_bytes;
      manifest.files.push_back(std::move(file));
    }
    report.bytes_written += report.parity_bytes;
    manifest.parity = std::move(parity.groups);
    manifest.has_copy = true;
  }
  for (std::size_t t = 0; t < prepared.plan.write.tensors.size(); ++t) {
    manifest.tensors.push_back({prepared.plan.write.tensors[t].key, executed.tensor_xxh3[t]});
  }
  std::vector<std::string_view> names = {kManifestName};
  if (manifest.has_copy) names.push_back(kManifestCopyName);
  const std::string text = SerializeManifest(std::move(manifest));
  for (const std::string_view name : names) {
    const Path path = directory / std::string(name);
    CKPT_RETURN_IF_ERROR(storage.RemoveAll(path));
    CKPT_RETURN_IF_ERROR(WriteSmallFile(storage, path, AsBytes(text)));
  }
  return OkStatus();
}

// What is known of source and target before anything is written.
ConvertReport BeginReport(const PreparedConversion& prepared) {
  ConvertReport report;
  report.source_format = prepared.model.checkpoint->format->name;
  report.target_format = prepared.to.container->container();
  for (const GlobalTensor& tensor : prepared.model.checkpoint->source->index().tensors()) {
    ++report.source_tensors;
    const Result<std::uint64_t> bytes = CountBytes(tensor.shape, tensor.dtype);
    if (bytes.ok()) report.source_bytes += *bytes;  // else it is left out on request
  }
  report.target_tensors = prepared.target_tensors;
  report.target_bytes = prepared.target_bytes;
  report.warnings = prepared.warnings;
  return report;
}

void AddExecuted(const ExecuteResult& executed, ConvertReport& report) {
  report.bytes_read = executed.bytes_read;
  report.bytes_written = executed.bytes_written;
  report.cast_overflows = executed.cast_overflows;
  report.resumed_tensors = executed.resumed_tensors;
}

// Errors: those of core/exec/workers.h.
Status TakeOverFromWorkers(Storage& storage, const PreparedConversion& prepared,
                           const Path& staging) {
  Status merged = MergeWorkers(storage, staging, prepared.plan);
  if (merged.ok() || merged.kind() != ErrorKind::kMissing) return merged;
  return std::move(merged).Hint(kRunWorkers);
}

// Executes the plan, writes the manifest, verifies the result and publishes it.
Result<ConvertReport> Fill(Storage& storage, const PreparedConversion& prepared,
                           const ConvertOptions& options, StagedDirectory& staged) {
  if (options.finalize) {
    CKPT_RETURN_IF_ERROR(TakeOverFromWorkers(storage, prepared, staged.path()));
  }
  CKPT_RETURN_IF_ERROR(CheckSourceManifest(storage, prepared, options));
  CKPT_RETURN_IF_ERROR(CheckCopies(prepared.model, options.memory_budget_bytes));
  for (const ModelSource& moment : prepared.moments_with_copies) {
    CKPT_RETURN_IF_ERROR(CheckCopies(moment, options.memory_budget_bytes));
  }
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::uint32_t> digested,
                        TensorsToDigest(prepared, options));
  const DigestingSource source(prepared.model.source(), digested, HashAlgorithm::kXxh3);
  CKPT_ASSIGN_OR_RETURN(const ExecuteResult executed,
                        Execute(prepared.plan, source, storage, staged.path(),
                                {.memory_budget_bytes = options.memory_budget_bytes,
                                 .threads = options.threads,
                                 .resume = options.resume || options.finalize,
                                 .reads_back = options.verify && !options.link,
                                 .read_later = TensorsToReadLater(prepared, options),
                                 .read_in_order = {digested.begin(), digested.end()},
                                 .progress = options.progress,
                                 .stop = options.stop}));
  ConvertReport report = BeginReport(prepared);
  AddExecuted(executed, report);
  report.dropped = prepared.left_out();
  CKPT_ASSIGN_OR_RETURN(const std::vector<LeftOutEntry> used_padding,
                        FindUsedPadding(prepared.model, options.memory_budget_bytes));
  for (const LeftOutEntry& entry : used_padding) {
    report.dropped.push_back(entry);
    report.warnings.push_back(Warning(ErrorKind::kValueMismatch,
                                      "rows that pad the vocabulary are not zero and were left out",
                                      prepared.model.checkpoint->path.string(), entry.key));
  }
  CKPT_ASSIGN_OR_RETURN(LostCopies lost, FindLostCopies(prepared, options));
  std::ranges::move(lost.left_out, std::back_inserter(report.dropped));
  std::ranges::move(lost.warnings, std::back_inserter(report.warnings));

  if (!prepared.to.container->is_one_file) {
    CKPT_RETURN_IF_ERROR(
        WriteManifest(storage, prepared, options, executed, staged.path(), report));
  }
  if (options.verify) {
    Result<VerifiedDigests> verified =
        VerifyConversion(storage, prepared, options, executed, source, staged.path());
    if (!verified.ok()) {
      Status failed = std::move(verified).status();
      // Without the journal, --resume cannot reuse tensors that are wrong.
      if (!IsOfSystem(failed.kind())) failed.Add(storage.RemoveAll(staged.path() / kJournalName));
      return std::move(failed).While("verifying the result");
    }
    report.source_digest = std::move(verified->source);
    report.target_digest = std::move(verified->target);
  }
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(staged.path() / kJournalName));
  CKPT_RETURN_IF_ERROR(staged.Publish());
  return report;
}

// A file that is replaced must be one of the format.
Status CheckIsOf(const Format& format, Storage& storage, const Path& file) {
  CKPT_ASSIGN_OR_RETURN(Place place, LookAtFile(storage, file));
  place.path = Path("target");  // the bytes decide, whatever the name says
  CKPT_ASSIGN_OR_RETURN(const std::optional<Path> found, format.recognise(place));
  if (found) return OkStatus();
  return Error(ErrorKind::kAlreadyExists,
               fmt::format("the target is a file of another kind than {}", format.name))
      .File(file.string())
      .Hint("remove it yourself if it is not needed");
}

// Writes the tensors of one worker.
Result<ConvertReport> RunWorker(Storage& storage, const PreparedConversion& prepared,
                                const ConvertOptions& options) {
  const std::size_t shares = CountShares(prepared.plan.write);
  const auto workers = static_cast<std::size_t>(options.worker->count);
  if (prepared.plan.write.compression && shares < workers) {
    std::set<std::uint32_t> files;
    for (const WriteItem& item : prepared.plan.write.items) files.insert(item.file);
    return Error(ErrorKind::kUsage, "more workers than can share a compressed conversion")
        .Expected(fmt::format("at most {}: one worker writes all of a file, and the tensors lie in "
                              "{} {}",
                              shares, files.size(), files.size() == 1 ? "file" : "files"))
        .Actual(fmt::format("{} workers", workers))
        .Hint(
            "ckpt-convert --files makes more files, where the format has several compressed ones; "
            "otherwise leave --worker out");
  }
  CKPT_ASSIGN_OR_RETURN(const FileStat target, storage.Stat(options.target));
  if (target.type != FileType::kMissing && !options.overwrite) {
    return Error(ErrorKind::kAlreadyExists, "the target exists")
        .File(options.target.string())
        .Hint(kReplaceTarget);
  }
  const Path staging = StagingOf(options.target);
  CKPT_ASSIGN_OR_RETURN(const WorkerPlace place,
                        EnterAsWorker(storage, staging, *options.worker, prepared.plan));
  std::vector<bool> own = TensorsOf(prepared.plan.write, *options.worker);
  ConvertReport report = BeginReport(prepared);
  report.worker = {.tensors = static_cast<std::size_t>(std::ranges::count(own, true)),
                   .of_tensors = own.size()};
  CKPT_ASSIGN_OR_RETURN(
      const ExecuteResult executed,
      Execute(prepared.plan, prepared.model.source(), storage, staging,
              {.memory_budget_bytes = options.memory_budget_bytes,
               .threads = options.threads,
               .worker = WorkerPart{.tensors = std::move(own), .journal = place.journal},
               .progress = options.progress,
               .stop = options.stop}));
  AddExecuted(executed, report);
  return report;
}

// Whether the target has every file of the plan. They get their names when all are whole.
Result<bool> IsComplete(Storage& storage, const PreparedConversion& prepared, const Path& target) {
  const Path directory = prepared.to.container->is_one_file ? target.parent_path() : target;
  const WritePlan& plan = prepared.plan.write;
  for (const WriteFile& file : plan.files) {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory / file.name));
    // How long compressed tensors become is not planned.
    const bool is_as_long = stat.size_bytes == file.size_bytes ||
                            (plan.compression && stat.size_bytes > file.size_bytes);
    if (stat.type != FileType::kRegular || !is_as_long) return false;
  }
  return true;
}

// There is nothing to complete: no worker wrote, or what they wrote is the target already.
Status NothingToComplete(Storage& storage, const PreparedConversion& prepared, const Path& target) {
  CKPT_ASSIGN_OR_RETURN(const bool is_complete, IsComplete(storage, prepared, target));
  if (!is_complete) return NoWorkers(StagingOf(target)).Hint(kRunWorkers);
  return Error(ErrorKind::kAlreadyExists,
               "the target is complete already, and no worker has written another one")
      .File(target.string())
      .Hint(
          "nothing is left to do; to make it anew, run all workers with ckpt-convert "
          "--overwrite");
}

// What workers wrote is completed as such, and nothing else is.
Status CheckWorkers(Storage& storage, const PreparedConversion& prepared,
                    const ConvertOptions& options) {
  const Path staging = StagingOf(options.target);
  if (options.finalize) {
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(staging));
    return stat.type == FileType::kMissing ? NothingToComplete(storage, prepared, options.target)
                                           : OkStatus();
  }
  CKPT_ASSIGN_OR_RETURN(const bool has_workers, HasWorkers(storage, staging));
  if (!has_workers) return OkStatus();
  return Error(ErrorKind::kAlreadyExists, "several workers share a conversion to this target")
      .File(staging.string())
      .Hint("ckpt-convert --finalize completes it, or remove it");
}

}  // namespace

std::vector<LeftOutEntry> PreparedConversion::left_out() const {
  std::vector<LeftOutEntry> entries = model.left_out;
  entries.insert(entries.end(), left_out_files.begin(), left_out_files.end());
  return entries;
}

Result<ConvertReport> RunConversion(Storage& storage, const PreparedConversion& prepared,
                                    const ConvertOptions& options) {
  if (options.worker) return RunWorker(storage, prepared, options);
  CKPT_RETURN_IF_ERROR(CheckWorkers(storage, prepared, options));
  const bool goes_on = options.resume || options.finalize;
  FilesBeside beside;
  if (prepared.to.container->is_one_file) {
    CKPT_ASSIGN_OR_RETURN(
        beside, CheckBeside(storage, *prepared.to.container, prepared.plan.write, options));
  }
  CKPT_ASSIGN_OR_RETURN(
      StagedDirectory staged,
      StagedDirectory::Open(
          storage, options.target,
          {.if_target_exists = options.overwrite ? StagedDirectory::IfTargetExists::kReplace
                                                 : StagedDirectory::IfTargetExists::kFail,
           .hint_if_exists = std::string(kReplaceTarget),
           .if_staging_exists = goes_on ? StagedDirectory::IfStagingExists::kKeep
                                        : StagedDirectory::IfStagingExists::kDiscard,
           .may_replace =
               [&](Storage& there, const Path& target) {
                 return prepared.to.container->is_one_file
                            ? CheckIsOf(*prepared.to.container, there, target)
                            : CheckReplaceable(there, target, KnownRunRoot());
               },
           .publishes_one_file = prepared.to.container->is_one_file,
           .replaced_beside = std::move(beside.replaced),
           .removed_beside = std::move(beside.removed)}));
  Result<ConvertReport> report = Fill(storage, prepared, options, staged);
  if (report.ok()) return report;
  const bool is_known = !prepared.plan.write.compression;
  return HowToResume(std::move(report).status(), options.target,
                     is_known ? prepared.needed_bytes : 0);
}

}  // namespace ckpt
