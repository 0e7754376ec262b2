// Plans the files of a torch.distributed.checkpoint folder.
#ifndef CKPT_FORMATS_DCP_WRITER_H_
#define CKPT_FORMATS_DCP_WRITER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/source.h"
#include "core/checkpoint/write_plan.h"
#include "core/tensor/box.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace ckpt::dcp {

// Blocks along each dim of a tensor, by its key. One of shape [X, Y] in x times y blocks has the
// shape [x, y, X/x * Y/y] in the metadata, which say its own beside it (`mcore_data`); a chunk is a
// part of a block's elements in C order.
using BlockGrids = std::map<std::string, Dims, std::less<>>;

// Rows of a tensor, and the writer that stores them.
struct PlacedRows {
  Box box;
  std::uint32_t writer = 0;
};

struct WriterOptions {
  std::vector<PickledEntry> objects = {};
  // Small tensors whose elements are known when the files are planned: stored beside the objects,
  // never compressed.
  std::vector<MemoryTensor> known_tensors = {};
  // Whether `.metadata` says where the keys stand in a nested state dict.
  bool stores_paths = true;
  // Where a flat key stands in the nested state dict that loaders without a template rebuild.
  // Default: at the top level. So do keys that are not the steps of their paths, joined with
  // points: torch's loaders would look for those, and find nothing. Lists with gaps, or of objects
  // alone, become mappings (ListsLostToTorch).
  std::function<EntryPath(const std::string& key)> path_of = nullptr;
  // Data files of about equal size; 0: as many as max_file_bytes asks for.
  int files = 0;
  std::uint64_t max_file_bytes = 0;  // 0: 4 GiB
  // Larger tensors are cut into row blocks, so that readers of a part need not read the whole.
  std::uint64_t max_chunk_bytes = std::uint64_t{512} << 20;
  // Tensors are stored in zstd frames of this level, which torch reads from 2.7 on. Chunks are 64
  // MiB at most then: readers decode whole ones.
  std::optional<int> zstd_level = {};
  // Several writers, each with files of its own, `__<writer>_0.distcp`; one that stores nothing has
  // none. Parallel to the tensors: the row blocks of each, which tile it. Objects go to writer 0.
  // Empty: one writer, who cuts as above.
  std::vector<std::vector<PlacedRows>> placed = {};
  // Tensors that are stored as older Megatron-Core flattened them: in how many equal blocks along
  // each dim, by key. REQUIRES: these divide the shape, and no dim is empty.
  BlockGrids flattened = {};
  // Tensors of which a chunk is a part of one block: in how many equal blocks along each dim, by
  // key. Not of those that writers placed. REQUIRES: as `flattened`, of which they are none.
  BlockGrids grids = {};
  // Where chunks of a tensor end besides, by key: rows, from the first to the last.
  std::map<std::string, std::vector<std::int64_t>> chunk_ends = {};
  // Prepended to every name: "release/". Not part of the names inside `.metadata`.
  std::string directory = {};
};

// One file `__0_<n>.distcp` after the other, objects and known tensors first, and `.metadata`.
// Items start at multiples of 64 bytes, so that every payload is aligned; gaps belong to no item.
// Compressed ones have no gaps, and `.metadata` is made when their places are known.
//
// Errors: kAlreadyExists (a key twice), kSizeMismatch (a known tensor has too few values or too
// many), kResource.
Result<WritePlan> PlanDcp(std::vector<TargetTensor> tensors, const WriterOptions& options);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_WRITER_H_
