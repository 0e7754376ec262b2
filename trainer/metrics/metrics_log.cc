#include "trainer/metrics/metrics_log.h"

#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/quote.h"
#include "core/json/json_reader.h"

namespace ckpt::train {
namespace {

constexpr std::string_view kLineStart = "{\"step\":";  // as MetricsJson writes it

struct MetricsLine {
  std::int64_t step = 0;
  std::optional<std::string> run_id;
};

// Empty if the line was not written by MetricsJson.
std::optional<MetricsLine> ParseLine(std::string_view text) {
  const Result<JsonDocument> json = JsonDocument::Parse(text, "line");
  if (!json.ok()) return std::nullopt;
  const std::optional<JsonCursor> step = json->root().Find("step");
  if (!step) return std::nullopt;
  const Result<std::int64_t> number = step->Int64();
  if (!number.ok()) return std::nullopt;
  MetricsLine line = {.step = *number, .run_id = {}};
  const std::optional<JsonCursor> run = json->root().Find("run");
  if (!run) return line;
  Result<std::string> id = run->Text();
  if (!id.ok()) return std::nullopt;
  line.run_id = *std::move(id);
  return line;
}

bool IsOf(const MetricsLine& line, const RunPosition& run) {
  return line.run_id ? *line.run_id == run.run_id : run.last_step > 0;
}

Status NoMetrics(std::string_view line, const std::string& name) {
  return Error(ErrorKind::kBadMetadata, "a line of the file is not a step's metrics")
      .File(name)
      .Actual(Quote(line, 60))
      .Hint("name a new file; this one was not changed");
}

Status AnotherRun(const MetricsLine& line, const RunPosition& run, const std::string& name) {
  return Error(ErrorKind::kAlreadyExists, "the file holds the metrics of another run")
      .File(name)
      .Expected("run " + run.run_id)
      .Actual(fmt::format("step {} of {}", line.step,
                          line.run_id ? "run " + *line.run_id : "a run without a name"))
      .Hint("name a new file, or remove this one; it was not changed");
}

// Bytes of the lines up to step `run.last_step`. Steps ascend, so only the lines that are cut off
// are read, from the end.
Result<std::size_t> KeptBytes(std::string_view text, const RunPosition& run,
                              const std::string& name) {
  std::size_t end = text.rfind('\n') + 1;  // npos + 1 is 0
  // The last line may be incomplete.
  const std::string_view tail = text.substr(end);
  if (!tail.starts_with(kLineStart) && !kLineStart.starts_with(tail)) return NoMetrics(tail, name);
  while (end > 0) {
    const std::size_t begin = end >= 2 ? text.rfind('\n', end - 2) + 1 : 0;
    const std::string_view content = text.substr(begin, end - 1 - begin);
    const std::optional<MetricsLine> line = ParseLine(content);
    if (!line) return NoMetrics(content, name);
    if (!IsOf(*line, run)) return AnotherRun(*line, run, name);
    if (line->step <= run.last_step) break;
    end = begin;
  }
  return end;
}

Result<std::size_t> KeptBytesOf(Storage& storage, const Path& path, const RunPosition& run) {
  CKPT_ASSIGN_OR_RETURN(const auto file, storage.Open(path));
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<FileView> view, file->View());
  return KeptBytes(AsText(view->bytes()), run, path.string());
}

}  // namespace

Result<MetricsLog> MetricsLog::Take(Storage& storage, const Path& path) {
  MetricsLog log(storage, path);
  const Path directory = path.parent_path();
  if (!directory.empty()) {
    CKPT_ASSIGN_OR_RETURN(log.directories_, MadeDirectories::Make(storage, directory));
  }
  // A run that ends without a line removes its file, perhaps between any two of these calls.
  while (true) {
    Result<std::unique_ptr<WritableFile>> file = storage.Create(path);
    const bool is_made = file.ok();
    if (!is_made && file.status().kind() == ErrorKind::kAlreadyExists) {
      file = storage.OpenForUpdate(path);
      if (!file.ok() && file.status().kind() == ErrorKind::kNotFound) continue;
    }
    CKPT_ASSIGN_OR_RETURN(log.file_, std::move(file));
    const Status locked = log.file_->Lock();
    if (!locked.ok() && locked.kind() == ErrorKind::kNotFound) continue;
    CKPT_RETURN_IF_ERROR(locked);
    log.is_made_ = is_made;  // only now: a run that was faster may hold the file
    return log;
  }
}

MetricsLog::~MetricsLog() {
  // It does no harm if the file cannot be removed.
  if (file_ && is_made_ && size_bytes_ == 0) (void)storage_->RemoveAll(path_).ok();
}

Status MetricsLog::GoOn(const RunPosition& run) {
  CKPT_ASSIGN_OR_RETURN(size_bytes_, KeptBytesOf(*storage_, path_, run));
  return file_->Resize(size_bytes_);
}

Status MetricsLog::Append(std::string_view line) {
  CKPT_RETURN_IF_ERROR(file_->WriteAt(size_bytes_, AsBytes(line)));
  size_bytes_ += line.size();
  return OkStatus();
}

Status MetricsLog::Sync() { return file_->Sync(); }

}  // namespace ckpt::train
