// Writes the structure of an HDF5 file around elements that lie in places known before.
#ifndef CKPT_FORMATS_HDF5_INTERNAL_STRUCTURE_WRITER_H_
#define CKPT_FORMATS_HDF5_INTERNAL_STRUCTURE_WRITER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/checkpoint/write_plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "formats/hdf5/internal/data_set.h"
#include "formats/hdf5/internal/virtual_map.h"

namespace ckpt::hdf5 {

// The structure needs this many bytes at the start of the file, and the rest of it at the end.
inline constexpr std::uint64_t kSuperblockBytes = 48;

// zstd frames, one for a block of rows each; in order.
struct NewChunks {
  std::int64_t rows = 0;
  std::vector<ItemExtent> extents;
  int zstd_level = 0;
};

struct NewDataSet {
  std::string group;  // a group of the root; empty: the root
  std::string name;
  DType dtype = DType::kUint8;
  Dims shape;
  // Text of attributes.
  std::vector<std::pair<std::string, std::string>> attributes = {};

  // Where its elements lie; one of these.
  std::optional<std::uint64_t> at = {};  // in this file, in one piece
  std::optional<std::string> text = {};  // a single text in place of numbers; `dtype` is not used
  std::vector<Segment> segments = {};    // in other files
  std::vector<VirtualPart> parts = {};   // a virtual data set
  std::optional<NewChunks> chunks = {};

  // Of the bytes at `at`; nothing: the file does not say it. Of a text it is computed.
  std::optional<std::uint32_t> crc32 = {};
};

struct NewStructure {
  Bytes superblock;
  Bytes tail;
};

// `groups`: those of the root, written even if they are empty. `tail_at`: where the tail will lie,
// a multiple of 8. A pure function. REQUIRES: no two data sets of a group have one name.
[[nodiscard]] NewStructure EncodeStructure(const std::vector<std::string>& groups,
                                           const std::vector<NewDataSet>& data_sets,
                                           std::uint64_t tail_at);

}  // namespace ckpt::hdf5

#endif  // CKPT_FORMATS_HDF5_INTERNAL_STRUCTURE_WRITER_H_
