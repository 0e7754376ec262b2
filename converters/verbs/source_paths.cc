#include "converters/verbs/source_paths.h"

#include <string>

#include "core/manifest/read_manifest.h"

namespace ckpt {

Result<std::vector<Path>> SourcePaths(Storage& storage, const Path& given,
                                      const OpenedCheckpoint& checkpoint) {
  CKPT_ASSIGN_OR_RETURN(const Path directory, ManifestDirectory(storage, checkpoint.path));
  std::vector<Path> paths = {CanonicalPath(given), CanonicalPath(checkpoint.path)};
  for (const std::string& file : checkpoint.source->index().files()) {
    paths.push_back(CanonicalPath(directory / file));
  }
  return paths;
}

}  // namespace ckpt
