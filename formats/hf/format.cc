#include "formats/hf/format.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/safetensors/format.h"
#include "formats/safetensors/sharded_index.h"
#include "formats/safetensors/source.h"
#include "formats/torch_save/torch_repository.h"

namespace ckpt::hf {
namespace {

constexpr std::string_view kName = "hf";

Result<std::optional<Path>> Recognise(const Place& place) {
  const bool has_weights = safetensors::HoldsSafetensors(place.names) ||
                           place.names.Has(torch_save::kTorchWeightsName) ||
                           place.names.Has(torch_save::kTorchIndexName);
  // An adapter has a configuration of its own.
  const bool is_torch_adapter = !has_weights && place.names.Has(torch_save::kTorchAdapterName) &&
                                place.names.Has("adapter_config.json");
  const bool is_model = has_weights && place.names.Has("config.json");
  const bool is_ours = place.is_directory && (is_model || is_torch_adapter);
  return is_ours ? std::optional(place.path) : std::nullopt;
}

// A pipeline of diffusers: a folder of models, which model_index.json lists.
Status Explain(const Place& place) {
  if (!place.names.Has("model_index.json")) return OkStatus();
  std::vector<std::string> models;
  for (const DirectoryEntry& entry : place.names.entries()) {
    if (entry.type != FileType::kDirectory) continue;
    CKPT_ASSIGN_OR_RETURN(std::vector<DirectoryEntry> entries,
                          place.storage->List(place.path / entry.name));
    const DirectoryNames names(std::move(entries));
    const bool has_weights = safetensors::HoldsSafetensors(names) || names.HasSuffix(".bin");
    if (has_weights) models.push_back(entry.name + "/");
  }
  Status is_pipeline = Error(ErrorKind::kUnsupported, "the folder of a pipeline around its models")
                           .File(place.path.string());
  if (models.empty()) return is_pipeline;
  return std::move(is_pipeline).Hint(fmt::format("open one of {}", fmt::join(models, ", ")));
}

// A repository, whoever wrote its weights.
Result<std::unique_ptr<CheckpointSource>> Open(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const bool is_torch, torch_save::IsTorchRepository(storage, path));
  return is_torch ? torch_save::OpenTorchRepository(storage, path)
                  : safetensors::OpenSafetensors(storage, path);
}

std::vector<ManifestShard> DescribeShards(const CheckpointSource& source) {
  std::vector<ManifestShard> adapter = torch_save::DescribeAdapter(source);
  return adapter.empty() ? safetensors::DescribeShards(source) : adapter;
}

}  // namespace

constinit const Format kFormat = {.name = kName,
                                  .usual_naming = kName,
                                  .built_on = &safetensors::kFormat,
                                  .assets_directory = {},
                                  .needs_config = true,
                                  .index_file = safetensors::kIndexFileName,
                                  .file_suffix = safetensors::kFileSuffix,
                                  .recognise = &Recognise,
                                  .explain = &Explain,
                                  .open = &Open,
                                  .plan_weights = &safetensors::PlanWeights,
                                  .describe_shards = &DescribeShards,
                                  .texts_of_shards = &safetensors::TextsOfShards};

}  // namespace ckpt::hf
