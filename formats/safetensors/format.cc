#include "formats/safetensors/format.h"

#include <map>
#include <string>
#include <utility>

#include "core/base/endian.h"
#include "core/checkpoint/add_file.h"
#include "formats/safetensors/header.h"
#include "formats/safetensors/internal/assemble_index.h"
#include "formats/safetensors/internal/writer.h"
#include "formats/safetensors/sharded_index.h"
#include "formats/safetensors/source.h"

namespace ckpt::safetensors {
namespace {

// A header length that the safetensors library accepts, followed by a JSON object.
bool LooksLikeHeader(ByteSpan head) {
  if (head.size() < 9 || AsText(head)[8] != '{') return false;
  return LoadLe<std::uint64_t>(head.data()) <= kMaxHeaderBytes;
}

Result<std::optional<Path>> Recognise(const Place& place) {
  if (!place.is_directory) {
    const bool is_ours = place.path.extension() == ".safetensors" || LooksLikeHeader(place.head);
    return is_ours ? std::optional(place.path) : std::nullopt;
  }
  return HoldsSafetensors(place.names) ? std::optional(place.path) : std::nullopt;
}

// torch's writer joins the shards at the end of a save.
Status Explain(const Place& place) {
  if (!place.names.Has("sharded")) return OkStatus();
  return Error(ErrorKind::kIncomplete,
               "no consolidated files: only the shards of a distributed save")
      .File(place.path.string())
      .Hint("open its folder sharded/");
}

// Whether the original index names, for every tensor, the file in which the plan puts it.
Result<bool> IndexHolds(const WeightsRequest& request, const WritePlan& plan) {
  if (request.original_index.empty() || request.is_cast) return false;
  CKPT_ASSIGN_OR_RETURN(const ShardedIndex index,
                        ParseShardedIndex(request.original_index, kIndexFileName));
  const std::map<std::string, std::string> original(index.weight_map.begin(),
                                                    index.weight_map.end());
  std::map<std::string, std::string> planned;
  for (const WriteItem& item : plan.items) {
    planned[plan.tensors[item.tensor].key] = plan.files[item.file].name;
  }
  return original == planned;
}

}  // namespace

Result<PlannedCheckpoint> PlanWeights(WeightsRequest request) {
  if (request.zstd_level) {
    return Error(ErrorKind::kUsage, "a Hugging Face repository cannot be compressed")
        .Hint(
            "safetensors files hold plain bytes, which readers map; leave ckpt-convert's "
            "--compress out");
  }
  WriterOptions options;
  for (ManifestShard& shard : request.shards) {
    options.shards.push_back({.file = std::move(shard.file),
                              .metadata = std::move(shard.metadata),
                              .tensors = std::move(shard.tensors)});
  }
  if (request.max_file_bytes != 0) options.max_shard_bytes = request.max_file_bytes;
  options.files = request.files;
  PlannedCheckpoint planned;
  CKPT_ASSIGN_OR_RETURN(planned.plan, PlanSafetensors(request.tensors, options));
  CKPT_ASSIGN_OR_RETURN(const bool index_holds, IndexHolds(request, planned.plan));
  if (index_holds) {
    options.write_index = false;
    CKPT_ASSIGN_OR_RETURN(planned.plan, PlanSafetensors(std::move(request.tensors), options));
    request.side_texts.push_back(
        {.name = std::string(kIndexFileName), .content = request.original_index});
  }
  planned.plan.copies = std::move(request.side_files);
  for (const SideText& text : request.side_texts) {
    AddTextFile(text.name, text.content, planned.plan);
  }
  return planned;
}

bool HoldsSafetensors(const DirectoryNames& names) {
  return names.HasSuffix(".safetensors") || names.HasSuffix(".safetensors.index.json");
}

std::vector<ManifestShard> DescribeShards(const CheckpointSource& source) {
  std::vector<ManifestShard> shards;
  const auto* files = dynamic_cast<const SafetensorsSource*>(&source);
  if (files == nullptr) return shards;
  for (const ShardLayout& shard : files->shards()) {
    shards.push_back({.file = shard.file, .metadata = shard.metadata, .tensors = shard.tensors});
  }
  return shards;
}

std::vector<SideText> TextsOfShards(std::span<const ManifestShard> shards) {
  std::vector<LoadedShard> files;
  for (const ManifestShard& shard : shards) {
    files.push_back(
        {.name = shard.file, .header = {.metadata = shard.metadata, .tensors = {}}, .info = {}});
  }
  std::vector<SideText> texts;
  for (Note& note : NotesOf(files)) {
    texts.push_back({.name = std::move(note.key), .content = std::move(note.text)});
  }
  return texts;
}

constinit const Format kFormat = {.name = "safetensors",
                                  .assets_directory = {},
                                  .index_file = kIndexFileName,
                                  .directory_signs = "*.safetensors",
                                  .file_signs = "safetensors",
                                  .recognise = &Recognise,
                                  .explain = &Explain,
                                  .open = &OpenSafetensors,
                                  .plan_weights = &PlanWeights,
                                  .describe_shards = &DescribeShards,
                                  .texts_of_shards = &TextsOfShards};

}  // namespace ckpt::safetensors
