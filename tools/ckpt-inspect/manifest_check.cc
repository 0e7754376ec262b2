#include "tools/ckpt-inspect/manifest_check.h"

#include <string>
#include <utility>
#include <vector>

#include "core/checkpoint/manifest.h"
#include "core/checkpoint/verify_manifest.h"

namespace ckpt::inspect {
namespace {

Result<CheckedBytes> Compare(Storage& storage, const Path& directory, const Path& path, int threads,
                             ProgressSink& progress) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, path, kMaxManifestBytes));
  CKPT_ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(text, path.string()));
  CheckedBytes all;
  for (const ManifestFile& file : manifest.files) all.checked_bytes += file.size_bytes;
  progress.OnTotal(all.checked_bytes, manifest.files.size());
  const ckpt::VerifyOptions options{.threads = threads, .on_progress = [&](std::uint64_t bytes) {
                                      progress.OnDone(kManifestName, bytes);
                                    }};
  CKPT_ASSIGN_OR_RETURN(all.problems, VerifyManifest(storage, directory, manifest, options));
  return all;
}

}  // namespace

std::optional<CheckedBytes> CheckManifest(Storage& storage, const Path& directory, int threads,
                                          ProgressSink& progress) {
  const Path path = directory / std::string(kManifestName);
  const Result<FileStat> stat = storage.Stat(path);
  if (stat.ok() && stat->type == FileType::kMissing) return std::nullopt;
  Result<CheckedBytes> compared = Compare(storage, directory, path, threads, progress);
  if (compared.ok()) return *std::move(compared);
  return CheckedBytes{.problems = compared.status().problems()};
}

}  // namespace ckpt::inspect
