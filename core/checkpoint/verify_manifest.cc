#include "core/checkpoint/verify_manifest.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/base/hash.h"
#include "core/checkpoint/index.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kBlocksPerTask = 64;
constexpr std::uint64_t kMaxTrackerBytes = 4096;

// A run of blocks of one file, and what reading it showed.
struct Task {
  const ManifestFile* file = nullptr;
  std::uint64_t first_block = 0;
  std::uint64_t end_block = 0;
  std::vector<Problem> problems;
  Status failure;
};

Status VerifyBlocks(Storage& storage, const Path& path, Bytes& buffer, const VerifyOptions& options,
                    Task& task) {
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, storage.Open(path));
  for (std::uint64_t block = task.first_block; block < task.end_block; ++block) {
    const std::uint64_t offset = block * kManifestBlockBytes;
    const std::uint64_t length = std::min(kManifestBlockBytes, task.file->size_bytes - offset);
    const MutableByteSpan bytes = MutableByteSpan(buffer).first(length);
    CKPT_RETURN_IF_ERROR(file->ReadAt(offset, bytes));
    const std::uint32_t expected = task.file->block_crc32c[block];
    const std::uint32_t actual = Crc32c(bytes);
    if (actual != expected) {
      task.problems.push_back(Error(ErrorKind::kChecksum, "block differs from what was written")
                                  .File(DescribeRange(task.file->name, offset, length))
                                  .Expected("crc32c " + Hex32(expected))
                                  .Actual("crc32c " + Hex32(actual))
                                  .first());
    }
    if (options.on_progress) options.on_progress(length);
  }
  return OkStatus();
}

// What the file's size alone shows, if anything.
Status CheckSize(const FileStat& stat, const ManifestFile& file) {
  if (stat.type != FileType::kRegular) {
    return Error(ErrorKind::kMissingFile, "a file of the checkpoint is missing").File(file.name);
  }
  if (stat.size_bytes == file.size_bytes) return OkStatus();
  const bool shorter = stat.size_bytes < file.size_bytes;
  return Error(
             shorter ? ErrorKind::kTruncated : ErrorKind::kSizeMismatch,
             shorter ? "file is shorter than it was written" : "file is longer than it was written")
      .File(file.name)
      .Expected(fmt::format("{} bytes", file.size_bytes))
      .Actual(fmt::format("{} bytes", stat.size_bytes));
}

// "release" or an iteration, as Megatron reads it.
bool IsTrackerText(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return false;
  text = text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
  return text == "release" || text.find_first_not_of("0123456789") == std::string_view::npos;
}

// The tracker lies outside the checkpoint: training that goes on rewrites it, a copy of the
// checkpoint alone lacks it. Neither touches what the manifest proves.
Result<std::optional<Problem>> CheckForeignTracker(Storage& storage, const Path& directory,
                                                   const ManifestFile& file) {
  const Path path = directory / file.name;
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  if (stat.type == FileType::kMissing) {
    return std::optional(
        Warning(ErrorKind::kValueMismatch, "no tracker beside the checkpoint names it", file.name));
  }
  if (stat.type != FileType::kRegular || stat.size_bytes > kMaxTrackerBytes)
    return std::optional<Problem>();
  CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, path, kMaxTrackerBytes));
  const bool as_written = text.size() == file.size_bytes &&
                          (text.empty() || Crc32c(AsBytes(text)) == file.block_crc32c.front());
  if (as_written || !IsTrackerText(text)) return std::optional<Problem>();
  return std::optional(
      Warning(ErrorKind::kValueMismatch, "the tracker was rewritten since", file.name));
}

void RunTasks(Storage& storage, const Path& directory, const VerifyOptions& options,
              std::vector<Task>& tasks) {
  // Tasks are claimed in order, and each is touched by the one thread that claimed it; joining orders the rest.
  std::atomic<std::size_t> next = 0;
  // What a thread threw, for the caller's: memory may run out, and a thread has nobody to tell.
  std::vector<std::exception_ptr> thrown(static_cast<std::size_t>(std::max(options.threads, 1)));
  const auto work = [&](std::size_t worker) {
    try {
      Bytes buffer(kManifestBlockBytes);
      for (std::size_t i = next++; i < tasks.size(); i = next++) {
        tasks[i].failure =
            VerifyBlocks(storage, directory / tasks[i].file->name, buffer, options, tasks[i]);
      }
    } catch (const std::exception&) {
      thrown[worker] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> threads;
    try {
      for (std::size_t i = 1; i < thrown.size(); ++i) threads.emplace_back(work, i);
    } catch (const std::system_error&) {
      // No more threads are to be had: those there are do the work.
    }
    work(0);
  }
  for (const std::exception_ptr& one : thrown) {
    if (one != nullptr) std::rethrow_exception(one);
  }
}

Result<std::vector<Problem>> FindLeftovers(Storage& storage, const Path& directory,
                                           const Manifest& manifest) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListRecursively(storage, directory));
  std::vector<Problem> problems;
  for (const std::string& name : names) {
    const auto it =
        std::lower_bound(manifest.files.begin(), manifest.files.end(), name,
                         [](const ManifestFile& f, const std::string& n) { return f.name < n; });
    const bool known = it != manifest.files.end() && it->name == name;
    if (known || name == kManifestName) continue;
    problems.push_back(Warning(ErrorKind::kLeftover, "the manifest does not know the file", name));
  }
  return problems;
}

}  // namespace

Result<std::vector<Problem>> VerifyManifest(Storage& storage, const Path& directory,
                                            const Manifest& manifest,
                                            const VerifyOptions& options) {
  std::vector<Problem> problems;
  std::vector<Task> tasks;
  for (const ManifestFile& file : manifest.files) {
    if (file.name == kMegatronTracker) {
      CKPT_ASSIGN_OR_RETURN(std::optional<Problem> tracker,
                            CheckForeignTracker(storage, directory, file));
      if (tracker) {
        problems.push_back(*std::move(tracker));
        continue;
      }
    }
    CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory / file.name));
    if (const Status status = CheckSize(stat, file); !status.ok()) {
      problems.push_back(status.first());
      if (status.kind() != ErrorKind::kSizeMismatch) continue;
    }
    const std::uint64_t blocks = file.block_crc32c.size();
    for (std::uint64_t begin = 0; begin < blocks; begin += kBlocksPerTask) {
      Task task;
      task.file = &file;
      task.first_block = begin;
      task.end_block = std::min(begin + kBlocksPerTask, blocks);
      tasks.push_back(std::move(task));
    }
  }
  RunTasks(storage, directory, options, tasks);
  for (Task& task : tasks) {
    CKPT_RETURN_IF_ERROR(std::move(task.failure));
    for (Problem& problem : task.problems) problems.push_back(std::move(problem));
  }
  CKPT_ASSIGN_OR_RETURN(const std::vector<Problem> leftovers,
                        FindLeftovers(storage, directory, manifest));
  problems.insert(problems.end(), leftovers.begin(), leftovers.end());
  return problems;
}

}  // namespace ckpt
