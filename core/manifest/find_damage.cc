#include "core/manifest/find_damage.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/hash.h"
#include "core/base/task_pool.h"
#include "core/io/checksummed_read.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kBlocksPerTask = 64;

// Consecutive blocks of one file, and what reading them showed.
struct Task {
  std::size_t file = 0;
  std::uint64_t first_block = 0;
  std::uint64_t end_block = 0;
  std::vector<DamagedBlock> damaged;
};

class Scan {
 public:
  Scan(Storage& storage, const Path& directory, const Manifest& manifest, const RunRoot& root,
       const VerifyOptions& options)
      : storage_(storage),
        directory_(directory),
        manifest_(manifest),
        root_(root),
        options_(options) {}

  Result<Damage> Run();

 private:
  Status CheckFile(std::size_t file);
  Status CheckTracker(std::size_t file);
  Status CompareBlocks();
  Status ReadTask(Bytes& buffer, Task& task) const;
  Status FindLeftovers();

  Storage& storage_;
  const Path& directory_;
  const Manifest& manifest_;
  const RunRoot& root_;
  const VerifyOptions& options_;
  std::vector<Task> tasks_;
  Damage damage_;
};

Status Scan::CheckTracker(std::size_t file) {
  const ManifestFile& written = manifest_.files[file];
  const Path path = directory_ / written.name;
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage_.Stat(path));
  if (stat.type == FileType::kMissing) {
    damage_.tracker = TrackerState::kMissing;
    return OkStatus();
  }
  if (stat.type == FileType::kRegular && stat.size_bytes <= kMaxTrackerBytes) {
    CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage_, path, kMaxTrackerBytes));
    const bool as_written = text.size() == written.size_bytes &&
                            (text.empty() || Crc32c(AsBytes(text)) == written.block_crc32c.front());
    if (!as_written && root_.is_tracker_text(text)) {
      damage_.tracker = TrackerState::kRewritten;
      return OkStatus();
    }
  }
  return CheckFile(file);
}

// Reports what the size alone shows. Blocks that exist are compared by the tasks.
Status Scan::CheckFile(std::size_t file) {
  const ManifestFile& written = manifest_.files[file];
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage_.Stat(directory_ / written.name));
  const bool is_there = stat.type == FileType::kRegular;
  const std::uint64_t size_bytes = is_there ? stat.size_bytes : 0;
  if (!is_there || size_bytes != written.size_bytes) {
    damage_.files.push_back(
        {.file = file, .size_bytes = is_there ? std::optional(size_bytes) : std::nullopt});
  }
  const std::uint64_t num_blocks = written.block_crc32c.size();
  const std::uint64_t whole_blocks =
      size_bytes >= written.size_bytes ? num_blocks : size_bytes / kManifestBlockBytes;
  const bool leaves_blocks = options_.leaves_blocks && options_.leaves_blocks(written.name);
  for (std::uint64_t begin = 0; begin < whole_blocks && !leaves_blocks; begin += kBlocksPerTask) {
    Task task;
    task.file = file;
    task.first_block = begin;
    task.end_block = std::min(begin + kBlocksPerTask, whole_blocks);
    tasks_.push_back(std::move(task));
  }
  for (std::uint64_t block = whole_blocks; block < num_blocks; ++block) {
    damage_.blocks.push_back({.file = file, .block = block});
  }
  return OkStatus();
}

Status Scan::ReadTask(Bytes& buffer, Task& task) const {
  const ManifestFile& written = manifest_.files[task.file];
  const auto is_damage = [&](const Status& status) {
    return options_.unreadable_is_damage && status.kind() == ErrorKind::kIo;
  };
  const Result<std::shared_ptr<const ReadableFile>> file = storage_.Open(directory_ / written.name);
  if (!file.ok() && !is_damage(file.status())) return file.status();
  for (std::uint64_t block = task.first_block; block < task.end_block; ++block) {
    const BlockExtent extent = ExtentOfBlock(block, written.size_bytes);
    buffer.resize(std::max<std::size_t>(buffer.size(), extent.size_bytes));
    const MutableByteSpan bytes = MutableByteSpan(buffer).first(extent.size_bytes);
    const Result<std::uint32_t> crc32c =
        file.ok() ? ReadAtWithCrc32c(**file, extent.offset_bytes, bytes) : file.status();
    if (!crc32c.ok() && !is_damage(crc32c.status())) return crc32c.status();
    std::optional<DamagedBlock> found = DamagedBlock{.file = task.file, .block = block};
    if (crc32c.ok()) found = CompareBlock(manifest_, task.file, block, *crc32c, bytes);
    if (found) task.damaged.push_back(*found);
    if (options_.on_progress) options_.on_progress(extent.size_bytes);
  }
  return OkStatus();
}

Status Scan::CompareBlocks() {
  const int threads = std::max(options_.threads, 1);
  std::vector<Bytes> buffers(static_cast<std::size_t>(threads));  // one block of each
  return RunTasks(tasks_.size(), threads, options_.stop, [&](std::size_t task, std::size_t worker) {
    return ReadTask(buffers[worker], tasks_[task]);
  });
}

Status Scan::FindLeftovers() {
  CKPT_ASSIGN_OR_RETURN(std::vector<std::string> names, ListRecursively(storage_, directory_));
  std::erase_if(names, [&](const std::string& name) {
    const bool is_manifest =
        name == kManifestName || (manifest_.has_copy && name == kManifestCopyName);
    return is_manifest || manifest_.FindFile(name).has_value();
  });
  damage_.leftovers = std::move(names);
  return OkStatus();
}

Result<Damage> Scan::Run() {
  for (std::size_t file = 0; file < manifest_.files.size(); ++file) {
    const std::string& name = manifest_.files[file].name;
    const bool is_tracker = IsTracker(name);
    if (is_tracker) {
      // No other file outside the checkpoint is read, and none is repaired.
      const std::string expected = "../" + std::string(root_.tracker_name);
      const bool is_copy = !root_.copy_name.empty() && name == "../" + std::string(root_.copy_name);
      if (is_copy) {
        // A save that rewrites the tracker, which is in front of it, rewrites it too; and a copy of
        // the checkpoint lacks it.
        CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage_.Stat(directory_ / name));
        const bool is_old = damage_.tracker == TrackerState::kAsWritten;
        if (!is_old || stat.type == FileType::kMissing) continue;
      } else if (name != expected) {
        return Error(ErrorKind::kBadMetadata, "the manifest names a file outside the checkpoint")
            .File((directory_ / std::string(kManifestName)).string())
            .Expected("none but " + expected)
            .Actual(name);
      }
    }
    const bool is_text = is_tracker && name.substr(3) == root_.tracker_name;
    CKPT_RETURN_IF_ERROR(is_text ? CheckTracker(file) : CheckFile(file));
  }
  CKPT_RETURN_IF_ERROR(CompareBlocks());
  for (const Task& task : tasks_) {
    damage_.blocks.insert(damage_.blocks.end(), task.damaged.begin(), task.damaged.end());
  }
  std::sort(damage_.blocks.begin(), damage_.blocks.end(),
            [](const DamagedBlock& a, const DamagedBlock& b) {
              return std::pair(a.file, a.block) < std::pair(b.file, b.block);
            });
  CKPT_RETURN_IF_ERROR(FindLeftovers());
  return std::move(damage_);
}

// CRC-32 of the bytes as they were before one bit flipped.
std::uint32_t Crc32WithFlip(ByteSpan bytes, const FlippedBit& flip) {
  const std::byte whole = bytes[flip.offset_bytes] ^ (std::byte{1} << flip.bit);
  const std::uint32_t before = Crc32(bytes.first(flip.offset_bytes));
  return Crc32(bytes.subspan(flip.offset_bytes + 1), Crc32(ByteSpan(&whole, 1), before));
}

}  // namespace

std::optional<DamagedBlock> CompareBlock(const Manifest& manifest, std::size_t file,
                                         std::uint64_t block, std::uint32_t crc32c,
                                         ByteSpan bytes) {
  const ManifestFile& written = manifest.files[file];
  const std::uint32_t expected = written.block_crc32c[block];
  if (crc32c == expected) return std::nullopt;
  DamagedBlock found{.file = file, .block = block, .crc32c = crc32c};
  const BlockExtent extent = ExtentOfBlock(block, written.size_bytes);
  if (written.block_crc32.empty()) return found;
  const std::optional<FlippedBit> likely = FindFlippedBit(expected, crc32c, extent.size_bytes);
  if (likely && Crc32WithFlip(bytes, *likely) == written.block_crc32[block]) {
    found.flip = {.offset_bytes = extent.offset_bytes + likely->offset_bytes, .bit = likely->bit};
  }
  return found;
}

Result<Damage> FindDamage(Storage& storage, const Path& directory, const Manifest& manifest,
                          const RunRoot& root, const VerifyOptions& options) {
  return Scan(storage, directory, manifest, root, options).Run();
}

BlockExtent ExtentOfBlock(std::uint64_t block, std::uint64_t size_bytes) {
  const std::uint64_t offset = block * kManifestBlockBytes;
  return {.offset_bytes = offset, .size_bytes = std::min(kManifestBlockBytes, size_bytes - offset)};
}

}  // namespace ckpt
