#include "formats/safetensors/format.h"

#include <memory>

#include "core/base/endian.h"
#include "formats/safetensors/source.h"

namespace ckpt::safetensors {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

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

}  // namespace

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

constinit const Format kFormat = {.name = "safetensors",
                                  .assets_directory = {},
                                  .directory_signs = "*.safetensors",
                                  .file_signs = "safetensors",
                                  .recognise = &Recognise,
                                  .explain = &Explain,
                                  .open = &OpenSafetensors,
                                  .describe_shards = &DescribeShards};

}  // namespace ckpt::safetensors
