#include "core/exec/internal/prepare_output.h"

#include <utility>

namespace ckpt {
namespace {

// A compressed file keeps what an interrupted run wrote into it.
bool KeepsItsSize(const FileStat& stat, const PlannedFile& file) {
  return file.is_compressed ? stat.size_bytes > file.size_bytes
                            : stat.size_bytes == file.size_bytes;
}

}  // namespace

Result<std::unique_ptr<OutputFile>> PrepareOutput(Storage& storage, const PlannedFile& file) {
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(file.path.parent_path()));
  Result<std::unique_ptr<WritableFile>> out = storage.Create(file.path);
  if (!out.ok() && out.status().kind() == ErrorKind::kAlreadyExists) {
    out = storage.OpenForUpdate(file.path);
  }
  CKPT_RETURN_IF_ERROR(out.status());
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(file.path));
  if (!KeepsItsSize(stat, file)) CKPT_RETURN_IF_ERROR((*out)->Resize(file.size_bytes));
  CKPT_RETURN_IF_ERROR((*out)->Close());
  return std::make_unique<OutputFile>(storage, file.path, file.size_bytes);
}

Result<std::unique_ptr<OutputFile>> CreateOutput(Storage& storage, const PlannedFile& file) {
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(file.path.parent_path()));
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<WritableFile> out, storage.Create(file.path));
  CKPT_RETURN_IF_ERROR(out->Resize(file.size_bytes));
  return std::make_unique<OutputFile>(storage, file.path, file.size_bytes, std::move(out));
}

}  // namespace ckpt
