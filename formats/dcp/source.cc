#include "formats/dcp/source.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/base/units.h"
#include "formats/dcp/internal/data_file.h"
#include "formats/dcp/internal/directory.h"
#include "formats/pickle/object_json.h"
#include "formats/torch_save/object_item.h"
#include "formats/torch_save/tensor_rebuild.h"
#include "formats/torch_save/torch_container.h"

namespace ckpt::dcp {
namespace {

using torch_save::RebuiltTensor;
using torch_save::TensorForm;
using torch_save::TorchContainer;

// More than the overhead of an archive, which is below 2 KiB if torch wrote it.
constexpr std::uint64_t kItemSlackBytes = kMiB;
// Real compressed objects are smaller than this. A larger one was made to exhaust memory.
constexpr std::uint64_t kMaxObjectBytes = 256 * kMiB;

// How many bytes of parsed headers of blobs are kept in all.
constexpr std::uint64_t kMaxBlobHeaderBytes = 64 * kMiB;

// Whether it is a library's own kind of tensor, of which `.metadata` tells nothing, and whose
// elements may mean anything.
bool IsOfOwnClass(const pickle::Graph& graph, pickle::NodeId node) {
  return graph.kind(node) == pickle::NodeKind::kCall &&
         graph.IsGlobal(graph.callable(node), "torch._tensor", "_rebuild_from_type_v2") &&
         !torch_save::IsFloat8Weight(graph, node);
}

// The archive's one tensor, checked against what the metadata say about its chunk. `has_crc`:
// whether its bytes were compared with a checksum.
Result<StoredArray> TensorOfItem(const DecodedItem& item, DType dtype, DimsView sizes,
                                 bool& has_crc) {
  CKPT_ASSIGN_OR_RETURN(
      const TorchContainer container,
      torch_save::OpenZipContainer(item.file, item.offset_bytes, item.size_bytes));
  const std::string where = DescribeRange(item.file->name(), item.offset_bytes, item.size_bytes);
  const pickle::Graph& graph = container.pickle.graph;
  const TensorForm form = torch_save::TensorFormOf(graph, container.pickle.root);
  if (form == TensorForm::kOther || IsOfOwnClass(graph, container.pickle.root)) {
    return Error(ErrorKind::kUnsupported, "only the tensor's class knows its elements")
        .File(where)
        .Actual(pickle::ClassName(graph, container.pickle.root))
        .Hint("load it with that class, and save plain tensors");
  }
  if (form == TensorForm::kNone) {
    return Error(ErrorKind::kBadItem, "the item does not hold a tensor").File(where);
  }
  Result<RebuiltTensor> rebuilt = torch_save::RebuildTensor(container, container.pickle.root);
  if (!rebuilt.ok()) return std::move(rebuilt).status().File(where);
  if (!SameDims(rebuilt->shape, sizes)) {
    return Error(ErrorKind::kShapeMismatch, "the stored tensor's shape is not that of its chunk")
        .File(where)
        .Expected(fmt::format("{} {}", DTypeName(dtype), FormatDims(sizes)))
        .Actual(fmt::format("{} {}", DTypeName(rebuilt->array.dtype), FormatDims(rebuilt->shape)));
  }
  if (rebuilt->array.dtype != dtype) {
    return Error(ErrorKind::kDtypeMismatch, "the stored tensor's dtype is not that of the metadata")
        .File(where)
        .Expected(DTypeName(dtype))
        .Actual(DTypeName(rebuilt->array.dtype));
  }
  CKPT_RETURN_IF_ERROR(torch_save::VerifyStorage(container, *rebuilt->storage));
  has_crc = rebuilt->storage->crc32.has_value();
  rebuilt->array.resident_bytes = item.resident_bytes;
  return std::move(rebuilt->array);
}

}  // namespace

Source::Source(Storage& storage, const Path& directory)
    : files_(std::make_unique<FileCache>([&storage, directory](const std::string& name) {
        return OpenDataFile(storage, directory, name);
      })) {}

Result<std::unique_ptr<Source>> Source::Open(Storage& storage, const Path& directory) {
  std::unique_ptr<Source> source(new Source(storage, directory));
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                        FindMetadataFiles(storage, directory));
  std::vector<std::unique_ptr<FileView>> views;
  std::vector<MetadataFile> metadata;
  for (const std::string& name : names) {
    const Path path = directory / name;
    CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file, storage.Open(path));
    CKPT_ASSIGN_OR_RETURN(std::unique_ptr<FileView> view, file->View());
    const FileView* kept = views.emplace_back(std::move(view)).get();
    metadata.push_back({.name = path.string(),
                        .bytes = kept->bytes(),
                        .consumed = [kept](std::uint64_t offset) { kept->DropBefore(offset); }});
  }
  IndexBuilder builder;
  CKPT_ASSIGN_OR_RETURN(source->extras_, ReadMetadata(metadata, builder));
  CKPT_ASSIGN_OR_RETURN(const std::vector<Problem> leftovers,
                        FindLeftovers(storage, directory, builder.files()));
  for (const Problem& problem : leftovers) builder.AddProblem(problem);
  CKPT_ASSIGN_OR_RETURN(source->index_, builder.Build());
  return source;
}

Result<std::shared_ptr<const ReadableFile>> Source::OpenFor(FileId file, std::uint64_t offset,
                                                            std::uint64_t size_bytes) const {
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> opened,
                        files_->Open(index_.files()[file]));
  if (RangeFits(offset, size_bytes, opened->size_bytes())) {
    std::call_once(demand_once_, [this] { demand_.emplace(index_); });
    // Every tensor of a blob names the whole blob. Its header is parsed once, and each tensor reads
    // its own part.
    if (!demand_->IsExcessive(file, opened->size_bytes())) return opened;
    CKPT_ASSIGN_OR_RETURN(const bool is_blob, StartsSafetensorsBlob(*opened, offset));
    if (is_blob) return opened;
    return Error(ErrorKind::kResource, "too many entries share the bytes of this file")
        .File(DescribeRange(opened->name(), offset, size_bytes))
        .Expected("entries of their own bytes, or a few that share them");
  }
  std::call_once(entries_once_, [this] { entries_.emplace(index_); });
  const bool is_cut_off = entries_->LooksCutOff(file, offset, size_bytes);
  return Error(is_cut_off ? ErrorKind::kTruncated : ErrorKind::kOutOfRange,
               is_cut_off ? "the data file is shorter than its entries"
                          : "the byte range lies outside its file")
      .File(DescribeRange(opened->name(), offset, size_bytes))
      .Actual(fmt::format("{} bytes in the file", opened->size_bytes()));
}

Result<std::shared_ptr<const SafetensorsBlob>> Source::OpenBlob(const Chunk& chunk,
                                                                const DecodedItem& item) const {
  const BlobPlace place(chunk.file, chunk.offset_bytes);
  {
    const MutexLock lock(blobs_mutex_);
    if (const auto found = blobs_.find(place); found != blobs_.end()) return found->second;
  }
  Result<SafetensorsBlob> opened = SafetensorsBlob::Open(*item.file, item.offset_bytes);
  const MutexLock lock(blobs_mutex_);
  if (!opened.ok()) {
    // The failure is kept, too: a header of megabytes that cannot be read is not tried again for
    // each of its tensors.
    if (opened.status().kind() == ErrorKind::kIo) return std::move(opened).status();
    return blobs_.try_emplace(place, std::move(opened).status()).first->second;
  }
  if (blob_header_bytes_ + opened->header_bytes() > kMaxBlobHeaderBytes) {
    blobs_.clear();
    blob_header_bytes_ = 0;
  }
  const auto [kept, is_new] =
      blobs_.try_emplace(place, std::make_shared<const SafetensorsBlob>(*std::move(opened)));
  if (is_new) blob_header_bytes_ += (*kept->second)->header_bytes();
  return kept->second;
}

Result<StoredArray> Source::LocateItem(const GlobalTensor& tensor, const Chunk& chunk) const {
  const DimsView sizes = index_.sizes(chunk);
  const std::uint64_t chunk_bytes = NumBytes(sizes, tensor.dtype);
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file,
                        OpenFor(chunk.file, chunk.offset_bytes, chunk.size_bytes));
  CKPT_ASSIGN_OR_RETURN(const DecodedItem item,
                        DecodeItem(file, chunk.offset_bytes, chunk.size_bytes,
                                   index_.encoding(chunk), chunk_bytes + kItemSlackBytes));
  const auto too_small = [&]() -> Status {
    return Error(ErrorKind::kResource, "the item is far too small for its chunk")
        .File(DescribeRange(file->name(), chunk.offset_bytes, chunk.size_bytes))
        .Expected(FormatByteSize(chunk_bytes))
        .Actual(FormatByteSize(item.size_bytes));
  };
  if (torch_save::IsFarTooSmall(item.size_bytes, chunk_bytes)) return too_small();
  bool has_crc = false;
  Result<StoredArray> array = TensorOfItem(item, tensor.dtype, sizes, has_crc);
  // torch makes a tensor contiguous before it writes it, so no real tensor repeats its elements
  // here. Thousands of hostile ones might each ask for a gigabyte.
  if (array.ok() && chunk_bytes / torch_save::kMaxTimesRepeated > item.size_bytes) {
    return too_small();
  }
  if (array.ok() && !has_crc) lacks_crc_ = true;
  // Tried only if there is no archive, because this variant is rare.
  if (array.ok() || array.status().kind() != ErrorKind::kBadItem) return array;
  CKPT_ASSIGN_OR_RETURN(const bool is_blob, StartsSafetensorsBlob(*item.file, item.offset_bytes));
  if (!is_blob) return array;
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const SafetensorsBlob> blob, OpenBlob(chunk, item));
  lacks_crc_ = true;
  return blob->Locate(item.file, tensor.key, tensor.dtype, sizes);
}

Result<StoredArray> Source::Locate(const GlobalTensor& tensor, const Chunk& chunk) const {
  CKPT_RETURN_IF_ERROR(index_.CheckDeliverable(tensor.key));
  Result<StoredArray> array = LocateItem(tensor, chunk);
  if (!array.ok()) return std::move(array).status().Tensor(tensor.key);
  return array;
}

Result<TorchContainer> Source::OpenObject(const ObjectEntry& object) const {
  const auto open = [&]() -> Result<TorchContainer> {
    CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file,
                          OpenFor(object.file, object.offset_bytes, object.size_bytes));
    CKPT_ASSIGN_OR_RETURN(const DecodedItem item,
                          DecodeItem(std::move(file), object.offset_bytes, object.size_bytes,
                                     index_.encodings()[object.encoding], kMaxObjectBytes));
    return torch_save::OpenZipContainer(item.file, item.offset_bytes, item.size_bytes);
  };
  Result<TorchContainer> container = open();
  if (!container.ok()) return std::move(container).status().Tensor(object.key);
  return container;
}

Result<ItemBytes> Source::ReadItem(const ObjectEntry& object) const {
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> file,
                        OpenFor(object.file, object.offset_bytes, object.size_bytes));
  ItemBytes item = {.encoding = object.encoding, .bytes = Bytes(object.size_bytes)};
  CKPT_RETURN_IF_ERROR(file->ReadAt(object.offset_bytes, item.bytes));
  return item;
}

Result<RenderedObject> Source::ReadObject(const ObjectEntry& object) const {
  std::optional<ItemBytes> small;
  if (object.size_bytes <= ObjectCache::kMaxItemBytes) {
    Result<ItemBytes> item = ReadItem(object);
    if (!item.ok()) return std::move(item).status().Tensor(object.key);
    if (auto known = objects_.Find(*item)) return *std::move(known);
    small = *std::move(item);
  }
  CKPT_ASSIGN_OR_RETURN(const TorchContainer container, OpenObject(object));
  Result<RenderedObject> rendered =
      torch_save::RenderItem(container, container.pickle.root, object.key);
  if (!rendered.ok()) return std::move(rendered).status().Tensor(object.key);
  if (small) objects_.Add(*std::move(small), *rendered);
  return rendered;
}

Result<std::optional<PickledObject>> Source::ReadPickled(const ObjectEntry& object) const {
  CKPT_ASSIGN_OR_RETURN(const TorchContainer container, OpenObject(object));
  Result<std::optional<PickledObject>> pickled =
      torch_save::CopyItem(container, container.pickle.root);
  if (!pickled.ok()) return std::move(pickled).status().Tensor(object.key);
  return pickled;
}

EntryPaths Source::Paths() const {
  EntryPaths paths;
  if (!extras_.planner_data) return paths;
  for (const PlannerEntry& entry : *extras_.planner_data) paths.emplace(entry.key, entry.path);
  return paths;
}

Result<std::uint64_t> Source::FileSize(FileId file) const {
  CKPT_ASSIGN_OR_RETURN(const std::shared_ptr<const ReadableFile> opened,
                        files_->Open(index_.files()[file]));
  return opened->size_bytes();
}

Result<std::unique_ptr<CheckpointSource>> OpenSource(Storage& storage, const Path& directory) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<Source> source, Source::Open(storage, directory));
  return std::unique_ptr<CheckpointSource>(std::move(source));
}

}  // namespace ckpt::dcp
