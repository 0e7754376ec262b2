// What the chunks of a data set went through before they were stored.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_FILTERS_H_
#define CKPT_FORMATS_HDF5_INTERNAL_FILTERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "formats/hdf5/internal/data_set.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

enum class Filtering : std::uint8_t { kShuffle, kDeflate, kFletcher32, kLzf, kZstd };

// In the order in which a writer applies them.
using Filterings = std::vector<Filtering>;

// "shuffle+deflate".
[[nodiscard]] std::string NamesOf(const Filterings& filterings);

// Those of the data set's filters whose bit in `skipped` is not set. A filter that is optional is
// skipped for a chunk that it does not make smaller.
//
// Errors: kUnsupported (a filter that is not read; all are named).
Result<Filterings> FilteringsOf(const StructureFile& file, const DataSet& set,
                                std::uint32_t skipped);

// The elements of a chunk, which must be `decoded_bytes`. Memory is bounded by these and a little
// more, by which a compressor may make larger what another one packed.
//
// Errors: kSizeMismatch, kChecksum, and those of ZlibDecompress, LzfDecompress and ZstdDecompress.
Result<Bytes> UndoFilters(Bytes stored, const Filterings& filterings, std::uint64_t decoded_bytes,
                          std::uint64_t element_bytes);

// How many of the first bytes of a stored chunk say whether it has a checksum.
inline constexpr std::uint64_t kChecksumHeadBytes = 18;

// Whether UndoFilters compares all of a chunk with a checksum: fletcher32 is one, zlib's streams
// end with one, and zstd's frames do if their writer asked for it. `head`: the first
// kChecksumHeadBytes of the stored chunk, or all of it.
[[nodiscard]] bool HaveChecksum(const Filterings& filterings, ByteSpan head,
                                std::uint64_t decoded_bytes);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_FILTERS_H_
