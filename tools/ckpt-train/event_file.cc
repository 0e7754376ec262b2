#include "tools/ckpt-train/event_file.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <utility>

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

// Readers look for "tfevents" and take files in the order of their names: the time comes first.
Path FileName(const Path& directory) {
  return directory / fmt::format("events.out.tfevents.{:.6f}.{}.{}", Now(), HostName(), ::getpid());
}

}  // namespace

Result<EventFile> EventFile::Create(Storage& storage, const Path& directory,
                                    std::int64_t first_step) {
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(directory));
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> created, storage.Create(FileName(directory)));
  EventFile file(std::move(created));
  CKPT_RETURN_IF_ERROR(file.AppendEvent(VersionEvent(Now())));
  CKPT_RETURN_IF_ERROR(file.AppendEvent(RestartEvent(Now(), first_step)));
  return file;
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
