#include "trainer/checkpoint/checkpoint_writer.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <utility>

#include "core/base/units.h"
#include "core/io/staging_name.h"
#include "trainer/comm/agreement.h"

namespace ckpt::trainer {
namespace {

template <typename T>
bool HasEnded(const std::future<T>& work) {
  return !work.valid() || work.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::vector<bool> FilesOf(const std::vector<int>& writers, int rank) {
  std::vector<bool> own(writers.size());
  for (std::size_t f = 0; f < writers.size(); ++f) own[f] = writers[f] == rank;
  return own;
}

// What one rank wrote, as the sidecar will say it.
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

Result<Manifest> JoinAccounts(const std::vector<std::string>& accounts) {
  Manifest joined;
  for (const std::string& account : accounts) {
    CKPT_ASSIGN_OR_RETURN(Manifest part, ParseManifest(account, "a rank's account"));
    joined.tool = part.tool;
    std::ranges::move(part.files, std::back_inserter(joined.files));
    std::ranges::move(part.tensors, std::back_inserter(joined.tensors));
  }
  return joined;
}

// Every rank said what it wrote; only what lies in this directory becomes part of the checkpoint.
Status CheckGathered(Storage& storage, const Path& directory, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    const Path path = directory / file.name;
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
    if (stat.type == FileType::kRegular && stat.size_bytes == file.size_bytes) continue;
    return Error(ErrorKind::kMissingFile, "a rank wrote its file, but not here")
        .File(path.string())
        .Expected(FormatByteSize(file.size_bytes))
        .Actual(stat.type == FileType::kMissing ? "nothing" : FormatByteSize(stat.size_bytes))
        .Hint("every rank must see the same folder to save in");
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
  Status opened;
  if (world_.rank() == 0) {
    Result<StagedDirectory> staged = StagedDirectory::Open(storage_, job_.target, job_.staging);
    if (staged.ok()) {
      staged_ = std::move(staged).value();
    } else {
      opened = std::move(staged).status();
    }
  }
  // Nobody writes before the directory is there, or into another one.
  CKPT_RETURN_IF_ERROR(AgreeOn(world_, opened));
  CKPT_RETURN_IF_ERROR(AgreeOnText(world_, job_.target.string(), "folder to save in"));
  phase_ = Phase::kWriting;
  writing_ = std::async(std::launch::async, [this] {
    return Execute(job_.plan, *job_.source, storage_, StagingOf(job_.target),
                   {.own_files = FilesOf(job_.writers, world_.rank()),
                    .progress = job_.progress,
                    .phase = "save",
                    .stop = stop_.get_token()});
  });
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
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> accounts,
                        ExchangeTexts(world_, SerializeManifest(AccountOf(job_, *written))));
  phase_ = Phase::kCommitting;
  if (world_.rank() != 0) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(Manifest manifest, JoinAccounts(accounts));
  committing_ = std::async(std::launch::async, [this, manifest = std::move(manifest)]() mutable {
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
