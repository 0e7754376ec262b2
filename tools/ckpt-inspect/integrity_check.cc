#include "tools/ckpt-inspect/integrity_check.h"

#include <algorithm>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/hash.h"
#include "core/base/task_pool.h"
#include "core/base/units.h"
#include "core/json/json_reader.h"

namespace ckpt::inspect {
namespace {

constexpr std::uint64_t kMaxIntegrityBytes = 64 * kMiB;
constexpr std::uint64_t kBlockBytes = 4 * kMiB;

struct ListedFile {
  std::string name;
  std::string sha256;
};

Result<std::vector<ListedFile>> ReadList(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, path, kMaxIntegrityBytes));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, path.string()));
  CKPT_ASSIGN_OR_RETURN(const JsonCursor algorithm, document.root().At("algorithm"));
  CKPT_ASSIGN_OR_RETURN(const std::string name, algorithm.Text());
  if (name != "sha256") {
    return Error(ErrorKind::kUnsupported, "unknown algorithm").Expected("sha256").Actual(name);
  }
  CKPT_ASSIGN_OR_RETURN(const JsonCursor files, document.root().At("files"));
  CKPT_ASSIGN_OR_RETURN(const auto members, files.Members());
  std::vector<ListedFile> list;
  for (const auto& [file, cursor] : members) {
    CKPT_ASSIGN_OR_RETURN(std::string sha256, cursor.Text());
    list.push_back({file, std::move(sha256)});
  }
  return list;
}

// Returns the number of bytes compared.
Result<std::uint64_t> CheckFile(Storage& storage, const Path& directory, const ListedFile& listed) {
  CKPT_ASSIGN_OR_RETURN(const Path path, JoinInside(directory, listed.name));
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.type == FileType::kMissing) {
    return Error(ErrorKind::kMissingFile, "a file that integrity.json lists is not there");
  }
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, storage.Open(path));
  Hasher hasher(HashAlgorithm::kSha256);
  Bytes block(std::min(kBlockBytes, file->size_bytes()));
  for (std::uint64_t at = 0; at < file->size_bytes(); at += block.size()) {
    const std::uint64_t length = std::min<std::uint64_t>(block.size(), file->size_bytes() - at);
    const MutableByteSpan part = MutableByteSpan(block).first(length);
    CKPT_RETURN_IF_ERROR(file->ReadAt(at, part));
    hasher.Update(part);
  }
  if (const std::string actual = hasher.Finish(); actual != listed.sha256) {
    return Error(ErrorKind::kChecksum, "SHA-256 of the file differs from integrity.json")
        .Expected(listed.sha256)
        .Actual(actual);
  }
  return file->size_bytes();
}

}  // namespace

std::optional<CheckedBytes> CheckIntegrityFile(Storage& storage, const Path& directory, int threads,
                                               ProgressSink& progress) {
  const Path path = directory / "integrity.json";
  const Result<FileStat> stat = storage.Stat(path);
  if (stat.ok() && stat->type == FileType::kMissing) return std::nullopt;
  CheckedBytes all;
  const Result<std::vector<ListedFile>> list = ReadList(storage, path);
  if (!list.ok()) {
    all.problems = Status(list.status()).File(path.string()).problems();
    return all;
  }
  std::vector<Result<std::uint64_t>> results(list->size(), Result<std::uint64_t>(0));
  const auto check = [&](std::size_t i, std::size_t /*worker*/) {
    const ListedFile& listed = (*list)[i];
    results[i] = CheckFile(storage, directory, listed);
    if (results[i].ok()) progress.OnDone(listed.name, *results[i]);
    return OkStatus();
  };
  const Status done = RunTasks(list->size(), threads, std::stop_token(), check);
  CKPT_CHECK(done.ok());  // tasks do not fail: errors are results
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (results[i].ok()) {
      all.checked_bytes += *results[i];
      continue;
    }
    const Status annotated = Status(results[i].status()).File((*list)[i].name);
    for (const Problem& problem : annotated.problems()) all.problems.push_back(problem);
  }
  return all;
}

}  // namespace ckpt::inspect
