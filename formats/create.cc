#include "formats/create.h"

#include <array>
#include <map>
#include <utility>

#include "core/base/quote.h"
#include "formats/fsdp_dtensor/writer.h"
#include "formats/safetensors/sharded_index.h"
#include "formats/safetensors/source.h"
#include "formats/safetensors/writer.h"

namespace ckpt {
namespace {

// Whether the original index names every tensor in the file where the plan puts it.
Result<bool> IndexHolds(const CreateRequest& request, const WritePlan& plan) {
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

Result<CreatePlan> CreateHf(CreateRequest request) {
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
  CreatePlan created;
  CKPT_ASSIGN_OR_RETURN(created.plan, safetensors::PlanSafetensors(request.tensors, options));
  CKPT_ASSIGN_OR_RETURN(const bool index_holds, IndexHolds(request, created.plan));
  if (index_holds) {
    options.write_index = false;
    CKPT_ASSIGN_OR_RETURN(created.plan,
                          safetensors::PlanSafetensors(std::move(request.tensors), options));
    request.side_texts.push_back(
        {.name = std::string(safetensors::kIndexFileName), .content = request.original_index});
  }
  created.plan.copies = std::move(request.side_files);
  for (const SideText& text : request.side_texts) {
    const ByteSpan content = AsBytes(text.content);
    created.plan.files.push_back({.name = text.name, .size_bytes = content.size()});
    created.plan.literals.push_back(
        {.file = static_cast<std::uint32_t>(created.plan.files.size() - 1),
         .offset_bytes = 0,
         .bytes = Bytes(content.begin(), content.end())});
  }
  return created;
}

Result<CreatePlan> CreateFsdpDtensor(CreateRequest request) {
  CreatePlan created;
  std::vector<std::pair<std::string, layout::Value>> args;
  if (request.run_args) {
    CKPT_ASSIGN_OR_RETURN(args, request.run_args());
  }
  CKPT_ASSIGN_OR_RETURN(created.plan,
                        fsdp_dtensor::PlanRelease(std::move(request.tensors),
                                                  {.args = std::move(args),
                                                   .side_files = std::move(request.side_files),
                                                   .files = request.files,
                                                   .max_file_bytes = request.max_file_bytes,
                                                   .zstd_level = request.zstd_level}));
  created.checkpoint_directory = fsdp_dtensor::kReleaseDirectory;
  return created;
}

struct Creator {
  std::string_view format;
  Result<CreatePlan> (*plan)(CreateRequest);
};
constexpr std::array kCreators = {Creator{"hf", &CreateHf},
                                  Creator{"fsdp_dtensor", &CreateFsdpDtensor}};

}  // namespace

Result<CreatePlan> PlanCheckpoint(std::string_view format, CreateRequest request) {
  for (const Creator& creator : kCreators) {
    if (creator.format == format) return creator.plan(std::move(request));
  }
  return Error(ErrorKind::kUnsupported, "this build does not write the format")
      .Actual(Quote(format));
}

std::vector<ManifestShard> DescribeShards(const OpenedCheckpoint& checkpoint) {
  std::vector<ManifestShard> shards;
  const auto* source = dynamic_cast<const safetensors::SafetensorsSource*>(checkpoint.source.get());
  if (source == nullptr) return shards;
  for (const safetensors::ShardLayout& shard : source->shards()) {
    shards.push_back({.file = shard.file, .metadata = shard.metadata, .tensors = shard.tensors});
  }
  return shards;
}

}  // namespace ckpt
