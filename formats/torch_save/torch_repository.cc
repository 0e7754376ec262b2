#include "formats/torch_save/torch_repository.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/base/units.h"
#include "core/base/warning.h"

namespace ckpt::torch_save {
namespace {

constexpr std::uint64_t kMaxIndexBytes = 512 * kMiB;

Result<bool> IsFile(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  return stat.type == FileType::kRegular;
}

// The only file that has the weights; empty if an index names them.
Result<std::string_view> FindOnlyFile(Storage& storage, const Path& directory) {
  std::string_view only = kTorchIndexName;
  for (const std::string_view name : {kTorchWeightsName, kTorchIndexName, kTorchAdapterName}) {
    CKPT_ASSIGN_OR_RETURN(const bool is_there, IsFile(storage, directory / name.data()));
    if (!is_there) continue;
    only = name;
    break;
  }
  return only == kTorchIndexName ? std::string_view() : only;
}

using WeightMap = std::map<std::string_view, std::string_view>;  // tensor → file

WeightMap MapOf(const safetensors::ShardedIndex* weights) {
  WeightMap map;
  if (weights != nullptr) map.insert(weights->weight_map.begin(), weights->weight_map.end());
  return map;
}

}  // namespace

Result<std::unique_ptr<TorchRepositorySource>> TorchRepositorySource::Open(Storage& storage,
                                                                           const Path& directory) {
  std::optional<safetensors::ShardedIndex> weights;
  std::set<std::string> wanted;
  CKPT_ASSIGN_OR_RETURN(const std::string_view only, FindOnlyFile(storage, directory));
  if (!only.empty()) {
    wanted.emplace(only);
  } else {
    const Path path = directory / kTorchIndexName.data();
    CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, path, kMaxIndexBytes));
    CKPT_ASSIGN_OR_RETURN(weights, safetensors::ParseShardedIndex(text, path.string()));
    for (const auto& [tensor, file] : weights->weight_map) wanted.insert(file);
  }
  std::unique_ptr<TorchRepositorySource> source(new TorchRepositorySource());
  std::vector<std::string> missing;
  Status failures;
  for (const std::string& name : wanted) {
    CKPT_ASSIGN_OR_RETURN(const bool is_there, IsFile(storage, directory / name));
    if (!is_there) {
      missing.push_back(name);
      continue;
    }
    Result<std::unique_ptr<TorchSaveSource>> file =
        TorchSaveSource::Open(storage, directory / name);
    if (!file.ok()) {
      failures.Add(std::move(file).status());
      continue;
    }
    source->names_.push_back(name);
    source->files_.push_back(*std::move(file));
  }
  if (!failures.ok()) return failures;
  CKPT_RETURN_IF_ERROR(source->BuildIndex(weights ? &*weights : nullptr, missing));
  return source;
}

Status TorchRepositorySource::BuildIndex(const safetensors::ShardedIndex* weights,
                                         const std::vector<std::string>& missing) {
  const WeightMap assigned = MapOf(weights);
  std::set<std::string_view> found;
  IndexBuilder builder;
  for (const std::string& name : names_) builder.AddFile(name);
  for (FileId file = 0; file < files_.size(); ++file) {
    const CheckpointIndex& part = files_[file]->index();
    for (const Problem& problem : part.problems()) builder.AddProblem(problem);
    for (const GlobalTensor& tensor : part.tensors()) {
      const auto owner = assigned.find(tensor.key);
      const bool is_others = owner != assigned.end() && owner->second != names_[file];
      if (is_others || !found.insert(tensor.key).second) {
        builder.AddProblem(Warning(ErrorKind::kLeftover, "the index takes it from another file",
                                   names_[file], tensor.key));
        continue;
      }
      if (weights != nullptr && owner == assigned.end()) {
        builder.AddProblem(
            Warning(ErrorKind::kLeftover, "tensor is not in the index", names_[file], tensor.key));
      }
      builder.AddTensor(tensor.key, tensor.dtype, tensor.shape);
      for (const Chunk& chunk : part.chunks(tensor)) {
        builder.AddChunk(part.box(chunk), file, builder.AddEncoding(part.encoding(chunk)),
                         chunk.offset_bytes, chunk.size_bytes);
      }
    }
    for (ObjectEntry object : part.objects()) {
      if (!found.insert(part.FindObject(object.key)->key).second) continue;
      object.encoding = builder.AddEncoding(part.encodings()[object.encoding]);
      object.file = file;
      builder.AddObject(std::move(object));
    }
  }
  TakeAttributes(builder);
  // A damaged tensor is not missing.
  for (const auto& file : files_) {
    for (const Problem& problem : file->index().problems()) found.insert(problem.tensor);
  }
  if (weights != nullptr) {
    builder.AddProblems(safetensors::CheckWeightMap(*weights, found, missing));
  }
  CKPT_ASSIGN_OR_RETURN(index_, builder.Build());
  return OkStatus();
}

void TorchRepositorySource::TakeAttributes(IndexBuilder& builder) {
  std::set<std::string> keys;
  for (FileId file = 0; file < files_.size(); ++file) {
    for (ObjectEntry attribute : files_[file]->Attributes()) {
      if (!keys.insert(attribute.key).second) continue;
      attribute.encoding =
          builder.AddEncoding(files_[file]->index().encodings()[attribute.encoding]);
      attribute.file = file;
      attributes_.push_back(std::move(attribute));
    }
  }
}

Result<StoredArray> TorchRepositorySource::Locate(const GlobalTensor& tensor,
                                                  const Chunk& chunk) const {
  CKPT_RETURN_IF_ERROR(index_.CheckDeliverable(tensor.key));
  const TorchSaveSource& file = *files_[chunk.file];
  const GlobalTensor* stored = file.index().FindTensor(tensor.key);
  return file.Locate(*stored, file.index().chunks(*stored).front());
}

Result<RenderedObject> TorchRepositorySource::ReadObject(const ObjectEntry& object) const {
  return files_[object.file]->ReadObject(object);
}

Result<std::optional<PickledObject>> TorchRepositorySource::ReadPickled(
    const ObjectEntry& object) const {
  return files_[object.file]->ReadPickled(object);
}

EntryPaths TorchRepositorySource::Paths() const {
  return files_.size() == 1 ? files_.front()->Paths() : EntryPaths();
}

Status TorchRepositorySource::VerifyRest() const {
  Status status;
  for (const auto& file : files_) status.Add(file->VerifyRest());
  return status;
}

Result<std::uint64_t> TorchRepositorySource::FileSize(FileId file) const {
  return files_[file]->FileSize(0);
}

Protection TorchRepositorySource::protection() const {
  Protection weakest = Protection::kManifest;
  for (const auto& file : files_) weakest = std::min(weakest, file->protection());
  return files_.empty() ? Protection::kNone : weakest;
}

Result<std::unique_ptr<CheckpointSource>> OpenTorchRepository(Storage& storage,
                                                              const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<TorchRepositorySource> source,
                        TorchRepositorySource::Open(storage, directory));
  return std::unique_ptr<CheckpointSource>(std::move(source));
}

std::vector<ManifestShard> DescribeAdapter(const CheckpointSource& source) {
  const CheckpointIndex& index = source.index();
  if (index.files().size() != 1 || index.files().front() != kTorchAdapterName) return {};
  std::vector<const GlobalTensor*> tensors;
  for (const GlobalTensor& tensor : index.tensors()) tensors.push_back(&tensor);
  // The order of the reference library, in which every tensor is aligned.
  std::ranges::stable_sort(tensors, std::ranges::greater(),
                           [](const GlobalTensor* tensor) { return ElementBytes(tensor->dtype); });
  ManifestShard shard;
  shard.file = "adapter_model.safetensors";
  shard.metadata.emplace().emplace_back("format", "pt");
  for (const GlobalTensor* tensor : tensors) shard.tensors.push_back(tensor->key);
  return {std::move(shard)};
}

Result<bool> IsTorchRepository(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(directory));
  if (stat.type != FileType::kDirectory) return false;
  CKPT_ASSIGN_OR_RETURN(const std::vector<DirectoryEntry> entries, storage.List(directory));
  bool has_torch = false;
  for (const DirectoryEntry& entry : entries) {
    if (entry.name.ends_with(".safetensors") || entry.name.ends_with(safetensors::kIndexSuffix)) {
      return false;
    }
    has_torch = has_torch || entry.name == kTorchWeightsName || entry.name == kTorchIndexName ||
                entry.name == kTorchAdapterName;
  }
  return has_torch;
}

}  // namespace ckpt::torch_save
