#include "formats/torch_dist/format.h"

#include <string>
#include <utility>

#include "core/json/json_reader.h"
#include "formats/dcp/format.h"
#include "formats/megatron/root.h"
#include "formats/torch_dist/internal/read_args.h"
#include "formats/torch_dist/internal/read_run.h"
#include "formats/torch_dist/internal/source.h"
#include "formats/torch_dist/internal/writer.h"

namespace ckpt::torch_dist {
namespace {

constexpr std::string_view kName = "torch_dist";
constexpr std::string_view kZarrName = "zarr";
constexpr std::uint64_t kMaxStateBytes = 1 << 20;

// `sharded_backend` of Megatron-Core's metadata.json; nothing if the file belongs to another
// program, or is not there.
Result<std::optional<std::string>> ShardedBackend(const Place& place) {
  if (!place.is_directory || !place.names.Has(kMetadataFile)) return std::optional<std::string>();
  const Path path = place.path / kMetadataFile.data();
  CKPT_ASSIGN_OR_RETURN(const std::string text,
                        ReadSmallFile(*place.storage, path, kMaxStateBytes));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, path.string()));
  const std::optional<JsonCursor> backend = document.root().Find("sharded_backend");
  if (!backend) return std::optional<std::string>();
  CKPT_ASSIGN_OR_RETURN(std::string name, backend->Text());
  if (name != kName && name != kZarrName) {
    return Error(ErrorKind::kUnsupported, "a Megatron-Core checkpoint of an unknown backend")
        .File(place.path.string())
        .Expected("torch_dist or zarr")
        .Actual(name);
  }
  return std::optional(std::move(name));
}

Result<std::optional<Path>> Recognise(const Place& place) {
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::string> backend, ShardedBackend(place));
  if (backend == kName) return std::optional(place.path);
  // Megatron-Core writes metadata.json last.
  if (!backend && place.names.Has(".metadata") && place.names.Has(kCommonFile)) {
    return Error(ErrorKind::kIncomplete, "no metadata.json: an interrupted torch_dist save")
        .File(place.path.string())
        .Hint("ckpt-inspect --format torch_dist reads what is there");
  }
  return std::optional<Path>();
}

Result<std::optional<Path>> RecogniseZarr(const Place& place) {
  CKPT_ASSIGN_OR_RETURN(const std::optional<std::string> backend, ShardedBackend(place));
  return backend == kZarrName ? std::optional(place.path) : std::nullopt;
}

// The common state is a file in a checkpoint of Megatron-Core. Elsewhere it is an object, which only
// a conversion of such a checkpoint writes.
bool HasKeysOf(const CheckpointIndex& index) { return index.FindObject(kCommonKey) != nullptr; }

constexpr RunFormat kRun = {.weight_key = &WeightKey,
                            .moment_key = &MomentKey,
                            .plan = &PlanRun,
                            .holds_run = &HoldsRun,
                            .read = &ReadRun,
                            .main_weight_key = &MainWeightKey};

}  // namespace

constinit const Format kFormat = {
    .name = kName,
    .usual_naming = kName,
    .built_on = &dcp::kFormat,
    .root = &megatron::kRunRoot,
    .generations = kGenerations,
    .generation_option = "torch-dist-generation",
    .generation_purpose = "Which versions of its software can read it",
    .directory_signs = kMetadataFile,
    .recognise = &Recognise,
    .has_keys_of = &HasKeysOf,
    .open = &OpenSource,
    .plan_weights = &PlanRelease,
    .run = &kRun,
    .read_args = &ReadArgs};

constinit const Format kZarrFormat = {.name = kZarrName, .recognise = &RecogniseZarr};

}  // namespace ckpt::torch_dist
