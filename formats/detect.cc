#include "formats/detect.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/endian.h"
#include "core/io/git_lfs_pointer.h"
#include "core/json/json_reader.h"
#include "formats/torch_repository.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kMaxMetadataJsonBytes = 1 << 20;

Status Unsupported(std::string_view what, const Path& path, std::string_view hint) {
  return Error(ErrorKind::kUnsupported, what).File(path.string()).Hint(hint);
}

// The names in one directory, asked about by pattern.
class Names {
 public:
  explicit Names(const std::vector<DirectoryEntry>& entries) : entries_(entries) {}

  [[nodiscard]] bool Has(std::string_view name) const {
    return Any([&](std::string_view other) { return other == name; });
  }
  [[nodiscard]] bool HasSuffix(std::string_view suffix) const {
    return Any([&](std::string_view name) { return name.ends_with(suffix); });
  }
  [[nodiscard]] bool HasPrefix(std::string_view prefix) const {
    return Any([&](std::string_view name) { return name.starts_with(prefix); });
  }
  [[nodiscard]] bool HasAffixes(std::string_view prefix, std::string_view suffix) const {
    return Any(
        [&](std::string_view name) { return name.starts_with(prefix) && name.ends_with(suffix); });
  }
  // Regular files that torch.save usually makes.
  [[nodiscard]] std::vector<std::string> TorchFiles() const {
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : entries_) {
      const std::string extension = Path(entry.name).extension().string();
      const bool is_torch = extension == ".pt" || extension == ".pth" || extension == ".bin";
      if (is_torch && entry.type == FileType::kRegular) names.push_back(entry.name);
    }
    return names;
  }

 private:
  template <typename Predicate>
  [[nodiscard]] bool Any(Predicate matches) const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const DirectoryEntry& entry) { return matches(entry.name); });
  }
  const std::vector<DirectoryEntry>& entries_;
};

// `sharded_backend` of Megatron-Core's metadata.json; nothing where the file is somebody else's.
Result<std::optional<std::string>> ShardedBackend(Storage& storage, const Path& directory) {
  const Path path = directory / "metadata.json";
  CKPT_ASSIGN_OR_RETURN(const std::string text,
                        ReadSmallFile(storage, path, kMaxMetadataJsonBytes));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, path.string()));
  const std::optional<JsonCursor> backend = document.root().Find("sharded_backend");
  if (!backend) return std::optional<std::string>();
  CKPT_ASSIGN_OR_RETURN(std::string name, backend->Text());
  return std::optional(std::move(name));
}

// Everything that starts with `.metadata` or what an interrupted save leaves without it.
Result<std::optional<DetectedFormat>> DetectDcp(const Path& directory, const Names& names) {
  const bool has_data = names.HasSuffix(".distcp");
  if (names.Has(".metadata")) {
    // Megatron-Core writes metadata.json last.
    if (names.Has("common.pt")) {
      return Error(ErrorKind::kIncomplete, "no metadata.json: an interrupted torch_dist save")
          .File(directory.string())
          .Hint("ckpt-inspect --format torch_dist reads what is there");
    }
    return std::optional(DetectedFormat{"dcp", directory});
  }
  if (names.HasAffixes("__", ".metadata")) return std::optional(DetectedFormat{"dcp", directory});
  if (has_data || names.Has(".metadata.tmp")) {
    return Error(ErrorKind::kIncomplete, "no .metadata: an interrupted save")
        .File((directory / ".metadata").string())
        .Actual(has_data ? "data files (.distcp) without the file that names their tensors"
                         : ".metadata.tmp")
        .Hint("names of tensors live only in .metadata; use the checkpoint before this one");
  }
  return std::optional<DetectedFormat>();
}

Status KnownButUnread(const Path& directory, const Names& names) {
  if (names.Has("ckpt_contents.json")) {
    return Unsupported("a verl checkpoint around Megatron ones", directory,
                       "open one of its dist_ckpt folders");
  }
  if (names.HasAffixes("model_world_size_", ".pt")) {
    return Unsupported("a verl FSDP checkpoint, one file a rank", directory,
                       "open its files one by one");
  }
  if (names.HasPrefix("mp_rank_0")) {
    return Unsupported("Megatron's legacy layout, one file a rank", directory,
                       "open the .pt files in it one by one");
  }
  return OkStatus();
}

Result<DetectedFormat> DetectDirectory(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  const Names names(entries);
  if (names.Has("metadata.json")) {
    CKPT_ASSIGN_OR_RETURN(const std::optional<std::string> backend,
                          ShardedBackend(storage, directory));
    if (backend == "torch_dist") return DetectedFormat{"torch_dist", directory};
    if (backend == "zarr") return DetectedFormat{"zarr", directory};
    if (backend) {
      return Unsupported("a Megatron-Core checkpoint of an unknown backend", directory, "")
          .Expected("torch_dist or zarr")
          .Actual(*backend);
    }
  }
  CKPT_ASSIGN_OR_RETURN(const std::optional<DetectedFormat> dcp, DetectDcp(directory, names));
  if (dcp) return *dcp;
  CKPT_RETURN_IF_ERROR(KnownButUnread(directory, names));
  if (names.HasSuffix(".safetensors") || names.HasSuffix(".safetensors.index.json")) {
    return DetectedFormat{names.Has("config.json") ? "hf" : "safetensors", directory};
  }
  const bool is_sharded = names.Has(kTorchIndexName) && !names.Has(kTorchWeightsName);
  if (names.Has(kTorchWeightsName) || is_sharded) {
    if (names.Has("config.json")) return DetectedFormat{"hf", directory};
    return DetectedFormat{"torch_save",
                          is_sharded ? directory : directory / kTorchWeightsName.data()};
  }
  const std::vector<std::string> torch_files = names.TorchFiles();
  if (names.HasAffixes("pytorch_model-00", ".bin")) {
    return Error(ErrorKind::kIncomplete, "shards without the index that names their tensors")
        .File((directory / kTorchIndexName.data()).string())
        .Actual(fmt::format("{}", fmt::join(torch_files, ", ")))
        .Hint("fetch the index, or open the shards one by one");
  }
  if (torch_files.size() == 1) return DetectedFormat{"torch_save", directory / torch_files.front()};
  if (torch_files.size() > 1) {
    return Unsupported("several torch.save files", directory, "open them one by one")
        .Actual(fmt::format("{}", fmt::join(torch_files, ", ")));
  }
  if (names.Has("sharded")) {
    return Error(ErrorKind::kIncomplete,
                 "no consolidated files: only the shards of a distributed save")
        .File(directory.string())
        .Hint("open its folder sharded/");
  }
  return Unsupported("no checkpoint of a known format", directory,
                     "looked for a Megatron tracker, step-N folders, metadata.json, .metadata, "
                     "*.safetensors, *.pt and *.bin");
}

constexpr std::string_view kHdf5Magic = "\x89HDF\r\n\x1a\n";
constexpr std::uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// A header length that the safetensors library accepts, followed by a JSON object.
bool LooksLikeSafetensors(ByteSpan head) {
  if (head.size() < 9 || AsText(head)[8] != '{') return false;
  return LoadLe<std::uint64_t>(head.data()) <= kMaxSafetensorsHeaderBytes;
}

Result<DetectedFormat> DetectFile(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, storage.Open(path));
  if (file->size_bytes() == 0) {
    return Error(ErrorKind::kTruncated, "the file is empty").File(path.string());
  }
  CKPT_RETURN_IF_ERROR(RefuseGitLfsPointer(*file));
  const std::string extension = path.extension().string();
  if (extension == ".distcp") {
    return Unsupported("one data file of a checkpoint: the names of its tensors are in .metadata",
                       path, "open the folder");
  }
  std::array<std::byte, 16> buffer{};
  const std::size_t length = std::min<std::uint64_t>(buffer.size(), file->size_bytes());
  const std::span<std::byte> head = std::span(buffer).first(length);
  CKPT_RETURN_IF_ERROR(file->ReadAt(0, head));
  const std::string_view text = AsText(head);
  if (text.starts_with(kHdf5Magic) || extension == ".h5") return DetectedFormat{"hdf5", path};
  if (extension == ".safetensors" || LooksLikeSafetensors(head)) {
    return DetectedFormat{"safetensors", path};
  }
  constexpr std::array<std::string_view, 4> kTorchExtensions = {".pt", ".pth", ".bin", ".ckpt"};
  const bool is_torch_name = std::find(kTorchExtensions.begin(), kTorchExtensions.end(),
                                       extension) != kTorchExtensions.end();
  // A zip, or a pickle of protocol 2 and up: the reader tells torch's from others.
  if (is_torch_name || text.starts_with("PK") || text.front() == '\x80') {
    return DetectedFormat{"torch_save", path};
  }
  return Unsupported(
      "no checkpoint file of a known format", path,
      "looked for the first bytes of safetensors, torch.save (zip or legacy) and HDF5");
}

template <typename Entry>
bool HasKeyPrefix(std::span<const Entry> entries, std::string_view prefix) {
  const auto it = std::lower_bound(entries.begin(), entries.end(), prefix,
                                   [](const Entry& e, std::string_view p) { return e.key < p; });
  return it != entries.end() && it->key.starts_with(prefix);
}

}  // namespace

Result<DetectedFormat> DetectFormat(Storage& storage, const CheckpointLocation& location) {
  return location.is_directory ? DetectDirectory(storage, location.path)
                               : DetectFile(storage, location.path);
}

bool HasFsdpDtensorKeys(const CheckpointIndex& index) {
  constexpr std::array<std::string_view, 4> kPrefixes = {"model.module.", "model0.module.",
                                                         "optimizer.param_to_group_meta.",
                                                         "optimizer.state.module.module.module."};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(), [&](std::string_view prefix) {
    return HasKeyPrefix(index.tensors(), prefix) || HasKeyPrefix(index.objects(), prefix);
  });
}

}  // namespace ckpt
