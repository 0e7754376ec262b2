// Where an entry stood in a nested Python object, as the text of an attribute:
// `{"steps":["optim",{"key":7},0],"crc32":2891453157}`.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_HELD_PATH_H_
#define CKPT_FORMATS_HDF5_INTERNAL_HELD_PATH_H_

#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/checkpoint/entry_paths.h"

namespace ckpt::hdf5 {

// The steps (core/checkpoint/entry_path_json.h) and the CRC-32 of their text: HDF5 has no checksum
// for texts of attributes. REQUIRES: HasJson(path).
[[nodiscard]] std::string EncodePath(const EntryPath& path);

// The way back. Errors: kBadMetadata, kChecksum, kResource.
Result<EntryPath> ParsePath(std::string_view text);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_HELD_PATH_H_
