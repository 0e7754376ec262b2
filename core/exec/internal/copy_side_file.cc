#include "core/exec/internal/copy_side_file.h"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "core/base/hash.h"
#include "core/io/checksummed_read.h"

namespace ckpt {

Result<ManifestFile> CopySideFile(Storage& storage, const WriteCopy& copy, const Path& directory) {
  const Path path = directory / copy.name;
  CKPT_RETURN_IF_ERROR(storage.MakeDirectories(path.parent_path()));
  CKPT_RETURN_IF_ERROR(storage.RemoveAll(path));
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> in, storage.Open(copy.from));
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> out, storage.Create(path));
  ManifestFile written{.name = copy.name, .size_bytes = in->size_bytes(), .block_crc32c = {}};
  Bytes buffer;
  for (std::uint64_t at = 0; at < in->size_bytes(); at += kManifestBlockBytes) {
    buffer.resize(std::min(kManifestBlockBytes, in->size_bytes() - at));
    CKPT_ASSIGN_OR_RETURN(const std::uint32_t crc32c, ReadAtWithCrc32c(*in, at, buffer));
    CKPT_RETURN_IF_ERROR(out->WriteAt(at, buffer));
    written.block_crc32c.push_back(crc32c);
    written.block_crc32.push_back(Crc32(buffer));
  }
  CKPT_RETURN_IF_ERROR(out->Sync());
  CKPT_RETURN_IF_ERROR(out->Close());
  return written;
}

}  // namespace ckpt
