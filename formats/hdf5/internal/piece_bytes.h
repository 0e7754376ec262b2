// The bytes of stored pieces: decoded, brought together, and whether a checksum proves them.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_PIECE_BYTES_H_
#define CKPT_FORMATS_HDF5_INTERNAL_PIECE_BYTES_H_

#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/io/storage.h"
#include "core/tensor/shape.h"
#include "formats/hdf5/internal/pieces.h"

namespace ckpt::hdf5 {

// Errors: kTruncated (the file ends before the elements do).
Status CheckInFile(const ReadableFile& file, std::uint64_t offset_bytes, std::uint64_t size_bytes);

// All elements of the chunk that is stored there. REQUIRES: `form` is that of a filtered piece.
// Errors: those of CheckInFile, of UndoFilters and of reading.
Result<Bytes> DecodeChunk(const ReadableFile& file, std::uint64_t offset_bytes,
                          std::uint64_t size_bytes, const PieceForm& form,
                          std::uint64_t element_bytes);

// Whether DecodeChunk compares all that it decodes with a checksum of a filter. Reads the head of a
// zstd frame, which says it.
[[nodiscard]] bool ChunkHasChecksum(const ReadableFile& file, std::uint64_t offset_bytes,
                                    std::uint64_t size_bytes, const PieceForm& form);

// All elements of a data set of that shape, in C order. Memory: these and one decoded chunk.
//
// REQUIRES: the pieces, which lie in `file`, cover the shape.
// Errors: kResource (the elements take more than `max_bytes`, or their chunks much more than that),
// those of DecodeChunk.
Result<Bytes> GatherElements(const ReadableFile& file, const std::vector<Piece>& pieces,
                             DimsView shape, std::uint64_t element_bytes, std::uint64_t max_bytes);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_PIECE_BYTES_H_
