#include "core/checkpoint/copy_index.h"

namespace ckpt {

void BeginCopy(const CheckpointIndex& from, IndexBuilder& to) {
  for (const std::string& file : from.files()) to.AddFile(file);
  for (const std::string& encoding : from.encodings()) to.AddEncoding(encoding);
  for (const Problem& problem : from.problems()) to.AddProblem(problem);
  if (from.ranks_saved_alone()) to.SetRanksSavedAlone();
  to.ReserveChunks(from.chunks().size());
}

void CopyTensor(const CheckpointIndex& from, const GlobalTensor& tensor, IndexBuilder& to) {
  to.AddTensor(tensor.key, tensor.dtype, tensor.shape);
  for (const Chunk& chunk : from.chunks(tensor)) {
    to.AddChunk({.offsets = to.AddDims(from.offsets(chunk)),
                 .sizes = to.AddDims(from.sizes(chunk)),
                 .file = chunk.file,
                 .encoding = chunk.encoding,
                 .offset_bytes = chunk.offset_bytes,
                 .size_bytes = chunk.size_bytes});
  }
}

void CopyObjects(const CheckpointIndex& from, IndexBuilder& to) {
  for (const ObjectEntry& object : from.objects()) {
    to.AddObject(object);
    for (const ObjectEntry& copy : from.copies(object)) to.AddObjectCopy(copy);
  }
}

}  // namespace ckpt
