#include "trainer/metrics/event_file.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace ckpt::train {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string HostName() {
  std::array<char, 256> name = {};
  const bool is_known = ::gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0';
  return is_known ? std::string(name.data()) : "localhost";
}

constexpr std::string_view kEventPrefix = "events.out.tfevents.";
constexpr std::string_view kRunMark = ".ckptkit-";  // before the run's id, at the end of the name

// Readers look for "tfevents" and read files in the order of their names, so the time comes first.
Path FileName(const Path& directory, const std::string& run_id) {
  return directory / fmt::format("{}{:.6f}.{}.{}{}{}", kEventPrefix, Now(), HostName(), ::getpid(),
                                 kRunMark, run_id);
}

// A reader takes all files of a directory for one run.
Status CheckHoldsNoOther(Storage& storage, const Path& directory, const RunPosition& run) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  for (const DirectoryEntry& entry : entries) {
    if (!entry.name.starts_with(kEventPrefix)) continue;
    const std::size_t mark = entry.name.rfind(kRunMark);
    const bool is_ours = mark == std::string::npos
                             ? run.last_step > 0
                             : entry.name.substr(mark + kRunMark.size()) == run.run_id;
    if (is_ours) continue;
    return Error(ErrorKind::kAlreadyExists, "the directory holds the event files of another run")
        .File((directory / entry.name).string())
        .Expected("run " + run.run_id)
        .Hint("name a new tensorboard_dir, or empty this one");
  }
  return OkStatus();
}

}  // namespace

Result<EventFile> EventFile::Take(Storage& storage, const Path& directory) {
  EventFile file(storage, CanonicalPath(directory));  // so that a link to it has the same lock
  CKPT_ASSIGN_OR_RETURN(file.made_, MadeDirectories::Make(storage, file.directory_));
  CKPT_ASSIGN_OR_RETURN(file.lock_, storage.Lock(file.directory_));
  return file;
}

Status EventFile::Begin(const RunPosition& run) {
  CKPT_RETURN_IF_ERROR(CheckHoldsNoOther(*storage_, directory_, run));
  CKPT_ASSIGN_OR_RETURN(file_, storage_->Create(FileName(directory_, run.run_id)));
  CKPT_RETURN_IF_ERROR(AppendEvent(VersionEvent(Now())));
  return AppendEvent(RestartEvent(Now(), run.last_step + 1));
}

Status EventFile::Add(std::int64_t step, std::span<const Scalar> scalars) {
  return AppendEvent(ScalarEvent(Now(), step, scalars));
}

Status EventFile::Sync() { return file_->Sync(); }

Status EventFile::AppendEvent(ByteSpan event) {
  const Bytes record = FrameRecord(event);
  CKPT_RETURN_IF_ERROR(file_->WriteAt(size_bytes_, record));
  size_bytes_ += record.size();
  return OkStatus();
}

}  // namespace ckpt::train
