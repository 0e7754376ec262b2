#include "core/io/storage.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/units.h"
#include "core/io/staging_name.h"

namespace ckpt {
namespace {

// Requests of which a disk needs few at a time. A cache holds one.
constexpr std::size_t kPieceBytes = 1 << 20;

class MemoryFile final : public ReadableFile {
 public:
  MemoryFile(std::string name, std::shared_ptr<const Bytes> content)
      : name_(std::move(name)), content_(std::move(content)) {}

  [[nodiscard]] std::uint64_t size_bytes() const override { return content_->size(); }
  [[nodiscard]] const std::string& name() const override { return name_; }

  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    if (!RangeFits(offset, out.size(), content_->size())) {
      return Error(ErrorKind::kTruncated, "read past the end")
          .File(DescribeRange(name_, offset, out.size()))
          .Actual(fmt::format("{} bytes", content_->size()));
    }
    if (!out.empty()) std::memcpy(out.data(), content_->data() + offset, out.size());
    return OkStatus();
  }

  Result<std::unique_ptr<FileView>> View() const override {
    class SharedView final : public FileView {
     public:
      explicit SharedView(std::shared_ptr<const Bytes> content) : content_(std::move(content)) {}
      [[nodiscard]] ByteSpan bytes() const override { return *content_; }
      void DropBefore(std::uint64_t /*offset*/) const override {}

     private:
      std::shared_ptr<const Bytes> content_;
    };
    return std::unique_ptr<FileView>(std::make_unique<SharedView>(content_));
  }

 private:
  std::string name_;
  std::shared_ptr<const Bytes> content_;
};

Status ListInto(Storage& storage, const Path& directory, const std::string& prefix,
                std::size_t max_files, std::vector<std::string>& out) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  for (const DirectoryEntry& entry : entries) {
    if (entry.type == FileType::kDirectory) {
      if (entry.is_link) continue;
      CKPT_RETURN_IF_ERROR(
          ListInto(storage, directory / entry.name, prefix + entry.name + "/", max_files, out));
      continue;
    }
    if (out.size() == max_files) {
      return Error(ErrorKind::kResource, "too many files in the directory")
          .File(directory.string())
          .Expected(fmt::format("at most {}", max_files));
    }
    out.push_back(prefix + entry.name);
  }
  return OkStatus();
}

}  // namespace

Status ReadableFile::ReadInPieces(std::uint64_t offset, MutableByteSpan out,
                                  const std::function<Status(ByteSpan)>& seen) const {
  do {
    const MutableByteSpan piece = out.first(std::min(out.size(), kPieceBytes));
    CKPT_RETURN_IF_ERROR(ReadAt(offset, piece));
    CKPT_RETURN_IF_ERROR(seen(piece));
    offset += piece.size();
    out = out.subspan(piece.size());
  } while (!out.empty());
  return OkStatus();
}

Result<std::string> ReadSmallFile(Storage& storage, const Path& path, std::uint64_t max_bytes) {
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, storage.Open(path));
  if (file->size_bytes() > max_bytes) {
    return Error(ErrorKind::kResource, "file is too large for its kind")
        .File(path.string())
        .Expected("at most " + FormatByteSize(max_bytes))
        .Actual(FormatByteSize(file->size_bytes()));
  }
  std::string content(file->size_bytes(), '\0');
  CKPT_RETURN_IF_ERROR(
      file->ReadAt(0, std::as_writable_bytes(std::span(content.data(), content.size()))));
  return content;
}

Status WriteSmallFile(Storage& storage, const Path& path, ByteSpan content) {
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> file, storage.Create(path));
  CKPT_RETURN_IF_ERROR(file->WriteAt(0, content));
  CKPT_RETURN_IF_ERROR(file->Sync());
  return file->Close();
}

Status ReplaceSmallFile(Storage& storage, const Path& path, ByteSpan content) {
  const Path fresh = StagingOf(path);
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(fresh));  // left by an interrupted call
  CKPT_RETURN_IF_ERROR(WriteSmallFile(storage, fresh, content));
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  const bool replaces = stat.type != FileType::kMissing;
  CKPT_RETURN_IF_ERROR(replaces ? storage.Exchange(fresh, path) : storage.Rename(fresh, path));
  CKPT_RETURN_IF_ERROR(storage.SyncDirectory(path.parent_path()));
  return replaces ? storage.RemoveAll(fresh) : OkStatus();
}

Result<std::vector<std::string>> ListRecursively(Storage& storage, const Path& directory,
                                                 std::size_t max_files) {
  std::vector<std::string> names;
  CKPT_RETURN_IF_ERROR(ListInto(storage, directory, "", max_files, names));
  std::sort(names.begin(), names.end());
  return names;
}

std::string DescribeRange(std::string_view name, std::uint64_t offset, std::uint64_t length) {
  return fmt::format("{} [{}, +{})", name, offset, length);
}

std::shared_ptr<const ReadableFile> MakeMemoryFile(std::string name, Bytes content) {
  return MakeMemoryFile(std::move(name), std::make_shared<const Bytes>(std::move(content)));
}

std::shared_ptr<const ReadableFile> MakeMemoryFile(std::string name,
                                                   std::shared_ptr<const Bytes> content) {
  return std::make_shared<MemoryFile>(std::move(name), std::move(content));
}

}  // namespace ckpt
