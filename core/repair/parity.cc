#include "core/repair/parity.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/base/hash.h"
#include "core/base/task_pool.h"
#include "core/repair/internal/checked_block.h"

namespace ckpt {
namespace {

// A file is opened once per window. With this many blocks the cost of opening is negligible.
constexpr std::uint64_t kMaxWindowBlocks = 8;

std::uint64_t NumBlocks(std::uint64_t size_bytes) {
  return CeilDiv(size_bytes, kManifestBlockBytes);
}

// One thread's memory.
struct ParityBuffers {
  Bytes block;  // one block of a member
  Bytes sum;    // one window of the parity file
};

// One parity file while it is being made.
class ParityFile {
 public:
  ParityFile(Storage& storage, const Path& directory, std::vector<const ManifestFile*> members,
             const ParityOptions& options, std::vector<ParityBuffers>& buffers)
      : storage_(storage),
        directory_(directory),
        members_(std::move(members)),
        options_(options),
        buffers_(buffers) {
    for (const ManifestFile* member : members_) {
      written_.size_bytes = std::max(written_.size_bytes, member->size_bytes);
    }
    written_.block_crc32c.resize(NumBlocks(written_.size_bytes));
    written_.block_crc32.resize(NumBlocks(written_.size_bytes));
    const std::uint64_t budget_blocks =
        options.memory_budget_bytes / buffers.size() / kManifestBlockBytes;
    window_blocks_ = std::clamp(budget_blocks, std::uint64_t{2}, kMaxWindowBlocks + 1) - 1;
  }

  Result<ManifestFile> Write(const std::string& name);

 private:
  Status WriteWindow(std::uint64_t first_block, ParityBuffers& buffers);
  Status AddMember(const ManifestFile& member, std::uint64_t first_block,
                   ParityBuffers& buffers) const;

  Storage& storage_;
  const Path& directory_;
  const std::vector<const ManifestFile*> members_;
  const ParityOptions& options_;
  std::vector<ParityBuffers>& buffers_;  // one per thread
  std::uint64_t window_blocks_ = 1;
  std::unique_ptr<WritableFile> out_;
  ManifestFile written_;  // each window fills in its own blocks
};

Status ParityFile::AddMember(const ManifestFile& member, std::uint64_t first_block,
                             ParityBuffers& buffers) const {
  const std::uint64_t end =
      std::min<std::uint64_t>(first_block + window_blocks_, member.block_crc32c.size());
  if (first_block >= end) return OkStatus();
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file,
                        storage_.Open(directory_ / member.name));
  for (std::uint64_t block = first_block; block < end; ++block) {
    CKPT_RETURN_IF_ERROR(internal::ReadCheckedBlock(*file, member, block, buffers.block));
    const std::uint64_t at = (block - first_block) * kManifestBlockBytes;
    internal::XorInto(buffers.block, MutableByteSpan(buffers.sum).subspan(at));
    if (options_.progress != nullptr) options_.progress->OnDone(member.name, buffers.block.size());
  }
  return OkStatus();
}

Status ParityFile::WriteWindow(std::uint64_t first_block, ParityBuffers& buffers) {
  const std::uint64_t offset = first_block * kManifestBlockBytes;
  buffers.sum.assign(std::min(window_blocks_ * kManifestBlockBytes, written_.size_bytes - offset),
                     std::byte{0});
  for (const ManifestFile* member : members_) {
    CKPT_RETURN_IF_ERROR(AddMember(*member, first_block, buffers));
  }
  std::uint64_t block = first_block;
  for (ByteSpan rest = buffers.sum; !rest.empty(); ++block) {
    const std::size_t length = std::min<std::size_t>(kManifestBlockBytes, rest.size());
    written_.block_crc32c[block] = Crc32c(rest.first(length));
    written_.block_crc32[block] = Crc32(rest.first(length));
    rest = rest.subspan(length);
  }
  CKPT_RETURN_IF_ERROR(out_->WriteAt(offset, buffers.sum));
  out_->StartWriteback(offset, buffers.sum.size());
  return OkStatus();
}

Result<ManifestFile> ParityFile::Write(const std::string& name) {
  written_.name = name;
  CKPT_ASSIGN_OR_RETURN(out_, storage_.Create(directory_ / name));
  // Reserve the whole size at once: a full disk shows before the work starts.
  CKPT_RETURN_IF_ERROR(out_->Resize(written_.size_bytes));
  const auto write_window = [&](std::size_t window, std::size_t worker) {
    return WriteWindow(window * window_blocks_, buffers_[worker]);
  };
  CKPT_RETURN_IF_ERROR(RunTasks(CeilDiv(written_.block_crc32c.size(), window_blocks_),
                                static_cast<int>(buffers_.size()), options_.stop, write_window));
  CKPT_RETURN_IF_ERROR(out_->Sync());
  CKPT_RETURN_IF_ERROR(out_->Close());
  return std::move(written_);
}

}  // namespace

std::size_t CountParityFiles(std::size_t num_files, std::size_t group_size) {
  CKPT_CHECK(group_size > 0);
  return CeilDiv(num_files, group_size);
}

std::vector<ParityGroup> GroupForParity(std::span<const ManifestFile> files,
                                        std::size_t group_size) {
  std::vector<const ManifestFile*> sorted;
  for (const ManifestFile& file : files) {
    if (!IsTracker(file.name)) sorted.push_back(&file);
  }
  std::sort(sorted.begin(), sorted.end(), [](const ManifestFile* a, const ManifestFile* b) {
    return a->size_bytes != b->size_bytes ? a->size_bytes > b->size_bytes : a->name < b->name;
  });
  std::vector<ParityGroup> groups(CountParityFiles(sorted.size(), group_size));
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    groups[i / group_size].members.push_back(sorted[i]->name);
  }
  for (std::size_t g = 0; g < groups.size(); ++g) groups[g].parity_file = ParityName(g);
  return groups;
}

Result<WrittenParity> WriteParity(Storage& storage, const Path& directory,
                                  std::span<const ManifestFile> files,
                                  const ParityOptions& options) {
  std::map<std::string_view, const ManifestFile*> by_name;
  std::uint64_t total_bytes = 0;
  for (const ManifestFile& file : files) {
    by_name[file.name] = &file;
    if (!IsTracker(file.name)) total_bytes += file.size_bytes;
  }
  WrittenParity written;
  written.groups = GroupForParity(files, options.group_size);
  if (options.progress != nullptr)
    options.progress->OnPhase("parity", total_bytes, written.groups.size());
  std::vector<ParityBuffers> buffers(static_cast<std::size_t>(std::max(options.threads, 1)));
  for (const ParityGroup& group : written.groups) {
    std::vector<const ManifestFile*> members;
    for (const std::string& name : group.members) members.push_back(by_name.at(name));
    ParityFile file(storage, directory, std::move(members), options, buffers);
    CKPT_ASSIGN_OR_RETURN(ManifestFile made, file.Write(group.parity_file));
    written.files.push_back(std::move(made));
  }
  return written;
}

}  // namespace ckpt
