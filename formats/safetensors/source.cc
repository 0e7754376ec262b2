#include "formats/safetensors/source.h"

#include <algorithm>
#include <utility>

#include "core/base/checked_math.h"
#include "core/json/json_writer.h"
#include "formats/safetensors/internal/assemble_index.h"
#include "formats/safetensors/internal/repository.h"

namespace ckpt::safetensors {
namespace {

ShardLayout LayoutOf(const LoadedShard& shard) {
  std::vector<const TensorEntry*> by_offset;
  for (const TensorEntry& entry : shard.header.tensors) by_offset.push_back(&entry);
  std::stable_sort(by_offset.begin(), by_offset.end(),
                   [](const TensorEntry* a, const TensorEntry* b) {
                     return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
                   });
  ShardLayout layout{.file = shard.name, .metadata = shard.header.metadata, .tensors = {}};
  for (const TensorEntry* entry : by_offset) layout.tensors.push_back(entry->name);
  return layout;
}

}  // namespace

SafetensorsSource::SafetensorsSource(Storage& storage, Path directory)
    : directory_(std::move(directory)),
      files_([&storage, directory = directory_](const std::string& name) {
        return storage.Open(directory / name);
      }) {}

Result<std::unique_ptr<SafetensorsSource>> SafetensorsSource::Open(Storage& storage,
                                                                   const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(path));
  RepositoryFiles files;
  const bool is_directory = stat.type == FileType::kDirectory;
  if (is_directory) {
    CKPT_ASSIGN_OR_RETURN(files, FindRepositoryFiles(storage, path));
  } else {
    files.shards.push_back(path.filename().string());
  }
  std::unique_ptr<SafetensorsSource> source(
      new SafetensorsSource(storage, is_directory ? path : path.parent_path()));
  source->index_name_ = files.index_name;

  std::vector<LoadedShard> shards;
  Status failures;
  for (const std::string& name : files.shards) {
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file,
                          source->files_.Open(name));
    Result<Header> header = ReadHeader(*file);
    if (!header.ok()) {
      failures.Add(std::move(header).status());
      continue;
    }
    LoadedShard shard{.name = name, .header = *std::move(header), .info = std::nullopt};
    if (const std::string* text = shard.header.FindMetadata(kShardingInfoKey)) {
      CKPT_ASSIGN_OR_RETURN(shard.info, ParseShardingInfo(*text, file->name()));
    }
    source->shards_.push_back(LayoutOf(shard));
    shards.push_back(std::move(shard));
  }
  if (!failures.ok()) return failures;
  for (Note& note : NotesOf(shards)) source->notes_.emplace(note.key, std::move(note.text));
  CKPT_ASSIGN_OR_RETURN(source->index_, AssembleIndex(shards, files));
  return source;
}

Result<std::shared_ptr<const ReadableFile>> SafetensorsSource::OpenFile(FileId file) const {
  const std::string& name = index_.files()[file];
  Result<std::shared_ptr<const ReadableFile>> opened = files_.Open(name);
  if (!opened.ok() && opened.status().kind() == ErrorKind::kNotFound) {
    return Error(ErrorKind::kMissingFile, "file has gone").File((directory_ / name).string());
  }
  return opened;
}

Result<StoredArray> SafetensorsSource::Locate(const GlobalTensor& tensor,
                                              const Chunk& chunk) const {
  CKPT_RETURN_IF_ERROR(index_.CheckDeliverable(tensor.key));
  StoredArray array;
  CKPT_ASSIGN_OR_RETURN(array.file, OpenFile(chunk.file));
  if (!RangeFits(chunk.offset_bytes, chunk.size_bytes, array.file->size_bytes())) {
    return Error(ErrorKind::kTruncated, "the file became shorter")
        .File(DescribeRange(array.file->name(), chunk.offset_bytes, chunk.size_bytes))
        .Tensor(tensor.key);
  }
  array.offset_bytes = chunk.offset_bytes;
  array.dtype = tensor.dtype;
  array.strides = ContiguousStrides(index_.sizes(chunk));
  return array;
}

Result<RenderedObject> SafetensorsSource::ReadObject(const ObjectEntry& object) const {
  const auto found = notes_.find(object.key);
  if (found == notes_.end()) {
    return Error(ErrorKind::kNotFound, "the headers have no such entry").Tensor(object.key);
  }
  return RenderedObject{.type = "str", .json = JsonQuote(found->second), .warnings = {}};
}

Result<std::uint64_t> SafetensorsSource::FileSize(FileId file) const {
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> opened, OpenFile(file));
  return opened->size_bytes();
}

Result<std::unique_ptr<CheckpointSource>> OpenSafetensors(Storage& storage,
                                                          const Path& file_or_directory) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsSource> source,
                        SafetensorsSource::Open(storage, file_or_directory));
  return std::unique_ptr<CheckpointSource>(std::move(source));
}

}  // namespace ckpt::safetensors
