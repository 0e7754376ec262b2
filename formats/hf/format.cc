#include "formats/hf/format.h"

#include <map>
#include <string>
#include <utility>

#include "formats/safetensors/format.h"
#include "formats/safetensors/sharded_index.h"
#include "formats/safetensors/source.h"
#include "formats/safetensors/writer.h"
#include "formats/torch_save/torch_repository.h"

namespace ckpt::hf {
namespace {

constexpr std::string_view kName = "hf";

Result<std::optional<Path>> Recognise(const Place& place) {
  const bool has_weights = safetensors::HoldsSafetensors(place.names) ||
                           place.names.Has(kTorchWeightsName) || place.names.Has(kTorchIndexName);
  const bool is_ours = place.is_directory && has_weights && place.names.Has("config.json");
  return is_ours ? std::optional(place.path) : std::nullopt;
}

// A repository, whoever wrote its weights.
Result<std::unique_ptr<CheckpointSource>> Open(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const bool is_torch, IsTorchRepository(storage, path));
  return is_torch ? OpenTorchRepository(storage, path)
                  : safetensors::OpenSafetensors(storage, path);
}

// Whether the original index names every tensor in the file where the plan puts it.
Result<bool> IndexHolds(const WeightsRequest& request, const WritePlan& plan) {
  if (request.original_index.empty() || request.is_cast) return false;
  CKPT_ASSIGN_OR_RETURN(
      const safetensors::ShardedIndex index,
      safetensors::ParseShardedIndex(request.original_index, safetensors::kIndexFileName));
  const std::map<std::string, std::string> original(index.weight_map.begin(),
                                                    index.weight_map.end());
  std::map<std::string, std::string> planned;
  for (const WriteItem& item : plan.items) {
    planned[plan.tensors[item.tensor].key] = plan.files[item.file].name;
  }
  return original == planned;
}

Result<PlannedCheckpoint> PlanWeights(WeightsRequest request) {
  if (request.zstd_level) {
    return Error(ErrorKind::kUsage, "a Hugging Face repository cannot be compressed")
        .Hint(
            "safetensors files hold plain bytes, which readers map; leave ckpt-convert's "
            "--compress out");
  }
  safetensors::WriterOptions options;
  for (ManifestShard& shard : request.shards) {
    options.shards.push_back({.file = std::move(shard.file),
                              .metadata = std::move(shard.metadata),
                              .tensors = std::move(shard.tensors)});
  }
  if (request.max_file_bytes != 0) options.max_shard_bytes = request.max_file_bytes;
  options.files = request.files;
  PlannedCheckpoint planned;
  CKPT_ASSIGN_OR_RETURN(planned.plan, safetensors::PlanSafetensors(request.tensors, options));
  CKPT_ASSIGN_OR_RETURN(const bool index_holds, IndexHolds(request, planned.plan));
  if (index_holds) {
    options.write_index = false;
    CKPT_ASSIGN_OR_RETURN(planned.plan,
                          safetensors::PlanSafetensors(std::move(request.tensors), options));
    request.side_texts.push_back(
        {.name = std::string(safetensors::kIndexFileName), .content = request.original_index});
  }
  planned.plan.copies = std::move(request.side_files);
  for (const SideText& text : request.side_texts) {
    const ByteSpan content = AsBytes(text.content);
    planned.plan.files.push_back({.name = text.name, .size_bytes = content.size()});
    planned.plan.literals.push_back(
        {.file = static_cast<std::uint32_t>(planned.plan.files.size() - 1),
         .offset_bytes = 0,
         .bytes = Bytes(content.begin(), content.end())});
  }
  return planned;
}

}  // namespace

constinit const Format kFormat = {.name = kName,
                                  .usual_naming = kName,
                                  .built_on = &safetensors::kFormat,
                                  .assets_directory = {},
                                  .needs_config = true,
                                  .index_file = safetensors::kIndexFileName,
                                  .recognise = &Recognise,
                                  .open = &Open,
                                  .plan_weights = &PlanWeights,
                                  .describe_shards = &safetensors::DescribeShards};

}  // namespace ckpt::hf
