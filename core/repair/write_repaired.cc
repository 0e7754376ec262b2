#include "core/repair/write_repaired.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/base/checked_math.h"
#include "core/base/task_pool.h"
#include "core/repair/internal/checked_block.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kBlocksPerTask = 16;

// One thread's memory.
struct RepairBuffers {
  Bytes block;    // the block to write
  Bytes sibling;  // the block of another file of the group
  Bytes sum;      // the sum of the other files' blocks
};

class Repairer {
 public:
  Repairer(Storage& storage, const Path& from, const Manifest& manifest, const RepairPlan& plan,
           const Path& to, const WriteRepairedOptions& options)
      : storage_(storage),
        from_(from),
        manifest_(manifest),
        plan_(plan),
        to_(to),
        options_(options),
        has_other_size_(manifest.files.size()),
        buffers_(static_cast<std::size_t>(std::max(options.threads, 1))) {
    for (const DamagedFile& damaged : plan.sizes) has_other_size_[damaged.file] = true;
  }

  Result<std::vector<RepairedPlace>> Run();

 private:
  // Consecutive blocks of the file that is being copied, and what was repaired in them.
  struct Task {
    std::uint64_t first_block = 0;
    std::uint64_t end_block = 0;
    std::vector<RepairedPlace> repaired;
  };

  Status CopyFile(std::size_t file);
  Status CopyBlocks(std::size_t file, WritableFile& out, Task& task, RepairBuffers& buffers) const;
  // Fills `buffers.block` with the right bytes.
  Result<RepairedPlace> Repair(const BlockRepair& repair, RepairBuffers& buffers) const;
  Status FlipBack(const BlockRepair& repair, Bytes& block) const;
  // Fills `buffers.sum` with what the other files of the group say about the block.
  Status AddUpOthers(const BlockRepair& repair, RepairBuffers& buffers) const;
  Status ReadBlock(std::size_t file, std::uint64_t block, Bytes& bytes) const;
  [[nodiscard]] const BlockRepair* FindRepair(std::size_t file, std::uint64_t block) const;
  void Tell(RepairedPlace place);

  Storage& storage_;
  const Path& from_;
  const Manifest& manifest_;
  const RepairPlan& plan_;
  const Path& to_;
  const WriteRepairedOptions& options_;
  std::vector<bool> has_other_size_;  // one per file
  std::vector<RepairBuffers> buffers_;
  std::vector<RepairedPlace> repaired_;
};

const BlockRepair* Repairer::FindRepair(std::size_t file, std::uint64_t block) const {
  const auto at = std::pair(file, block);
  const auto it = std::lower_bound(plan_.blocks.begin(), plan_.blocks.end(), at,
                                   [](const BlockRepair& repair, const auto& wanted) {
                                     return std::pair(repair.file, repair.block) < wanted;
                                   });
  const bool is_there = it != plan_.blocks.end() && it->file == file && it->block == block;
  return is_there ? &*it : nullptr;
}

// A block of another file of a group: intact, or repaired by flipping one bit.
Status Repairer::ReadBlock(std::size_t file, std::uint64_t block, Bytes& bytes) const {
  const BlockRepair* const repair = FindRepair(file, block);
  if (repair != nullptr && repair->flip) return FlipBack(*repair, bytes);
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> stored,
                        storage_.Open(from_ / manifest_.files[file].name));
  return internal::ReadCheckedBlock(*stored, manifest_.files[file], block, bytes);
}

Status Repairer::FlipBack(const BlockRepair& repair, Bytes& block) const {
  const ManifestFile& file = manifest_.files[repair.file];
  const BlockExtent extent = ExtentOfBlock(repair.block, file.size_bytes);
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> stored,
                        storage_.Open(from_ / file.name));
  block.resize(extent.size_bytes);
  CKPT_RETURN_IF_ERROR(stored->ReadAt(extent.offset_bytes, block));
  block[repair.flip->offset_bytes - extent.offset_bytes] ^= std::byte{1} << repair.flip->bit;
  return internal::CheckBlock(file, repair.block, block);
}

Status Repairer::AddUpOthers(const BlockRepair& repair, RepairBuffers& buffers) const {
  const ParityGroup& group = manifest_.parity[*repair.group];
  buffers.sum.assign(kManifestBlockBytes, std::byte{0});
  const auto add = [&](const std::string& name) -> Status {
    const std::size_t file = *manifest_.FindFile(name);
    const bool has_block = repair.block < manifest_.files[file].block_crc32c.size();
    if (file == repair.file || !has_block) return OkStatus();
    CKPT_RETURN_IF_ERROR(ReadBlock(file, repair.block, buffers.sibling));
    internal::XorInto(buffers.sibling, buffers.sum);
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(add(group.parity_file));
  for (const std::string& member : group.members) CKPT_RETURN_IF_ERROR(add(member));
  const ManifestFile& file = manifest_.files[repair.file];
  buffers.sum.resize(ExtentOfBlock(repair.block, file.size_bytes).size_bytes);
  return internal::CheckBlock(file, repair.block, buffers.sum).While("rebuilding it from parity");
}

Result<RepairedPlace> Repairer::Repair(const BlockRepair& repair, RepairBuffers& buffers) const {
  const ManifestFile& file = manifest_.files[repair.file];
  if (repair.flip) {
    CKPT_RETURN_IF_ERROR(FlipBack(repair, buffers.block));
    return RepairedPlace{.file = file.name,
                         .offset_bytes = repair.flip->offset_bytes,
                         .size_bytes = 1,
                         .source = RepairSource::kBit,
                         .bit = repair.flip->bit};
  }
  CKPT_RETURN_IF_ERROR(AddUpOthers(repair, buffers));
  buffers.block.swap(buffers.sum);
  return RepairedPlace{.file = file.name,
                       .offset_bytes = repair.block * kManifestBlockBytes,
                       .size_bytes = buffers.block.size(),
                       .source = RepairSource::kParity};
}

Status Repairer::CopyBlocks(std::size_t file, WritableFile& out, Task& task,
                            RepairBuffers& buffers) const {
  const ManifestFile& written = manifest_.files[file];
  // Opened when first needed: a lost file cannot be opened.
  std::shared_ptr<const ReadableFile> stored;
  for (std::uint64_t block = task.first_block; block < task.end_block; ++block) {
    if (const BlockRepair* const repair = FindRepair(file, block)) {
      CKPT_ASSIGN_OR_RETURN(RepairedPlace place, Repair(*repair, buffers));
      task.repaired.push_back(std::move(place));
    } else {
      if (stored == nullptr) {
        CKPT_ASSIGN_OR_RETURN(stored, storage_.Open(from_ / written.name));
      }
      CKPT_RETURN_IF_ERROR(internal::ReadCheckedBlock(*stored, written, block, buffers.block));
    }
    const std::uint64_t offset = block * kManifestBlockBytes;
    CKPT_RETURN_IF_ERROR(out.WriteAt(offset, buffers.block));
    out.StartWriteback(offset, buffers.block.size());
    if (options_.progress != nullptr) options_.progress->OnDone(written.name, buffers.block.size());
  }
  return OkStatus();
}

// Joins a block that parity gave with the place before it.
void Repairer::Tell(RepairedPlace place) {
  if (place.source == RepairSource::kParity && !repaired_.empty()) {
    RepairedPlace& last = repaired_.back();
    const bool continues = last.source == RepairSource::kParity && last.file == place.file &&
                           last.offset_bytes + last.size_bytes == place.offset_bytes;
    if (continues) {
      last.size_bytes += place.size_bytes;
      return;
    }
  }
  repaired_.push_back(std::move(place));
}

Status Repairer::CopyFile(std::size_t file) {
  const ManifestFile& written = manifest_.files[file];
  const Path path = to_ / written.name;
  CKPT_RETURN_IF_ERROR(storage_.MakeDirectories(path.parent_path()));
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> out, storage_.Create(path));
  CKPT_RETURN_IF_ERROR(out->Resize(written.size_bytes));
  const std::uint64_t num_blocks = written.block_crc32c.size();
  std::vector<Task> tasks(CeilDiv(num_blocks, kBlocksPerTask));
  const auto copy = [&](std::size_t t, std::size_t worker) {
    tasks[t].first_block = t * kBlocksPerTask;
    tasks[t].end_block = std::min((t + 1) * kBlocksPerTask, num_blocks);
    return CopyBlocks(file, *out, tasks[t], buffers_[worker]);
  };
  CKPT_RETURN_IF_ERROR(
      RunTasks(tasks.size(), static_cast<int>(buffers_.size()), options_.stop, copy));
  CKPT_RETURN_IF_ERROR(out->Sync());
  CKPT_RETURN_IF_ERROR(out->Close());
  for (Task& task : tasks) {
    for (RepairedPlace& place : task.repaired) Tell(std::move(place));
  }
  if (has_other_size_[file]) {
    Tell({.file = written.name,
          .offset_bytes = written.size_bytes,
          .source = RepairSource::kManifest});
  }
  return OkStatus();
}

Result<std::vector<RepairedPlace>> Repairer::Run() {
  if (options_.progress != nullptr) {
    std::uint64_t bytes = 0;
    for (const ManifestFile& file : manifest_.files) bytes += file.size_bytes;
    options_.progress->OnPhase("repair", bytes, manifest_.files.size());
  }
  for (std::size_t file = 0; file < manifest_.files.size(); ++file) {
    if (!IsTracker(manifest_.files[file].name)) CKPT_RETURN_IF_ERROR(CopyFile(file));
  }
  return std::move(repaired_);
}

}  // namespace

Result<std::vector<RepairedPlace>> WriteRepaired(Storage& storage, const Path& from,
                                                 const Manifest& manifest, const RepairPlan& plan,
                                                 const Path& to,
                                                 const WriteRepairedOptions& options) {
  return Repairer(storage, from, manifest, plan, to, options).Run();
}

}  // namespace ckpt
