#include "formats/megatron/dist_checkpoint.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/json/json_reader.h"

namespace ckpt::megatron {
namespace {

constexpr std::uint64_t kMaxMetadataBytes = kMiB;
constexpr std::array<std::string_view, 2> kBackends = {"torch_dist", "zarr"};
// Of both backends. Megatron-Core takes it where none is said.
constexpr std::int64_t kVersion = 1;

Result<JsonDocument> ReadMetadata(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, path, kMaxMetadataBytes));
  return JsonDocument::Parse(text, path.string());
}

Status CheckVersion(const JsonDocument& json, const Path& path) {
  const std::optional<JsonCursor> field = json.root().Find("sharded_backend_version");
  if (!field) return OkStatus();
  Result<std::int64_t> version = field->Int64();
  if (!version.ok()) return std::move(version).status().File(path.string());
  if (*version == kVersion) return OkStatus();
  return Error(ErrorKind::kUnsupported, "a Megatron-Core checkpoint of an unknown version")
      .File(path.string())
      .Expected(fmt::format("sharded_backend_version {}", kVersion))
      .Actual(fmt::format("{}", *version));
}

}  // namespace

Result<std::optional<std::string>> ShardedBackend(const Place& place) {
  if (!place.is_directory || !place.names.Has(kMetadataFile)) return std::optional<std::string>();
  const Path path = place.path / std::string(kMetadataFile);
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, ReadMetadata(*place.storage, path));
  const std::optional<JsonCursor> backend = json.root().Find("sharded_backend");
  if (!backend) return std::optional<std::string>();
  CKPT_ASSIGN_OR_RETURN(std::string name, backend->Text());
  if (std::ranges::find(kBackends, name) == kBackends.end()) {
    return Error(ErrorKind::kUnsupported, "a Megatron-Core checkpoint of an unknown backend")
        .File(place.path.string())
        .Expected(fmt::format("{}", fmt::join(kBackends, " or ")))
        .Actual(name);
  }
  CKPT_RETURN_IF_ERROR(CheckVersion(json, path));
  return std::optional(std::move(name));
}

Status CheckShardedBackend(Storage& storage, const Path& directory, std::string_view expected) {
  const Path path = directory / std::string(kMetadataFile);
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, ReadMetadata(storage, path));
  CKPT_ASSIGN_OR_RETURN(const JsonCursor field, json.root().At("sharded_backend"));
  CKPT_ASSIGN_OR_RETURN(const std::string backend, field.Text());
  if (backend == expected) return CheckVersion(json, path);
  return Error(ErrorKind::kUnsupported, "a Megatron checkpoint of another backend")
      .File(path.string())
      .Expected(expected)
      .Actual(Quote(backend));
}

Result<bool> SaysCommonFile(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json,
                        ReadMetadata(storage, directory / std::string(kMetadataFile)));
  const std::optional<JsonCursor> backend = json.root().Find("common_backend");
  return backend && !backend->is_null();
}

Status CommonFileLost(const Path& directory) {
  return Error(ErrorKind::kMissingFile, "the common state's file is not there")
      .File((directory / std::string(kCommonFile)).string())
      .Hint("copy all files of the checkpoint; ckpt-convert --drop common_state does without it");
}

}  // namespace ckpt::megatron
