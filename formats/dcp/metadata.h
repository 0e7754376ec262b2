// Reads the `.metadata` of a torch.distributed.checkpoint folder.
//
// The file is one pickle of a `Metadata` object: tensors with their chunks, and for every chunk the
// byte range of its item (docs/formats/dcp.md). Nothing in it is executed.
#ifndef CKPT_FORMATS_DCP_METADATA_H_
#define CKPT_FORMATS_DCP_METADATA_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/index.h"
#include "core/tensor/shape.h"

namespace ckpt::dcp {

// Where a flat key stood in the nested state dict that was saved.
struct PlannerEntry {
  std::string key;
  EntryPath path;

  friend bool operator==(const PlannerEntry&, const PlannerEntry&) = default;
};

// What a `.metadata` says besides tensors and objects.
struct MetadataExtras {
  std::optional<std::string> version;        // of the layout: "1.0.0" since torch 2.9
  std::optional<std::string> checkpoint_id;  // the folder's name when it was saved
  std::optional<std::string> save_id;
  // Nothing if the state dict was saved without flattening. In file order.
  std::optional<std::vector<PlannerEntry>> planner_data;
  // Megatron-Core up to 0.15 stores slices of flattened tensors; this is the shape that such a key
  // had before.
  std::map<std::string, Dims> original_shapes;
};

struct MetadataFile {
  std::string name;  // for messages
  ByteSpan bytes;
  // Called now and then with a position; the bytes before it will not be looked at again soon
  // (FileView::DropBefore).
  std::function<void(std::uint64_t)> consumed = nullptr;
};

// Adds the tensors, objects, files and problems of a checkpoint to `index`. There is one file, or
// one a rank where ranks saved without talking to each other (CheckpointIndex::ranks_saved_alone).
// Then the same box of a tensor, or the same key of an object, in several files makes copies, and
// those of the first file come first.
//
// Encodings are "torch_save", followed by "+<descriptor>" for each transform around it, the one to
// undo first first: "torch_save+stream.zstd/1".
//
// What is wrong with a single key (geometry, storage entry, path, dtype) becomes a problem with
// that key as `tensor`; what is only odd becomes a warning.
//
// Errors: kBadMetadata (no pickle, no Metadata object, parts of other types than they must have),
// kUnsafePickle (a call in place of the Metadata object), kResource, and those of ParsePickle.
// Cost: about 60 bytes of memory a chunk beside the index.
Result<MetadataExtras> ReadMetadata(std::span<const MetadataFile> files, IndexBuilder& index);

}  // namespace ckpt::dcp

#endif  // CKPT_FORMATS_DCP_METADATA_H_
