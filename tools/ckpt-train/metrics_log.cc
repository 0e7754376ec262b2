#include "tools/ckpt-train/metrics_log.h"

#include <optional>
#include <string>
#include <utility>

#include "core/base/bytes.h"
#include "core/base/quote.h"
#include "core/json/json_reader.h"

namespace ckpt::train {
namespace {

// Nothing if the line is none of ours.
std::optional<std::int64_t> StepOf(std::string_view line) {
  const Result<JsonDocument> json = JsonDocument::Parse(line, "line");
  if (!json.ok()) return std::nullopt;
  const std::optional<JsonCursor> step = json->root().Find("step");
  if (!step) return std::nullopt;
  const Result<std::int64_t> number = step->Int64();
  if (!number.ok()) return std::nullopt;
  return *number;
}

Status NoMetrics(std::string_view line, const std::string& name) {
  return Error(ErrorKind::kBadMetadata, "a line of the file is no step's metrics")
      .File(name)
      .Actual(Quote(line, 60))
      .Hint("name a new file: this one stays as it is");
}

// Bytes of the lines up to step `last_step`. Steps ascend, so it reads from the end as many lines as go.
Result<std::size_t> KeptBytes(std::string_view text, std::int64_t last_step,
                              const std::string& name) {
  std::size_t end = text.rfind('\n') + 1;  // npos wraps to nothing
  if (end < text.size() && text[end] != '{') return NoMetrics(text.substr(end), name);
  while (end > 0) {
    const std::size_t begin = end >= 2 ? text.rfind('\n', end - 2) + 1 : 0;
    const std::string_view line = text.substr(begin, end - 1 - begin);
    const std::optional<std::int64_t> step = StepOf(line);
    if (!step) return NoMetrics(line, name);
    if (*step <= last_step) break;
    end = begin;
  }
  return end;
}

Result<std::size_t> KeptBytesOf(Storage& storage, const Path& path, std::int64_t last_step) {
  CKPT_ASSIGN_OR_RETURN(const auto file, storage.Open(path));
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<FileView> view, file->View());
  return KeptBytes(AsText(view->bytes()), last_step, path.string());
}

}  // namespace

Result<MetricsLog> MetricsLog::Open(Storage& storage, const Path& path, std::int64_t last_step) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.type == FileType::kMissing) {
    const Path directory = path.parent_path();
    if (!directory.empty()) CKPT_RETURN_IF_ERROR(storage.MakeDirectories(directory));
    CKPT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, storage.Create(path));
    return MetricsLog(std::move(file), 0);
  }
  CKPT_ASSIGN_OR_RETURN(const std::size_t kept, KeptBytesOf(storage, path, last_step));
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, storage.OpenForUpdate(path));
  CKPT_RETURN_IF_ERROR(file->Resize(kept));
  return MetricsLog(std::move(file), kept);
}

Status MetricsLog::Append(std::string_view line) {
  CKPT_RETURN_IF_ERROR(file_->WriteAt(size_bytes_, AsBytes(line)));
  size_bytes_ += line.size();
  return OkStatus();
}

Status MetricsLog::Sync() { return file_->Sync(); }

}  // namespace ckpt::train
