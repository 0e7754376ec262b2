// Writes the `.metadata` of a torch.distributed.checkpoint folder.
#ifndef CKPT_FORMATS_DCP_INTERNAL_METADATA_WRITER_H_
#define CKPT_FORMATS_DCP_INTERNAL_METADATA_WRITER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/checkpoint/write_plan.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "formats/dcp/metadata.h"
#include "formats/dcp/writer.h"

namespace ckpt::dcp {

// A tensor in one item that no transform is around.
struct StoredTensor {
  std::string key;
  DType dtype = DType::kFloat32;
  Dims shape;
  std::uint32_t file = 0;  // position in MetadataContent::files
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

// An entry that is not a tensor: which bytes hold its pickled value.
struct StoredObject {
  std::string key;
  std::uint32_t file = 0;  // position in MetadataContent::files
  std::uint64_t offset_bytes = 0;
  std::uint64_t size_bytes = 0;
};

// What the file says. Tensors, items and files are those of a WritePlan: the items of a tensor
// follow each other, in the order of the tensors. Every key stands once.
struct MetadataContent {
  std::span<const WriteFile> files;
  std::span<const TargetTensor> tensors;
  std::span<const WriteItem> items;
  std::span<const StoredTensor> known_tensors = {};
  std::span<const StoredObject> objects;
  // As in WriterOptions.
  const BlockGrids* flattened = nullptr;
  // Around each of `items`: "stream.zstd/1"; empty: nothing.
  std::string_view item_transform = {};
  // Flat key → path in the nested state dict; nothing says that the state dict was not flattened.
  std::optional<std::vector<PlannerEntry>> planner_data;
  std::string checkpoint_id;  // informational: the folder's name
  std::string save_id;        // informational: a uuid4
};

// A pickle that torch.distributed.checkpoint loads from 2.4 on, the same for the same content.
//
// REQUIRES: every position in range. Cost: about 100 bytes of output a chunk.
[[nodiscard]] Bytes EncodeMetadata(const MetadataContent& content);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_INTERNAL_METADATA_WRITER_H_
