#include "formats/dcp/internal/data_file.h"

#include "core/io/path.h"

namespace ckpt::dcp {

Result<std::shared_ptr<const ReadableFile>> OpenDataFile(Storage& storage, const Path& directory,
                                                         std::string_view name) {
  CKPT_ASSIGN_OR_RETURN(const Path path, JoinInside(directory, name));
  Result<std::shared_ptr<const ReadableFile>> file = storage.Open(path);
  if (!file.ok() && file.status().kind() == ErrorKind::kNotFound) {
    return Error(ErrorKind::kMissingFile, "a data file is not there")
        .File(path.string())
        .Hint("copy all files of the checkpoint, or take an earlier one");
  }
  return file;
}

}  // namespace ckpt::dcp
