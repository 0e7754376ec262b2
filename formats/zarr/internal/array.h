// One zarr array, version 2, as Megatron-Core writes them: a folder with `.zarray`, and a file of
// plain elements for each chunk of a regular grid.
#ifndef CKPT_FORMATS_ZARR_INTERNAL_ARRAY_H_
#define CKPT_FORMATS_ZARR_INTERNAL_ARRAY_H_

#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/tensor/box.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace ckpt::zarr {

// The file that describes an array.
inline constexpr std::string_view kArrayFile = ".zarray";

struct Array {
  DType dtype = DType::kFloat32;
  bool byte_swapped = false;  // big-endian elements
  Dims shape;
  Dims chunk;  // as many dims, none of them 0; chunks at the edges have this size too

  // Bytes of a chunk's file.
  [[nodiscard]] std::uint64_t chunk_bytes() const { return NumBytes(chunk, dtype); }
};

// Errors: kBadMetadata, kResource (sizes that overflow), kUnsupported (a type, another order,
// compressed or filtered chunks, another separator or version).
Result<Array> ParseArray(std::string_view text, std::string_view name);

// Chunks along each dim.
[[nodiscard]] Dims GridOf(const Array& array);

// "1.0.2", where a chunk lies in the grid; without dims "0".
[[nodiscard]] std::string ChunkName(DimsView place);
// Nothing for a name that no chunk of so many dims has.
[[nodiscard]] std::optional<Dims> ParseChunkName(std::string_view name, std::size_t ndim);

// The part of the tensor that the chunk holds. REQUIRES: the place is in the grid.
[[nodiscard]] Box ChunkBox(const Array& array, DimsView place);

}  // namespace ckpt::zarr

#endif  // CKPT_FORMATS_ZARR_INTERNAL_ARRAY_H_
