// The one place that lists every format: finds out what a path holds, and opens it.
#ifndef CKPT_FORMATS_REGISTRY_REGISTRY_H_
#define CKPT_FORMATS_REGISTRY_REGISTRY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "core/manifest/late_checks.h"
#include "core/manifest/manifest.h"
#include "core/manifest/run_root.h"
#include "formats/format.h"

namespace ckpt {

struct OpenOptions {
  std::string format = {};  // a name of FormatNames(); empty: find out
  // Which one under a root; nothing: the one its tracker names, or the newest.
  std::optional<std::int64_t> iteration = std::nullopt;
  // Whether what is read is compared with the manifest, where the checkpoint is ours
  // (MakeCheckedStorage). Readers that look for damage, or that compare everything anyway, do
  // without.
  bool verify = true;
};

struct OpenedCheckpoint {
  const Format* format = &kInMemory;  // never null
  Path path;                          // the directory or file that holds it, behind any tracker
  std::shared_ptr<const CheckpointSource> source;
  std::optional<std::int64_t> iteration = std::nullopt;  // where the directory's name says it
  bool is_release = false;  // Megatron's `release`: weights outside any run
  // What `source` compares its bytes with; null if the checkpoint is foreign, or nothing is
  // compared.
  std::shared_ptr<const Manifest> manifest = nullptr;
  // When it does so; null if `manifest` is.
  std::shared_ptr<LateChecks> late_checks = nullptr;
  // Whose files are the checkpoint, or lie beside it; empty if what was named is one file, beside
  // which anything may lie.
  Path directory = {};
  // The paths of the files that were read to open it, whatever they hold.
  std::set<std::string, std::less<>> read_files = {};
};

// Every format, in the order in which they are asked whether they recognise a place.
[[nodiscard]] std::span<const Format* const> Formats();
[[nodiscard]] std::span<const std::string_view> FormatNames();

// Errors: kUsage (none has this name).
Result<const Format*> FindFormat(std::string_view name);

// What a training run is saved in if nothing else is asked for. It has Format::run.
[[nodiscard]] const Format& UsualRunFormat();

// The root that runs have, in the formats that know one.
[[nodiscard]] const RunRoot& KnownRunRoot();

// Opens whatever `path` holds: a checkpoint directory, a Megatron root, a folder of step-N, a
// Hugging Face repository, or one file.
//
// Errors: those of LocateCheckpoint and DetectFormat, kUsage (an unknown format name), kUnsupported
// (a format that this build cannot read), those of ParseManifest and MakeCheckedStorage, and what
// the format's reader finds.
Result<OpenedCheckpoint> OpenCheckpoint(Storage& storage, const Path& path,
                                        const OpenOptions& options = {});

}  // namespace ckpt

#endif  // CKPT_FORMATS_REGISTRY_REGISTRY_H_
