// Where the chunks of a data set lie.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_CHUNK_INDEX_H_
#define CKPT_FORMATS_HDF5_INTERNAL_CHUNK_INDEX_H_

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "core/tensor/shape.h"
#include "formats/hdf5/internal/data_set.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

// Of a data set, and of all data sets of a file: a terabyte in chunks of 256 KiB.
inline constexpr std::uint64_t kMaxChunks = std::uint64_t{1} << 22;

struct StoredChunk {
  Dims offsets;  // of its first element
  std::uint64_t at = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t skipped = 0;  // filters of the data set that were not applied, a bit for each
};

// Chunks that were never written are not among them, nor are those outside the shape, which a data
// set keeps that became smaller or was made to grow.
//
// REQUIRES: `set.chunked`.
// Errors: kBadMetadata (also for a chunk that lies off the grid, or where the data set cannot
// grow), kUnsupported (an index of a kind that is not read), kResource.
Result<std::vector<StoredChunk>> ReadChunkIndex(StructureFile& file, const DataSet& set);

// kResource: there are more than kMaxChunks.
[[nodiscard]] Status TooManyChunks();

// Bytes of a chunk that is not filtered. Errors: kResource.
Result<std::uint64_t> BytesOfChunk(const DataSet& set);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_CHUNK_INDEX_H_
