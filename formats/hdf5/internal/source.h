// An HDF5 file as a CheckpointSource.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_SOURCE_H_
#define CKPT_FORMATS_HDF5_INTERNAL_SOURCE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "core/base/result.h"
#include "core/checkpoint/source.h"
#include "core/io/storage.h"
#include "core/manifest/manifest.h"

namespace ckpt::hdf5 {

// One tensor a data set. Of a file that this program wrote, keys and dtypes are those of the
// attributes, and objects those in its group (docs/formats/hdf5.md). Of any other file the key is
// the path of the data set; attributes are objects, "path@name".
//
// `path` may be a directory with a file kFileInDirectory (names.h).
//
// The structure is read by this program, not by the HDF5 library: no byte of a file from elsewhere
// reaches that.
//
// Errors: kBadMetadata, kOutOfRange, kChecksum, kTruncated, kIncomplete, kResource, kUnsupported,
// kIo. What concerns single data sets goes to index().problems().
Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& path);

// What a file that this program wrote says of where it came from; null for any other. Errors: those
// of ParseManifest and of reading.
Result<std::shared_ptr<const Manifest>> ReadOwnManifest(const CheckpointSource& source);

// The CRC-32 that a file says of all bytes of the data set in which the chunk lies; nothing if it
// says none. REQUIRES: `source` is of OpenSource, and `chunk` one of its index.
[[nodiscard]] std::optional<std::uint32_t> StatedCrc32(const CheckpointSource& source,
                                                       const Chunk& chunk);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_SOURCE_H_
