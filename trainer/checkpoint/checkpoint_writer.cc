#include "trainer/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <utility>

#include "core/base/units.h"
#include "core/exec/block_checksums.h"
#include "core/io/staging_name.h"
#include "core/manifest/manifest_text.h"
#include "trainer/checkpoint/background_work.h"
#include "trainer/comm/agreement.h"

namespace ckpt::trainer {
namespace {

// What one rank wrote, as its part of the manifest.
Manifest AccountOf(const WriteJob& job, const ExecuteResult& written) {
  Manifest manifest;
  manifest.tool = job.tool;
  manifest.files = written.files;
  for (std::size_t t = 0; t < written.tensor_xxh3.size(); ++t) {
    if (written.tensor_xxh3[t].empty()) continue;  // several ranks wrote parts of it
    manifest.tensors.push_back({job.plan.write.tensors[t].key, written.tensor_xxh3[t]});
  }
  return manifest;
}

// Of a file that several ranks filled, each told its part.
void AddPart(const ManifestFile& part, ManifestFile& file) {
  BlockChecksums joined =
      JoinParts({.crc32c = file.block_crc32c, .crc32 = file.block_crc32},
                {.crc32c = part.block_crc32c, .crc32 = part.block_crc32}, file.size_bytes);
  file.block_crc32c = std::move(joined.crc32c);
  file.block_crc32 = std::move(joined.crc32);
}

Result<Manifest> JoinAccounts(const std::vector<std::string>& accounts) {
  Manifest joined;
  std::map<std::string, ManifestFile> files;
  for (const std::string& account : accounts) {
    CKPT_ASSIGN_OR_RETURN(Manifest part, ParseManifest(account, "a rank's account"));
    joined.tool = part.tool;
    for (ManifestFile& file : part.files) {
      const auto known = files.find(file.name);
      if (known == files.end()) {
        files.emplace(file.name, std::move(file));
      } else {
        AddPart(file, known->second);
      }
    }
    std::ranges::move(part.tensors, std::back_inserter(joined.tensors));
  }
  for (auto& [name, file] : files) joined.files.push_back(std::move(file));
  return joined;
}

// Every rank reported what it wrote. The files must lie in this directory: the checkpoint consists
// of what is here.
Status CheckGathered(Storage& storage, const Path& directory, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    const Path path = directory / file.name;
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
    if (stat.type == FileType::kRegular && stat.size_bytes == file.size_bytes) continue;
    return Error(ErrorKind::kMissingFile,
                 "a file that a rank wrote is not in the folder to save in")
        .File(path.string())
        .Expected(FormatByteSize(file.size_bytes))
        .Actual(stat.type == FileType::kMissing ? "nothing" : FormatByteSize(stat.size_bytes))
        .Hint("let every rank save into the same shared folder");
  }
  return OkStatus();
}

}  // namespace

CheckpointWriter::~CheckpointWriter() {
  stop_.request_stop();
  Wait();
}

Status CheckpointWriter::Start(WriteJob job) {
  job_ = std::move(job);
  stop_ = std::stop_source();
  PlanShare share;
  if (Status opened = Open(share); !opened.ok()) {
    staged_.reset();
    return opened;
  }
  phase_ = Phase::kWriting;
  writing_ = BeginWork([this, share = std::move(share)]() mutable {
    return Execute(job_.plan, *job_.source, storage_, StagingOf(job_.target),
                   {.threads = job_.threads,
                    .share = std::move(share),
                    .progress = job_.progress,
                    .phase = "save",
                    .stop = stop_.get_token()});
  });
  return OkStatus();
}

Status CheckpointWriter::Open(PlanShare& share) {
  const std::vector<FileMaker> makers = MakersOfFiles(job_.plan.write, job_.writers);
  share = ShareOf(job_.plan.write, job_.writers, makers, world_.rank());
  Status opened;
  if (world_.rank() == 0) {
    Result<StagedDirectory> staged = StagedDirectory::Open(storage_, job_.target, job_.staging);
    if (staged.ok()) {
      staged_ = std::move(staged).value();
      opened = MakeCommonFiles(makers, share);
    } else {
      opened = std::move(staged).status();
    }
  }
  // No rank writes before the directory exists, and all ranks write into the same one.
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, opened));
  CKPT_RETURN_IF_ERROR(AgreeOnText(world_, job_.target.string(), "folder to save in"));
  const bool has_common = std::ranges::any_of(makers, &FileMaker::is_filled_by_many);
  if (!has_common) return OkStatus();
  // Nor before all have opened the files that they fill together: a rank of a job that died may
  // open one of the next job's, and does not write, since no rank agrees with it.
  return AgreeOn(world_, OpenCommonFiles(makers, share));
}

Status CheckpointWriter::MakeCommonFiles(std::span<const FileMaker> makers, PlanShare& share) {
  for (std::uint32_t f = 0; f < makers.size(); ++f) {
    if (!makers[f].is_filled_by_many) continue;
    const WriteFile& file = job_.plan.write.files[f];
    const Path path = staged_->path() / file.name;
    CKPT_RETURN_IF_ERROR(storage_.MakeDirectories(path.parent_path()));
    CKPT_ASSIGN_OR_RETURN(share.open[f], storage_.Create(path));
    CKPT_RETURN_IF_ERROR(share.open[f]->Resize(file.size_bytes));
  }
  return OkStatus();
}

Status CheckpointWriter::OpenCommonFiles(std::span<const FileMaker> makers, PlanShare& share) {
  const WritePlan& plan = job_.plan.write;
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const std::uint32_t f = plan.items[i].file;
    if (!share.items[i] || !makers[f].is_filled_by_many || share.open.contains(f)) continue;
    CKPT_ASSIGN_OR_RETURN(share.open[f],
                          storage_.OpenForUpdate(StagingOf(job_.target) / plan.files[f].name));
  }
  return OkStatus();
}

bool CheckpointWriter::IsReady() const {
  return phase_ == Phase::kWriting ? HasEnded(writing_) : HasEnded(committing_);
}

void CheckpointWriter::Wait() const {
  if (writing_.valid()) writing_.wait();
  if (committing_.valid()) committing_.wait();
}

Status CheckpointWriter::Poll() {
  if (!busy()) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const bool all_are_ready, HoldsEverywhere(world_, IsReady()));
  return all_are_ready ? Advance() : OkStatus();
}

Status CheckpointWriter::Finish() {
  while (busy()) {
    Wait();
    CKPT_RETURN_IF_ERROR(Poll());
  }
  return OkStatus();
}

Status CheckpointWriter::Advance() {
  Status ended = phase_ == Phase::kWriting ? EndWriting() : EndCommitting();
  return ended.ok() ? std::move(ended) : GiveUp(std::move(ended));
}

Status CheckpointWriter::EndWriting() {
  Result<ExecuteResult> written = writing_.get();
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, written.ok() ? OkStatus() : written.status()));
  CKPT_ASSIGN_OR_RETURN(std::vector<std::string> accounts,
                        ExchangeTexts(world_, SerializeManifest(AccountOf(job_, *written))));
  phase_ = Phase::kCommitting;
  if (world_.rank() != 0) return OkStatus();
  // What fails on this rank alone fails there, where the others hear of it.
  committing_ = BeginWork([this, accounts = std::move(accounts)]() -> Status {
    CKPT_ASSIGN_OR_RETURN(Manifest manifest, JoinAccounts(accounts));
    return Commit(std::move(manifest));
  });
  return OkStatus();
}

Status CheckpointWriter::EndCommitting() {
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, committing_.valid() ? committing_.get() : OkStatus()));
  phase_ = Phase::kIdle;
  job_ = {};
  return OkStatus();
}

Status CheckpointWriter::Commit(Manifest manifest) {
  CKPT_RETURN_IF_ERROR(CheckGathered(storage_, staged_->path(), manifest));
  if (job_.prove) CKPT_RETURN_IF_ERROR(job_.prove(staged_->path(), job_.plan.write));
  manifest.origin = job_.origin;
  CKPT_RETURN_IF_ERROR(WriteSmallFile(storage_, staged_->path() / std::string(kManifestName),
                                      AsBytes(SerializeManifest(std::move(manifest)))));
  const Status published = staged_->Publish();
  staged_.reset();
  CKPT_RETURN_IF_ERROR(published);
  return job_.published ? job_.published() : OkStatus();
}

Status CheckpointWriter::GiveUp(Status status) {
  Wait();
  status = std::move(status).While("saving " + job_.target.string());
  phase_ = Phase::kIdle;
  staged_.reset();
  job_ = {};
  return status;
}

}  // namespace ckpt::trainer
