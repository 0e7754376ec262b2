#include "formats/hdf5/internal/encode_virtual_map.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "core/base/endian.h"
#include "core/tensor/box.h"
#include "formats/hdf5/internal/format_numbers.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/structure_file.h"

namespace ckpt::hdf5 {
namespace {

void AppendSelection(const std::optional<Box>& box, Bytes& map) {
  constexpr std::int64_t kMaxShort = 0xffffffff;
  if (!box) {
    AppendLe(kSelectsAll, map);
    AppendLe<std::uint32_t>(1, map);
    AppendLe<std::uint64_t>(0, map);
    return;
  }
  const auto rank = static_cast<std::uint32_t>(box->sizes.size());
  bool is_short = true;
  for (std::size_t d = 0; d < rank; ++d) {
    is_short = is_short && box->offsets[d] + box->sizes[d] <= kMaxShort;
  }
  AppendLe(kSelectsHyperslab, map);
  if (is_short) {  // as every version of the library reads it
    AppendLe<std::uint32_t>(1, map);
    AppendLe<std::uint32_t>(0, map);
    AppendLe<std::uint32_t>(8 + 8 * rank, map);
    AppendLe(rank, map);
    AppendLe<std::uint32_t>(1, map);
    for (const std::int64_t offset : box->offsets) {
      AppendLe(static_cast<std::uint32_t>(offset), map);
    }
    for (std::size_t d = 0; d < rank; ++d) {
      AppendLe(static_cast<std::uint32_t>(box->offsets[d] + box->sizes[d] - 1), map);
    }
    return;
  }
  AppendLe<std::uint32_t>(2, map);
  AppendLe<std::uint8_t>(1, map);
  AppendLe<std::uint32_t>(4 + 32 * rank, map);
  AppendLe(rank, map);
  for (std::size_t d = 0; d < rank; ++d) {
    AppendLe(box->offsets[d], map);
    AppendLe<std::uint64_t>(1, map);
    AppendLe<std::uint64_t>(1, map);
    AppendLe(box->sizes[d], map);
  }
}

}  // namespace

Bytes EncodeVirtualMap(const std::vector<VirtualPart>& parts) {
  Bytes map;
  AppendLe<std::uint8_t>(0, map);
  AppendLe<std::uint64_t>(parts.size(), map);
  for (const VirtualPart& part : parts) {
    for (const std::string& name : {part.file, part.data_set}) {
      Append(SourceNameIn(name), map);
      AppendLe<std::uint8_t>(0, map);
    }
    AppendSelection(part.from, map);
    AppendSelection(part.to, map);
  }
  AppendLe(Lookup3(map), map);
  return map;
}

}  // namespace ckpt::hdf5
