#include "formats/registry.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/manifest/checked_storage.h"
#include "core/manifest/read_manifest.h"
#include "formats/dcp/source.h"
#include "formats/detect.h"
#include "formats/locate.h"
#include "formats/safetensors/source.h"
#include "formats/torch_dist/source.h"
#include "formats/torch_repository.h"
#include "formats/torch_save/torch_save_source.h"

namespace ckpt {
namespace {

using SourceResult = Result<std::unique_ptr<CheckpointSource>>;

SourceResult OpenTorchRepository(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<TorchRepositorySource> source,
                        TorchRepositorySource::Open(storage, directory));
  return std::unique_ptr<CheckpointSource>(std::move(source));
}

// A repository, whoever wrote its weights.
SourceResult OpenHf(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const bool is_torch, IsTorchRepository(storage, path));
  return is_torch ? OpenTorchRepository(storage, path)
                  : safetensors::OpenSafetensors(storage, path);
}

SourceResult OpenTorch(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const bool is_repository, IsTorchRepository(storage, path));
  return is_repository ? OpenTorchRepository(storage, path) : OpenTorchSave(storage, path);
}

struct Format {
  std::string_view name;
  SourceResult (*open)(Storage&, const Path&);  // nullptr: known by name only
};

constexpr std::array<Format, 8> kFormats = {{
    {"dcp", &OpenDcp},
    {"torch_dist", &OpenTorchDist},
    {"fsdp_dtensor", &OpenDcp},
    {"hf", &OpenHf},
    {"safetensors", &safetensors::OpenSafetensors},
    {"torch_save", &OpenTorch},
    {"hdf5", nullptr},
    {"zarr", nullptr},
}};

constexpr auto kNames = [] {
  std::array<std::string_view, kFormats.size()> names;
  for (std::size_t i = 0; i < kFormats.size(); ++i) names[i] = kFormats[i].name;
  return names;
}();

Result<const Format*> FindFormat(std::string_view name) {
  const auto it = std::find_if(kFormats.begin(), kFormats.end(),
                               [&](const Format& format) { return format.name == name; });
  if (it == kFormats.end()) {
    return Error(ErrorKind::kUsage, "unknown format " + Quote(name))
        .Expected(fmt::format("one of {}", fmt::join(kNames, ", ")));
  }
  return &*it;
}

// A source, and the storage that it reads through if that is its own.
struct OwnedSource {
  std::shared_ptr<Storage> storage;
  std::unique_ptr<CheckpointSource> source;
};

// `manifest`: what is read is compared with it; null: with nothing.
Result<std::shared_ptr<const CheckpointSource>> OpenSource(
    const Format& format, Storage& storage, const Path& path,
    const std::shared_ptr<const Manifest>& manifest) {
  const auto owned = std::make_shared<OwnedSource>();
  const auto index = std::make_shared<LateIndex>();
  if (manifest) {
    CKPT_ASSIGN_OR_RETURN(const Path directory, ManifestDirectory(storage, path));
    // As the paths of its files begin: with nothing, of a file in the working directory.
    const Path prefix = directory == path ? path : path.parent_path();
    owned->storage = MakeCheckedStorage(storage, prefix, manifest, index);
  }
  CKPT_ASSIGN_OR_RETURN(owned->source, format.open(manifest ? *owned->storage : storage, path));
  index->Set(std::shared_ptr<const CheckpointIndex>(owned, &owned->source->index()));
  return std::shared_ptr<const CheckpointSource>(owned, owned->source.get());
}

}  // namespace

std::span<const std::string_view> FormatNames() { return kNames; }

Result<OpenedCheckpoint> OpenCheckpoint(Storage& storage, const Path& path,
                                        const OpenOptions& options) {
  const bool is_forced = !options.format.empty();
  if (is_forced) CKPT_RETURN_IF_ERROR(FindFormat(options.format).status());
  CKPT_ASSIGN_OR_RETURN(const CheckpointLocation location,
                        LocateCheckpoint(storage, path, options.iteration));
  DetectedFormat detected{options.format, location.path};
  if (!is_forced) {
    CKPT_ASSIGN_OR_RETURN(detected, DetectFormat(storage, location));
  }
  CKPT_ASSIGN_OR_RETURN(const Format* const format, FindFormat(detected.format));
  if (format->open == nullptr) {
    return Error(ErrorKind::kUnsupported,
                 fmt::format("{} checkpoints cannot be read by this build", format->name))
        .File(detected.path.string());
  }
  std::shared_ptr<const Manifest> manifest;
  if (options.verify) {
    CKPT_ASSIGN_OR_RETURN(manifest, ReadManifest(storage, detected.path));
  }
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const CheckpointSource> source,
                        OpenSource(*format, storage, detected.path, manifest));
  // Only its keys tell Megatron-FSDP's checkpoints from other DCP ones.
  if (!is_forced && detected.format == "dcp" && HasFsdpDtensorKeys(source->index())) {
    detected.format = "fsdp_dtensor";
  }
  return OpenedCheckpoint{.format = std::move(detected.format),
                          .path = std::move(detected.path),
                          .source = std::move(source),
                          .iteration = location.iteration,
                          .is_release = location.is_release,
                          .manifest = std::move(manifest)};
}

}  // namespace ckpt
