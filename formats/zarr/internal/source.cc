#include "formats/zarr/internal/source.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/name_list.h"
#include "core/base/text_number.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "formats/megatron/dist_checkpoint.h"
#include "formats/torch_save/object_item.h"
#include "formats/torch_save/torch_container.h"
#include "formats/zarr/internal/array.h"

namespace ckpt::zarr {
namespace {

using torch_save::TorchContainer;

constexpr std::uint64_t kMaxArrayFileBytes = kMiB;
// Beside an array: the locks of the ranks that fill it.
constexpr std::string_view kLocksSuffix = ".sync";
constexpr std::string_view kObjectPrefix = "shard_";
constexpr std::string_view kObjectSuffix = ".pt";
constexpr std::string_view kObjectEncoding = "torch_save";
constexpr std::string_view kChunkEncoding = "zarr";

bool IsObjectFile(const DirectoryEntry& entry) {
  return entry.type == FileType::kRegular && entry.name.starts_with(kObjectPrefix) &&
         entry.name.ends_with(kObjectSuffix);
}

bool LooksLikeChunk(const DirectoryEntry& entry) {
  const auto is_part = [](char c) { return IsDigit(c) || c == '.'; };
  return entry.type == FileType::kRegular && entry.name.front() != '.' &&
         std::ranges::all_of(entry.name, is_part);
}

// The first place of the grid, in C order, that `places` lacks; some are lacking.
Dims FirstAbsent(const std::set<Dims>& places, const Dims& grid) {
  Dims next(grid.size(), 0);
  for (const Dims& place : places) {
    if (place != next) break;
    for (std::size_t d = grid.size(); d-- > 0;) {
      if (++next[d] < grid[d]) break;
      next[d] = 0;
    }
  }
  return next;
}

// Thread-safety: const methods may run concurrently.
class Source final : public CheckpointSource {
 public:
  Source(Storage& storage, Path directory) : storage_(storage), directory_(std::move(directory)) {}

  Status BuildIndex();

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override;
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override;
  Result<std::optional<PickledObject>> ReadPickled(const ObjectEntry& object) const override;
  Result<std::uint64_t> FileSize(FileId file) const override;
  [[nodiscard]] Protection protection() const override { return Protection::kNone; }

 private:
  Result<TorchContainer> OpenObject(const ObjectEntry& object) const;
  Status AddCommonState(IndexBuilder& builder);
  Status AddFolder(const std::string& name, IndexBuilder& builder);
  Status AddArray(const std::string& key, const std::vector<DirectoryEntry>& entries,
                  IndexBuilder& builder);
  Status AddObject(const std::string& folder, const std::string& name, IndexBuilder& builder);

  Storage& storage_;
  const Path directory_;
  CheckpointIndex index_;
  std::map<std::string, Array, std::less<>> arrays_;  // by the tensor's key
  std::optional<TorchContainer> common_;
  Status lost_common_;  // why it is not there, though it was written
};

Status Source::BuildIndex() {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage_.List(directory_));
  IndexBuilder builder;
  for (const DirectoryEntry& entry : entries) {
    if (entry.type != FileType::kDirectory || entry.name.ends_with(kLocksSuffix)) continue;
    CKPT_RETURN_IF_ERROR(AddFolder(entry.name, builder));
  }
  CKPT_RETURN_IF_ERROR(AddCommonState(builder));
  CKPT_ASSIGN_OR_RETURN(index_, builder.Build());
  return OkStatus();
}

Status Source::AddCommonState(IndexBuilder& builder) {
  const Path path = directory_ / std::string(megatron::kCommonFile);
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage_.Stat(path));
  if (stat.type == FileType::kMissing) {
    CKPT_ASSIGN_OR_RETURN(const bool was_written, megatron::SaysCommonFile(storage_, directory_));
    if (!was_written) return OkStatus();
    lost_common_ = megatron::CommonFileLost(directory_);
  } else {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, storage_.Open(path));
    CKPT_ASSIGN_OR_RETURN(common_, torch_save::OpenTorchFile(std::move(file)));
    for (const Problem& warning : common_->warnings) builder.AddProblem(warning);
  }
  builder.AddObject({.key = std::string(megatron::kCommonKey),
                     .file = builder.AddFile(megatron::kCommonFile),
                     .encoding = builder.AddEncoding(kObjectEncoding),
                     .offset_bytes = 0,
                     .size_bytes = common_ ? common_->file->size_bytes() : 0});
  return OkStatus();
}

// Folders of other kinds, such as a tokenizer's, are no part of the checkpoint.
Status Source::AddFolder(const std::string& name, IndexBuilder& builder) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries,
                        storage_.List(directory_ / name));
  const bool is_array = std::ranges::any_of(
      entries, [](const DirectoryEntry& entry) { return entry.name == kArrayFile; });
  if (is_array || std::ranges::any_of(entries, &LooksLikeChunk)) {
    if (Status status = AddArray(name, entries, builder); !status.ok()) {
      if (IsOfSystem(status.kind())) return status;
      builder.AddProblems(std::move(status).Tensor(name));
    }
    return OkStatus();
  }
  for (const DirectoryEntry& entry : entries) {
    if (IsObjectFile(entry)) CKPT_RETURN_IF_ERROR(AddObject(name, entry.name, builder));
  }
  return OkStatus();
}

Status Source::AddArray(const std::string& key, const std::vector<DirectoryEntry>& entries,
                        IndexBuilder& builder) {
  const std::string description = key + "/" + std::string(kArrayFile);
  Result<std::string> text = ReadSmallFile(storage_, directory_ / description, kMaxArrayFileBytes);
  if (!text.ok() && text.status().kind() == ErrorKind::kNotFound) {
    return Error(ErrorKind::kMissingFile, "chunks without the file that describes their array")
        .File((directory_ / description).string());
  }
  CKPT_RETURN_IF_ERROR(text.status());
  CKPT_ASSIGN_OR_RETURN(const Array array, ParseArray(*text, (directory_ / description).string()));
  const Dims grid = GridOf(array);
  const EncodingId encoding = builder.AddEncoding(kChunkEncoding);
  std::set<Dims> places;
  std::vector<std::string> others;
  for (const DirectoryEntry& entry : entries) {
    if (entry.name.starts_with('.')) continue;  // attributes, and descriptions by other software
    std::optional<Dims> place = ParseChunkName(entry.name, grid.size());
    const bool is_chunk =
        place && std::ranges::equal(*place, grid, [](auto at, auto count) { return at < count; });
    if (is_chunk) {
      places.insert(*std::move(place));
    } else {
      others.push_back(entry.name);
    }
  }
  builder.AddTensor(key, array.dtype, array.shape);
  for (const Dims& place : places) {
    builder.AddChunk(ChunkBox(array, place), builder.AddFile(key + "/" + ChunkName(place)),
                     encoding, 0, array.chunk_bytes());
  }
  arrays_.emplace(key, array);
  // Nothing says what elements are where the file of a chunk is absent.
  CKPT_ASSIGN_OR_RETURN(const std::int64_t count, CountElements(grid));
  if (std::cmp_less(places.size(), count)) {
    const std::string absent = key + "/" + ChunkName(FirstAbsent(places, grid));
    builder.AddProblems(Error(ErrorKind::kMissingFile, "files of an array's chunks are missing")
                            .File((directory_ / absent).string())
                            .Tensor(key)
                            .Expected(Counted(count, "file"))
                            .Actual(Counted(places.size(), "file")));
  }
  if (!others.empty()) {
    Problem warning = Warning(ErrorKind::kLeftover, "files that are not chunks of the array",
                              (directory_ / key).string(), key);
    warning.expected = fmt::format("chunks in a grid of {}", FormatDims(grid));
    warning.actual = NameSome(others);
    builder.AddProblem(std::move(warning));
  }
  return OkStatus();
}

Status Source::AddObject(const std::string& folder, const std::string& name,
                         IndexBuilder& builder) {
  const std::string file = folder + "/" + name;
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage_.Stat(directory_ / file));
  builder.AddObject({.key = file.substr(0, file.size() - kObjectSuffix.size()),
                     .file = builder.AddFile(file),
                     .encoding = builder.AddEncoding(kObjectEncoding),
                     .offset_bytes = 0,
                     .size_bytes = stat.size_bytes});
  return OkStatus();
}

Result<StoredArray> Source::Locate(const GlobalTensor& tensor, const Chunk& chunk) const {
  CKPT_RETURN_IF_ERROR(index_.CheckDeliverable(tensor.key));
  const Array& array = arrays_.find(tensor.key)->second;
  const Path path = directory_ / index_.files()[chunk.file];
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, storage_.Open(path));
  // Chunks at the edges are stored whole, so that all files have one size.
  if (file->size_bytes() != array.chunk_bytes()) {
    return Error(ErrorKind::kSizeMismatch, "the file of a chunk has another size than the chunk")
        .File(path.string())
        .Tensor(tensor.key)
        .Expected(fmt::format("{} bytes, {} of {}", array.chunk_bytes(), FormatDims(array.chunk),
                              DTypeName(array.dtype)))
        .Actual(fmt::format("{} bytes", file->size_bytes()));
  }
  return StoredArray{.file = std::move(file),
                     .dtype = array.dtype,
                     .strides = ContiguousStrides(array.chunk),
                     .byte_swapped = array.byte_swapped};
}

// The file of an object that is not an open common state.
Result<TorchContainer> Source::OpenObject(const ObjectEntry& object) const {
  if (object.key == megatron::kCommonKey) CKPT_RETURN_IF_ERROR(lost_common_);
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file,
                        storage_.Open(directory_ / index_.files()[object.file]));
  const std::string name = file->name();
  Result<TorchContainer> container = torch_save::OpenTorchFile(std::move(file));
  // Whatever else it is, Megatron did not write it.
  if (!container.ok() && container.status().kind() == ErrorKind::kUnsupported) {
    return Error(ErrorKind::kBadItem, container.status().first().message).File(name);
  }
  return container;
}

Result<RenderedObject> Source::ReadObject(const ObjectEntry& object) const {
  if (common_ && object.key == megatron::kCommonKey) {
    return torch_save::RenderItem(*common_, common_->pickle.root, object.key);
  }
  CKPT_ASSIGN_OR_RETURN(const TorchContainer container, OpenObject(object));
  return torch_save::RenderItem(container, container.pickle.root, object.key);
}

Result<std::optional<PickledObject>> Source::ReadPickled(const ObjectEntry& object) const {
  const bool is_common = common_ && object.key == megatron::kCommonKey;
  if (is_common) return torch_save::CopyItem(*common_, common_->pickle.root);
  CKPT_ASSIGN_OR_RETURN(const TorchContainer container, OpenObject(object));
  return torch_save::CopyItem(container, container.pickle.root);
}

Result<std::uint64_t> Source::FileSize(FileId file) const {
  if (index_.files()[file] == megatron::kCommonFile) CKPT_RETURN_IF_ERROR(lost_common_);
  const Path path = directory_ / index_.files()[file];
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage_.Stat(path));
  if (stat.type == FileType::kRegular) return stat.size_bytes;
  return Error(ErrorKind::kMissingFile, "a file of the checkpoint is not there")
      .File(path.string());
}

}  // namespace

Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory) {
  CKPT_RETURN_IF_ERROR(megatron::CheckShardedBackend(storage, directory, kName));
  auto source = std::make_unique<Source>(storage, directory);
  CKPT_RETURN_IF_ERROR(source->BuildIndex());
  return std::unique_ptr<CheckpointSource>(std::move(source));
}

}  // namespace ckpt::zarr
