#include "core/manifest/checked_storage.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/checked_math.h"
#include "core/base/hash.h"
#include "core/io/forwarding_storage.h"
#include "core/manifest/find_damage.h"
#include "core/manifest/internal/shared_blocks.h"
#include "core/manifest/verify_manifest.h"

namespace ckpt {
namespace {

// An open file, and which of its blocks have been checked.
class CheckedFile final : public ReadableFile,
                          public FileOfBlocks,
                          public std::enable_shared_from_this<CheckedFile> {
 public:
  // `number`: position in the manifest's files. `directory`: ends with '/'.
  CheckedFile(std::shared_ptr<const ReadableFile> file, std::string directory,
              std::shared_ptr<const Manifest> manifest, std::shared_ptr<LateIndex> index,
              std::shared_ptr<LateChecks> late, std::shared_ptr<SharedBlocks> blocks,
              std::size_t number)
      : file_(std::move(file)),
        directory_(std::move(directory)),
        manifest_(std::move(manifest)),
        index_(std::move(index)),
        late_(std::move(late)),
        blocks_(std::move(blocks)),
        number_(number),
        checked_(manifest_->files[number].block_crc32c.size() / 64 + 1) {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return file_->size_bytes(); }
  [[nodiscard]] const std::string& name() const override { return file_->name(); }
  [[nodiscard]] bool is_checked() const override { return true; }
  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override;
  Result<std::unique_ptr<FileView>> View() const override;

  // Errors: kTruncated, kSizeMismatch.
  [[nodiscard]] Status CheckSize() const;

  [[nodiscard]] std::uint64_t id() const override { return id_; }
  [[nodiscard]] std::uint32_t number() const override {
    return static_cast<std::uint32_t>(number_);
  }
  [[nodiscard]] std::uint64_t block_bytes(std::uint64_t block) const override {
    return ExtentOfBlock(block, size_bytes()).size_bytes;
  }
  [[nodiscard]] std::uint32_t block_crc32c(std::uint64_t block) const override {
    return manifest_->files[number_].block_crc32c[block];
  }
  [[nodiscard]] bool IsChecked(std::uint64_t block) const override {
    // The bit orders no other memory access: each caller reads the bytes itself.
    return (checked_[block / 64].load(std::memory_order_relaxed) >> block % 64 & 1) != 0;
  }
  Status ReadUnchecked(std::uint64_t block, std::uint64_t skipped_bytes,
                       MutableByteSpan out) const override {
    return file_->ReadAt(block * kManifestBlockBytes + skipped_bytes, out);
  }
  Status Compare(std::uint64_t block, std::uint32_t crc32c) const override;

 private:
  void MarkChecked(std::uint64_t block) const {
    checked_[block / 64].fetch_or(std::uint64_t{1} << block % 64, std::memory_order_relaxed);
  }
  [[nodiscard]] Status DescribeDamage(const DamagedBlock& damaged) const;
  // Reads bytes to where they are wanted, and compares the blocks of which all was read. The
  // others' parts are for the late checks.
  Status ReadThrough(std::uint64_t offset, MutableByteSpan out) const;
  // What was read of a block, from `skipped_bytes` on, has this checksum.
  Status Take(std::uint64_t block, std::uint64_t skipped_bytes, ByteSpan read,
              std::uint32_t crc32c) const;
  // Copies a part of one block to the caller, after the block was checked.
  Status CopyPart(std::uint64_t block, std::uint64_t skipped_bytes, MutableByteSpan out) const;
  // The entry that owns the damaged bytes. Empty if no entry or several own them, or nothing is
  // known.
  [[nodiscard]] std::string OwnerOf(const DamagedBlock& damaged) const;
  // Makes file names full paths: manifests name files within the directory.
  [[nodiscard]] Status InDirectory(Problem problem) const {
    problem.file = directory_ + problem.file;
    return Status(std::move(problem));
  }

  const std::shared_ptr<const ReadableFile> file_;
  const std::string directory_;
  const std::shared_ptr<const Manifest> manifest_;
  const std::shared_ptr<LateIndex> index_;
  const std::shared_ptr<LateChecks> late_;  // null: no check is late
  const std::shared_ptr<SharedBlocks> blocks_;
  const std::size_t number_;
  mutable std::vector<std::atomic<std::uint64_t>> checked_;  // one bit per block
  const std::uint64_t id_ = ++last_id_;  // unique among all files of this process

  static inline std::atomic<std::uint64_t> last_id_ = 0;
};

std::string CheckedFile::OwnerOf(const DamagedBlock& damaged) const {
  if (index_ == nullptr) return {};
  const ManifestFile& file = manifest_->files[number_];
  if (damaged.flip) return index_->OwnerOf(file.name, damaged.flip->offset_bytes, 1);
  const BlockExtent block = ExtentOfBlock(damaged.block, file.size_bytes);
  return index_->OwnerOf(file.name, block.offset_bytes, block.size_bytes);
}

Status CheckedFile::DescribeDamage(const DamagedBlock& damaged) const {
  Problem problem = DescribeBlock(*manifest_, damaged);
  problem.tensor = OwnerOf(damaged);
  return InDirectory(std::move(problem));
}

Status CheckedFile::Take(std::uint64_t block, std::uint64_t skipped_bytes, ByteSpan read,
                         std::uint32_t crc32c) const {
  if (read.size() < block_bytes(block) || (late_ != nullptr && late_->are_late())) {
    return late_->Add(shared_from_this(), block, skipped_bytes, read, crc32c);
  }
  if (const auto damaged = CompareBlock(*manifest_, number_, block, crc32c, read)) {
    return DescribeDamage(*damaged);
  }
  MarkChecked(block);
  return OkStatus();
}

Status CheckedFile::ReadThrough(std::uint64_t offset, MutableByteSpan out) const {
  struct Part {
    std::uint64_t block = 0;
    std::uint64_t skipped_bytes = 0;
    ByteSpan bytes;  // of the block that the caller wants
    bool was_checked = false;
    std::size_t seen_bytes = 0;
    std::uint32_t crc32c = 0;
  };
  ByteSpan rest = out;
  const auto next_part = [&] {
    const std::uint64_t block = offset / kManifestBlockBytes;
    const std::uint64_t skipped = offset % kManifestBlockBytes;
    const ByteSpan bytes =
        rest.first(std::min<std::uint64_t>(rest.size(), block_bytes(block) - skipped));
    offset += bytes.size();
    rest = rest.subspan(bytes.size());
    return Part{
        .block = block, .skipped_bytes = skipped, .bytes = bytes, .was_checked = IsChecked(block)};
  };
  const std::uint64_t begin = offset;
  Part part = next_part();
  return file_->ReadInPieces(begin, out, [&](ByteSpan piece) -> Status {
    while (!piece.empty()) {
      const ByteSpan some =
          piece.first(std::min(piece.size(), part.bytes.size() - part.seen_bytes));
      if (!part.was_checked) part.crc32c = Crc32c(some, part.crc32c);
      part.seen_bytes += some.size();
      piece = piece.subspan(some.size());
      if (part.seen_bytes < part.bytes.size()) continue;
      if (!part.was_checked) {
        CKPT_RETURN_IF_ERROR(Take(part.block, part.skipped_bytes, part.bytes, part.crc32c));
      }
      if (!rest.empty()) part = next_part();
    }
    return OkStatus();
  });
}

Status CheckedFile::Compare(std::uint64_t block, std::uint32_t crc32c) const {
  if (crc32c == block_crc32c(block)) {
    MarkChecked(block);
    return OkStatus();
  }
  // All of its bytes may show the bit that is flipped.
  Bytes whole(block_bytes(block));
  CKPT_RETURN_IF_ERROR(ReadUnchecked(block, 0, whole));
  const auto damaged = CompareBlock(*manifest_, number_, block, Crc32c(whole), whole);
  // If there is none, what was read before was something else.
  return DescribeDamage(
      damaged.value_or(DamagedBlock{.file = number_, .block = block, .crc32c = crc32c}));
}

Status CheckedFile::CheckSize() const {
  if (size_bytes() == manifest_->files[number_].size_bytes) return OkStatus();
  return InDirectory(DescribeFile(*manifest_, {.file = number_, .size_bytes = size_bytes()}));
}

Status CheckedFile::CopyPart(std::uint64_t block, std::uint64_t skipped_bytes,
                             MutableByteSpan out) const {
  const SharedBlocks::Source source = {
      .size_bytes = block_bytes(block),
      .is_checked = [&] { return IsChecked(block); },
      .read =
          [&](MutableByteSpan whole) { return ReadThrough(block * kManifestBlockBytes, whole); }};
  CKPT_ASSIGN_OR_RETURN(const bool is_copied, blocks_->CopyPart({.file = id_, .block = block},
                                                                source, skipped_bytes, out));
  return is_copied ? OkStatus() : ReadUnchecked(block, skipped_bytes, out);
}

Status CheckedFile::ReadAt(std::uint64_t offset, MutableByteSpan out) const {
  if (out.empty() || !RangeFits(offset, out.size(), size_bytes())) {
    return file_->ReadAt(offset, out);
  }
  // What was read of a block to check it may be kept, also from before checks were late.
  const bool is_late = late_ != nullptr && late_->are_late();
  const auto copies_part_of = [&](std::uint64_t block) { return !is_late || IsChecked(block); };
  while (!out.empty()) {
    const std::uint64_t end = offset + out.size();
    const std::uint64_t block = offset / kManifestBlockBytes;
    const std::uint64_t skipped = offset % kManifestBlockBytes;
    const std::uint64_t left = block_bytes(block) - skipped;
    const bool is_part = skipped != 0 || out.size() < left;
    std::uint64_t length = out.size();
    if (is_part && copies_part_of(block)) {
      length = std::min(length, left);
      CKPT_RETURN_IF_ERROR(CopyPart(block, skipped, out.first(length)));
    } else {
      // In one go, but for a part of the last block that is copied. That of a file may be short.
      const std::uint64_t of_last = end == size_bytes() ? 0 : end % kManifestBlockBytes;
      if (of_last != 0 && copies_part_of(end / kManifestBlockBytes)) length -= of_last;
      CKPT_RETURN_IF_ERROR(ReadThrough(offset, out.first(length)));
    }
    out = out.subspan(length);
    offset += length;
  }
  return OkStatus();
}

Result<std::unique_ptr<FileView>> CheckedFile::View() const {
  Bytes whole;
  for (std::uint64_t at = 0; at < size_bytes(); at += kManifestBlockBytes) {
    whole.resize(std::min(kManifestBlockBytes, size_bytes() - at));
    CKPT_RETURN_IF_ERROR(ReadAt(at, whole));
  }
  return file_->View();
}

// The directory with a '/' at its end: the common start of the paths of its files.
std::string WithSlash(std::string directory) {
  if (!directory.empty() && !directory.ends_with('/')) directory += '/';
  return directory;
}

class CheckedStorage final : public ForwardingStorage,
                             public std::enable_shared_from_this<CheckedStorage> {
 public:
  CheckedStorage(Storage& storage, const Path& directory, std::shared_ptr<const Manifest> manifest,
                 std::shared_ptr<LateIndex> index, std::shared_ptr<LateChecks> late)
      : ForwardingStorage(storage),
        prefix_(WithSlash(directory.string())),
        manifest_(std::move(manifest)),
        index_(std::move(index)),
        late_(std::move(late)) {}

  Result<std::shared_ptr<const ReadableFile>> Open(const Path& path) override {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, behind().Open(path));
    const std::string& name = path.string();
    if (!name.starts_with(prefix_)) return file;
    const auto number = manifest_->FindFile(std::string_view(name).substr(prefix_.size()));
    if (!number) return file;
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const CheckedFile> checked,
                          Check(std::move(file), *number));
    return std::shared_ptr<const ReadableFile>(std::move(checked));
  }

  // By its position in the manifest.
  Result<std::shared_ptr<const FileOfBlocks>> OpenFile(std::size_t number) {
    const std::string& name = manifest_->files[number].name;
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, behind().Open(prefix_ + name));
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const CheckedFile> checked,
                          Check(std::move(file), number));
    return std::shared_ptr<const FileOfBlocks>(std::move(checked));
  }

 private:
  Result<std::shared_ptr<const CheckedFile>> Check(std::shared_ptr<const ReadableFile> file,
                                                   std::size_t number) const {
    auto checked = std::make_shared<const CheckedFile>(std::move(file), prefix_, manifest_, index_,
                                                       late_, blocks_, number);
    CKPT_RETURN_IF_ERROR(checked->CheckSize());
    return checked;
  }

  const std::string prefix_;
  const std::shared_ptr<const Manifest> manifest_;
  const std::shared_ptr<LateIndex> index_;
  const std::shared_ptr<LateChecks> late_;
  const std::shared_ptr<SharedBlocks> blocks_ = std::make_shared<SharedBlocks>();
};

}  // namespace

void LateIndex::Set(std::weak_ptr<const CheckpointIndex> index) {
  const MutexLock lock(mutex_);
  owners_.reset();
  index_ = std::move(index);
}

std::string LateIndex::OwnerOf(std::string_view file, std::uint64_t offset_bytes,
                               std::uint64_t size_bytes) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<const CheckpointIndex> index = index_.lock();
  if (index == nullptr) return {};
  if (!owners_) owners_.emplace(*index);
  const std::vector<ByteOwner> there = owners_->Of(file, offset_bytes, size_bytes);
  const bool is_one = !there.empty() && std::ranges::all_of(there, [&](const ByteOwner& owner) {
    return owner.key == there.front().key;
  });
  return is_one ? std::string(there.front().key) : std::string();
}

std::shared_ptr<Storage> MakeCheckedStorage(Storage& storage, const Path& directory,
                                            std::shared_ptr<const Manifest> manifest,
                                            std::shared_ptr<LateIndex> index,
                                            std::shared_ptr<LateChecks> late) {
  auto checked = std::make_shared<CheckedStorage>(storage, directory, std::move(manifest),
                                                  std::move(index), late);
  if (late != nullptr) {
    const std::weak_ptr<CheckedStorage> weak = checked;  // it has the late checks itself
    late->set_open_file(
        [weak](std::uint32_t number) -> Result<std::shared_ptr<const FileOfBlocks>> {
          const std::shared_ptr<CheckedStorage> opened = weak.lock();
          if (opened == nullptr) return Error(ErrorKind::kInternal, "the checkpoint was closed");
          return opened->OpenFile(number);
        });
  }
  return checked;
}

}  // namespace ckpt
