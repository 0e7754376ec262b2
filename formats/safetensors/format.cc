#include "formats/safetensors/format.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/endian.h"
#include "core/base/text_number.h"
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
    const bool is_ours =
        place.path.extension().string() == kFileSuffix || LooksLikeHeader(place.head);
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

// What libraries call their files that do not look for "model".
constexpr std::array<std::string_view, 2> kOwnStems = {"adapter_model", "diffusion_pytorch_model"};

// What files are called before their numbers, as those of the source are if a library looks for it.
std::string_view StemLike(std::span<const std::string> files) {
  for (const std::string_view stem : kOwnStems) {
    const auto is_of_it = [&](std::string_view file) {
      return TakePrefix(stem, file) && (file.starts_with('.') || file.starts_with('-'));
    };
    if (!files.empty() && std::ranges::all_of(files, is_of_it)) return stem;
  }
  return "model";
}

// Whether an original index names, for every tensor, the file in which the plan puts it. An index
// of other files than the plan's need not be readable.
Result<bool> IndexHolds(const SideText& text, const WeightsRequest& request,
                        const WritePlan& plan) {
  if (request.is_cast) return false;
  const Result<ShardedIndex> index = ParseShardedIndex(text.content, text.name);
  if (!index.ok()) return text.name == kIndexFileName ? index.status() : Result<bool>(false);
  const std::map<std::string, std::string> original(index->weight_map.begin(),
                                                    index->weight_map.end());
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
  options.stem = StemLike(request.original_files);
  PlannedCheckpoint planned;
  CKPT_ASSIGN_OR_RETURN(planned.plan, PlanSafetensors(request.tensors, options));
  for (SideText& index : request.original_indexes) {
    CKPT_ASSIGN_OR_RETURN(const bool holds, IndexHolds(index, request, planned.plan));
    if (!holds) continue;
    if (index.name == fmt::format("{}{}", options.stem, kIndexSuffix)) options.write_index = false;
    request.side_texts.push_back(std::move(index));
  }
  if (!options.write_index) {
    CKPT_ASSIGN_OR_RETURN(planned.plan, PlanSafetensors(std::move(request.tensors), options));
  }
  planned.plan.copies = std::move(request.side_files);
  for (const SideText& text : request.side_texts) {
    AddTextFile(text.name, text.content, planned.plan);
  }
  return planned;
}

bool HoldsSafetensors(const DirectoryNames& names) {
  return names.HasSuffix(kFileSuffix) || names.HasSuffix(kIndexSuffix);
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
                                  .file_suffix = kFileSuffix,
                                  .directory_signs = "*.safetensors",
                                  .file_signs = "safetensors",
                                  .recognise = &Recognise,
                                  .explain = &Explain,
                                  .open = &OpenSafetensors,
                                  .plan_weights = &PlanWeights,
                                  .describe_shards = &DescribeShards,
                                  .texts_of_shards = &TextsOfShards};

}  // namespace ckpt::safetensors
