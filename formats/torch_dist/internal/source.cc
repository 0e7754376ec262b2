#include "formats/torch_dist/internal/source.h"

#include <span>
#include <string_view>
#include <utility>

#include "core/base/check.h"
#include "core/checkpoint/copy_index.h"
#include "formats/megatron/bridge_files.h"
#include "formats/torch_dist/internal/flat_range.h"
#include "formats/torch_dist/internal/grouped_states.h"
#include "formats/torch_save/object_item.h"

namespace ckpt::torch_dist {
namespace {

using torch_save::TorchContainer;

constexpr std::string_view kBackend = "torch_dist";

// Megatron-Core stores an object as the only element of a list. This is that element.
pickle::NodeId OnlyElement(const pickle::Graph& graph, pickle::NodeId node) {
  if (graph.kind(node) != pickle::NodeKind::kList || graph.items(node).size() != 1) return node;
  return graph.items(node)[0];
}

}  // namespace

Result<std::unique_ptr<Source>> Source::Open(Storage& storage, const Path& directory) {
  CKPT_RETURN_IF_ERROR(megatron::CheckShardedBackend(storage, directory, kBackend));
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<dcp::Source> dcp, dcp::Source::Open(storage, directory));
  std::unique_ptr<Source> source(new Source(std::move(dcp)));
  const Path common = directory / std::string(kCommonFile);
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(common));
  if (stat.type != FileType::kMissing) {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, storage.Open(common));
    CKPT_ASSIGN_OR_RETURN(source->common_, torch_save::OpenTorchFile(std::move(file)));
  } else if (source->dcp_->index().FindObject(kCommonItem) == nullptr) {
    CKPT_ASSIGN_OR_RETURN(const bool was_written, megatron::SaysCommonFile(storage, directory));
    if (was_written) source->lost_common_ = megatron::CommonFileLost(directory);
  }
  CKPT_RETURN_IF_ERROR(source->BuildIndex());
  return source;
}

Status Source::BuildIndex() {
  const CheckpointIndex& stored = dcp_->index();
  IndexBuilder builder;
  BeginCopy(stored, builder);

  const std::map<std::string, Dims>& original_shapes = dcp_->extras().original_shapes;
  for (const GlobalTensor& tensor : stored.tensors()) {
    const auto original = original_shapes.find(tensor.key);
    if (original != original_shapes.end() && !SameDims(original->second, tensor.shape)) {
      if (Status status = AddFlattened(tensor, original->second, builder); !status.ok()) {
        builder.AddProblems(std::move(status).Tensor(tensor.key));
      }
      continue;
    }
    CopyTensor(stored, tensor, builder);
  }

  for (ObjectEntry object : stored.objects()) {
    // Loaders look at common.pt first.
    if (object.key == kCommonItem) {
      if (common_) continue;
      object.key = kCommonKey;
    }
    builder.AddObject(std::move(object));
  }
  if (common_) {
    for (const Problem& warning : common_->warnings) builder.AddProblem(warning);
  }
  if (common_ || !lost_common_.ok()) {
    builder.AddObject({.key = std::string(kCommonKey),
                       .file = builder.AddFile(kCommonFile),
                       .encoding = builder.AddEncoding("torch_save"),
                       .offset_bytes = 0,
                       .size_bytes = common_ ? common_->file->size_bytes() : 0});
  }
  CKPT_ASSIGN_OR_RETURN(index_, builder.Build());
  return OkStatus();
}

Status Source::AddFlattened(const GlobalTensor& stored, const Dims& original,
                            IndexBuilder& builder) {
  const CheckpointIndex& inner = dcp_->index();
  CKPT_ASSIGN_OR_RETURN(const Dims block, BlockShape(original, stored.shape));
  const std::size_t ndim = original.size();
  // This is checked before anything is added, so that no part of a tensor is added without the
  // rest. That chunks lie inside the stored shape was checked before.
  for (const Chunk& chunk : inner.chunks(stored)) {
    for (std::size_t d = 0; d < ndim; ++d) {
      if (inner.sizes(chunk)[d] != 1) {
        return Error(ErrorKind::kBadMetadata, "a flattened chunk spans several blocks")
            .Actual(FormatBox(inner.box(chunk)));
      }
    }
  }
  builder.AddTensor(stored.key, stored.dtype, original);
  FlatTensor& flat = flattened_[stored.key];
  flat.block_strides = ContiguousStrides(block);
  const std::span<const Chunk> chunks = inner.chunks(stored);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    const Box slice = inner.box(chunks[i]);
    const std::int64_t begin = slice.offsets[ndim];
    const EncodingId encoding =
        builder.AddEncoding(inner.encoding(chunks[i]) + std::string(kFlattened));
    Box place = WholeBox(block);
    for (std::size_t d = 0; d < ndim; ++d) place.offsets[d] = slice.offsets[d] * block[d];
    for (const FlatBox& cut : CutFlatRange(place, begin, begin + slice.sizes[ndim])) {
      builder.AddChunk(cut.box, chunks[i].file, encoding, chunks[i].offset_bytes,
                       chunks[i].size_bytes);
      flat.slices.push_back({.inner_chunk = i, .first_elem = cut.first_elem - begin});
    }
  }
  return OkStatus();
}

Result<StoredArray> Source::Locate(const GlobalTensor& tensor, const Chunk& chunk) const {
  const CheckpointIndex& inner = dcp_->index();
  const GlobalTensor* const stored = inner.FindTensor(tensor.key);
  const auto position = static_cast<std::size_t>(&chunk - index_.chunks(tensor).data());
  CKPT_CHECK(stored != nullptr && position < tensor.num_chunks);
  const auto flat = flattened_.find(tensor.key);
  if (flat == flattened_.end()) return dcp_->Locate(*stored, inner.chunks(*stored)[position]);

  const FlatSlice& slice = flat->second.slices[position];
  CKPT_ASSIGN_OR_RETURN(StoredArray array,
                        dcp_->Locate(*stored, inner.chunks(*stored)[slice.inner_chunk]));
  return InRow(std::move(array), slice.first_elem, flat->second.block_strides, index_.sizes(chunk));
}

Result<RenderedObject> Source::ReadObject(const ObjectEntry& object) const {
  if (object.key != kCommonKey) return dcp_->ReadObject(object);
  CKPT_RETURN_IF_ERROR(lost_common_);
  if (common_) return torch_save::RenderItem(*common_, common_->pickle.root, object.key);
  const ObjectEntry* item = dcp_->index().FindObject(kCommonItem);
  if (item == nullptr) {
    return Error(ErrorKind::kNotFound, "no such object").Tensor(object.key);
  }
  CKPT_ASSIGN_OR_RETURN(const TorchContainer container, dcp_->OpenObject(*item));
  return torch_save::RenderItem(
      container, OnlyElement(container.pickle.graph, container.pickle.root), object.key);
}

Result<std::optional<PickledObject>> Source::ReadPickled(const ObjectEntry& object) const {
  if (object.key != kCommonKey) return dcp_->ReadPickled(object);
  CKPT_RETURN_IF_ERROR(lost_common_);
  if (common_) return torch_save::CopyItem(*common_, common_->pickle.root);
  const ObjectEntry* item = dcp_->index().FindObject(kCommonItem);
  if (item == nullptr) {
    return Error(ErrorKind::kNotFound, "no such object").Tensor(object.key);
  }
  CKPT_ASSIGN_OR_RETURN(const TorchContainer container, dcp_->OpenObject(*item));
  return torch_save::CopyItem(container,
                              OnlyElement(container.pickle.graph, container.pickle.root));
}

Result<std::uint64_t> Source::FileSize(FileId file) const {
  if (file < dcp_->index().files().size()) return dcp_->FileSize(file);
  CKPT_RETURN_IF_ERROR(lost_common_);
  return common_->file->size_bytes();
}

Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<Source> stored, Source::Open(storage, directory));
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointSource> source,
                        megatron::WithBridgeFiles(std::move(stored), storage, directory));
  return TurnGroupedStates(std::move(source));
}

}  // namespace ckpt::torch_dist
