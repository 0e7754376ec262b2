// What the header of a data set says: shape, element type, and how its elements are stored.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_DATA_SET_H_
#define CKPT_FORMATS_HDF5_INTERNAL_DATA_SET_H_

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/tensor/shape.h"
#include "formats/hdf5/internal/datatype.h"
#include "formats/hdf5/internal/object_header.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {

// Elements in one piece: in the file, or in `file`.
struct Segment {
  std::string file;  // as the data set names it; empty: the HDF5 file itself
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

enum class ChunkIndexKind : std::uint8_t { kTree, kSingle, kImplicit, kFixedArray, kOther };

struct ChunkedLayout {
  Dims chunk;  // shape of every chunk
  ChunkIndexKind index = ChunkIndexKind::kTree;
  std::uint64_t index_at = kUndefined;
  // Of a single chunk that is filtered.
  std::uint64_t single_bytes = 0;
  std::uint32_t single_mask = 0;
  bool keeps_partial_chunks = false;  // chunks at the edges are not filtered
};

// Where a virtual data set says what it is made of.
struct VirtualLayout {
  std::uint64_t heap_at = kUndefined;
  std::uint32_t heap_index = 0;
};

struct Filter {
  std::uint16_t id = 0;
  std::string name;
};

// What the attribute kCrc32Attribute says of bytes in the file of the data set.
struct StoredCrc32 {
  std::uint64_t offset_bytes = 0;  // in the file
  std::uint64_t size_bytes = 0;
  std::uint32_t crc32 = 0;
};

// A dim that may grow without limit.
inline constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

struct DataSet {
  Datatype type;
  bool is_null = false;  // has no elements and no shape
  Dims shape;
  Dims max_shape;  // to which it may grow: `shape`, larger, or kUnlimited
  // One of the three; all are empty if no element was ever written.
  std::vector<Segment> segments;
  std::optional<ChunkedLayout> chunked;
  std::optional<VirtualLayout> virtual_layout;
  std::vector<Filter> filters;
  Bytes fill;  // one element; empty: zeros
  // Of its one segment, which is in this file. Null: unknown.
  std::shared_ptr<const StoredCrc32> checksum;
};

struct Dataspace {
  bool is_null = false;
  Dims shape;
  Dims max_shape = {};  // as in DataSet
};

// Errors: kBadMetadata.
Result<Dataspace> ParseDataspace(const StructureFile& file, FieldReader& fields);

// REQUIRES: the header has a layout message.
// Errors: kBadMetadata, kUnsupported (a feature that is not read), kSizeMismatch.
Result<DataSet> ParseDataSet(StructureFile& file, const ObjectHeader& header);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_DATA_SET_H_
