#include "formats/registry/registry.h"

#include <algorithm>
#include <array>
#include <functional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/manifest/checked_storage.h"
#include "core/manifest/read_manifest.h"
#include "formats/dcp/format.h"
#include "formats/fsdp2/format.h"
#include "formats/fsdp_dtensor/format.h"
#include "formats/hdf5/format.h"
#include "formats/hf/format.h"
#include "formats/mp_rank/format.h"
#include "formats/registry/internal/detect.h"
#include "formats/registry/internal/noting_storage.h"
#include "formats/registry/locate.h"
#include "formats/safetensors/format.h"
#include "formats/torch_dist/format.h"
#include "formats/torch_save/format.h"
#include "formats/verl/format.h"
#include "formats/zarr/format.h"

namespace ckpt {
namespace {

// A format that is built on another one stands before it, so that it is asked first. HDF5
// recognises files by their first bytes, so it stands before formats that look at names.
constexpr std::array<const Format*, 11> kFormats = {
    &torch_dist::kFormat, &zarr::kFormat,    &fsdp_dtensor::kFormat, &fsdp2::kFormat,
    &dcp::kFormat,        &hf::kFormat,      &hdf5::kFormat,         &safetensors::kFormat,
    &verl::kFormat,       &mp_rank::kFormat, &torch_save::kFormat};

// A source, and the storages that it reads through.
struct OwnedSource {
  std::shared_ptr<Storage> checked;  // null if nothing is compared
  std::unique_ptr<NotingStorage> storage;
  std::unique_ptr<CheckpointSource> source;
};

struct ReadSource {
  std::shared_ptr<const CheckpointSource> source;
  std::set<std::string, std::less<>> read_files;
};

// The format itself, or the format built on it whose keys the checkpoint has.
const Format* FormatOfKeys(const Format* format, const CheckpointIndex& index) {
  const auto found = std::ranges::find_if(kFormats, [&](const Format* other) {
    return other->built_on == format && !other->is_naming && other->has_keys_of != nullptr &&
           other->has_keys_of(index);
  });
  return found == kFormats.end() ? format : *found;
}

// What is read is compared with `manifest`, unless it is null, as `late` says. Unless it is forced,
// `format` becomes the one whose keys the checkpoint has.
Result<ReadSource> OpenSource(Storage& storage, const Path& path,
                              const std::shared_ptr<const Manifest>& manifest,
                              const std::shared_ptr<LateChecks>& late, bool is_forced,
                              const Format*& format) {
  const auto owned = std::make_shared<OwnedSource>();
  const auto index = std::make_shared<LateIndex>();
  if (manifest) {
    CKPT_ASSIGN_OR_RETURN(const Path directory, ManifestDirectory(storage, path));
    // The path before the names of its files; empty for a file in the working directory.
    const Path prefix = directory == path ? path : path.parent_path();
    owned->checked = MakeCheckedStorage(storage, prefix, manifest, index, late);
  }
  owned->storage = std::make_unique<NotingStorage>(manifest ? *owned->checked : storage);
  Storage& used = *owned->storage;
  CKPT_ASSIGN_OR_RETURN(owned->source, OpenAs(*format, used, path));
  const Format* const shown = is_forced ? format : FormatOfKeys(format, owned->source->index());
  if (shown != format && shown->complete != nullptr) {
    CKPT_ASSIGN_OR_RETURN(owned->source, shown->complete(std::move(owned->source), used, path));
  }
  format = shown;
  index->Set(std::shared_ptr<const CheckpointIndex>(owned, &owned->source->index()));
  return ReadSource{.source = {owned, owned->source.get()}, .read_files = owned->storage->Finish()};
}

}  // namespace

std::span<const Format* const> Formats() { return kFormats; }

std::span<const std::string_view> FormatNames() {
  static const auto names = [] {
    std::array<std::string_view, kFormats.size()> all;
    std::ranges::transform(kFormats, all.begin(), &Format::name);
    return all;
  }();
  return names;
}

const Format& UsualRunFormat() { return fsdp_dtensor::kFormat; }

const RunRoot& KnownRunRoot() {
  const auto found =
      std::ranges::find_if(kFormats, [](const Format* format) { return format->root != nullptr; });
  return *(*found)->root;
}

Result<const Format*> FindFormat(std::string_view name) {
  const auto found = std::ranges::find(kFormats, name, &Format::name);
  if (found != kFormats.end()) return *found;
  return Error(ErrorKind::kUsage, "unknown format " + Quote(name))
      .Expected(fmt::format("one of {}", fmt::join(FormatNames(), ", ")));
}

Result<OpenedCheckpoint> OpenCheckpoint(Storage& storage, const Path& path,
                                        const OpenOptions& options) {
  const Format* forced = nullptr;
  if (!options.format.empty()) {
    CKPT_ASSIGN_OR_RETURN(forced, FindFormat(options.format));
  }
  CKPT_ASSIGN_OR_RETURN(const CheckpointLocation location,
                        LocateCheckpoint(storage, path, options.iteration));
  DetectedFormat detected{forced, location.path};
  if (forced == nullptr) {
    CKPT_ASSIGN_OR_RETURN(detected, DetectFormat(storage, location));
  }
  std::shared_ptr<const Manifest> manifest;
  if (options.verify) {
    CKPT_ASSIGN_OR_RETURN(manifest, ReadManifest(storage, detected.path));
  }
  const auto late = manifest ? std::make_shared<LateChecks>() : nullptr;
  CKPT_ASSIGN_OR_RETURN(ReadSource read, OpenSource(storage, detected.path, manifest, late,
                                                    forced != nullptr, detected.format));
  return OpenedCheckpoint{.format = detected.format,
                          .path = std::move(detected.path),
                          .source = std::move(read.source),
                          .iteration = location.iteration,
                          .is_release = location.is_release,
                          .manifest = std::move(manifest),
                          .late_checks = late,
                          .directory = location.is_directory ? location.path : Path(),
                          .read_files = std::move(read.read_files)};
}

}  // namespace ckpt
