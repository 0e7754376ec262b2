#include "formats/dcp/metadata.h"

#include <algorithm>
#include <deque>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/io/path.h"
#include "core/tensor/box.h"
#include "formats/dcp/internal/metadata_extras.h"
#include "formats/dcp/internal/metadata_reducer.h"
#include "formats/dcp/internal/stored_items.h"
#include "formats/dcp/item.h"
#include "formats/pickle/globals.h"
#include "formats/pickle/reader.h"

namespace ckpt::dcp {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

namespace {

Status CheckChunk(DimsView offsets, DimsView sizes, DimsView shape) {
  for (const DimsView dims : {offsets, sizes}) {
    if (dims.size() == shape.size()) continue;
    return Error(ErrorKind::kBadMetadata, fmt::format("a chunk has {} dimensions, the tensor {}",
                                                      dims.size(), shape.size()));
  }
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (sizes[d] < 0) return Error(ErrorKind::kBadMetadata, "negative size of a chunk");
    if (offsets[d] < 0) return Error(ErrorKind::kOutOfRange, "negative offset of a chunk");
    // Neither side can wrap: all three are at least zero.
    if (sizes[d] > shape[d] || offsets[d] > shape[d] - sizes[d]) {
      return Error(ErrorKind::kOutOfRange, "a chunk lies outside its tensor")
          .Expected("inside " + FormatDims(shape))
          .Actual(
              FormatBox({Dims(offsets.begin(), offsets.end()), Dims(sizes.begin(), sizes.end())}));
    }
  }
  return OkStatus();
}

// One file after parsing: its pickle, and what the reducer found in it.
class MetadataPart {
 public:
  MetadataPart(std::string name, DimsPool& dims) : name_(std::move(name)), reducer_(dims) {}

  // Errors: those of ReadMetadata.
  Status Read(const MetadataFile& file);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const Graph& graph() const { return pickle_.graph; }
  [[nodiscard]] MetadataReducer& reducer() { return reducer_; }
  [[nodiscard]] NodeId state() const { return state_; }

  // Keys of state_dict_metadata, each followed by its description.
  [[nodiscard]] std::span<const NodeId> entries() const { return entries_; }

 private:
  [[nodiscard]] Status NotMetadata() const;

  std::string name_;
  MetadataReducer reducer_;
  pickle::ParsedPickle pickle_;
  NodeId state_ = kNoNode;
  std::span<const NodeId> entries_;
};

Status MetadataPart::NotMetadata() const {
  const Graph& g = graph();
  const std::string found = g.QualifiedName(pickle_.root);
  const auto called = pickle::WarnAboutCalls(g, name_);
  if (!called.empty()) {
    return Error(ErrorKind::kUnsafePickle,
                 "does not hold a torch.distributed.checkpoint Metadata but a call")
        .File(name_)
        .Actual(called.front().actual);
  }
  return Error(ErrorKind::kBadMetadata, "does not hold a torch.distributed.checkpoint Metadata")
      .File(name_)
      .Actual(found.empty() ? std::string(pickle::NodeKindName(g.kind(pickle_.root))) : found);
}

Status MetadataPart::Read(const MetadataFile& file) {
  pickle::PickleOptions options;
  options.reducer = &reducer_;
  reducer_.ReserveFor(file.bytes.size());
  options.consumed = file.consumed;
  CKPT_ASSIGN_OR_RETURN(pickle_, pickle::ParsePickle(file.bytes, file.name, options));
  const Graph& g = graph();
  if (reducer_.has_too_many_chunks()) {
    return Error(ErrorKind::kResource, "tensors list more chunks than the file can hold")
        .File(name_)
        .Hint("tensors share chunks: listed one by one they are far more");
  }
  const NodeId root = pickle_.root;
  if (g.kind(root) != NodeKind::kInstance ||
      reducer_.ClassOf(g, root) != MetadataClass::kMetadata || g.state(root) == kNoNode ||
      g.kind(g.state(root)) != NodeKind::kDict) {
    return NotMetadata();
  }
  state_ = g.state(root);
  const NodeId entries = g.Find(state_, "state_dict_metadata");
  if (entries == kNoNode || g.kind(entries) != NodeKind::kDict) {
    return Error(ErrorKind::kBadMetadata, "state_dict_metadata is not a dict").File(name_);
  }
  entries_ = g.items(entries);
  return OkStatus();
}

// Merges the parts into one index.
class MetadataMerger {
 public:
  MetadataMerger(DimsPool& dims, IndexBuilder& index) : dims_(dims), index_(index) {}

  Status AddAll(std::deque<MetadataPart>& parts);

 private:
  // One entry of state_dict_metadata of one part.
  struct Entry {
    std::string_view key;
    std::uint32_t part;
    NodeId node;
  };
  // For each number of a part, the number in the index.
  struct PartMap {
    MetadataPart* part;
    StoredItems items;
    std::vector<Result<FileId>> files;          // by path
    std::vector<Result<EncodingId>> encodings;  // by encoding
  };

  Status AddPart(MetadataPart& part);
  Status AddEntries(std::span<const Entry> same_key);
  Status AddTensor(std::span<const Entry> same_key);
  void AddObject(std::span<const Entry> same_key);
  // Why this entry is not a TensorStorageMetadata that can be used.
  Status Diagnose(const Entry& entry);
  // The item of (key, offset), as index numbers. `key` is the part's number of the entry's key.
  Result<Chunk> FindItem(const Entry& entry, std::uint32_t key, DimsId offset);
  void Report(Status status, const Entry& entry);

  DimsPool& dims_;
  IndexBuilder& index_;
  std::vector<PartMap> maps_;
  std::vector<Entry> entries_;
};

void MetadataMerger::Report(Status status, const Entry& entry) {
  index_.AddProblems(std::move(status).Tensor(entry.key).File(maps_[entry.part].part->name()));
}

Status MetadataMerger::AddPart(MetadataPart& part) {
  const Graph& graph = part.graph();
  const NodeId storage = graph.Find(part.state(), "storage_data");
  if (storage == kNoNode) {
    return Error(ErrorKind::kBadMetadata, "storage_data is missing").File(part.name());
  }
  Result<StoredItems> items = StoredItems::Open(graph, storage, part.reducer());
  if (!items.ok()) return std::move(items).status().File(part.name());
  PartMap map{.part = &part, .items = *std::move(items), .files = {}, .encodings = {}};
  for (std::uint32_t i = 0; i < part.reducer().paths().size(); ++i) {
    const std::string& path = part.reducer().paths().Get(i);
    const Result<Path> safe = JoinInside(Path("."), path);
    map.files.push_back(safe.ok() ? Result<FileId>(index_.AddFile(path))
                                  : Result<FileId>(safe.status()));
  }
  for (std::uint32_t i = 0; i < part.reducer().encodings().size(); ++i) {
    const std::string& encoding = part.reducer().encodings().Get(i);
    const Status known = CheckTransforms(encoding);
    map.encodings.push_back(known.ok() ? Result<EncodingId>(index_.AddEncoding(encoding))
                                       : Result<EncodingId>(known));
  }
  const auto number = static_cast<std::uint32_t>(maps_.size());
  maps_.push_back(std::move(map));
  const std::span<const NodeId> pairs = part.entries();
  entries_.reserve(entries_.size() + pairs.size() / 2);
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (graph.kind(pairs[i]) != NodeKind::kText) {
      return Error(ErrorKind::kBadMetadata, "a key of state_dict_metadata is not text")
          .File(part.name());
    }
    entries_.push_back({graph.text(pairs[i]), number, pairs[i + 1]});
  }
  return OkStatus();
}

Status MetadataMerger::AddAll(std::deque<MetadataPart>& parts) {
  maps_.reserve(parts.size());
  std::uint64_t num_chunks = 0;
  for (MetadataPart& part : parts) {
    CKPT_RETURN_IF_ERROR(AddPart(part));
    num_chunks += part.reducer().chunks().size();
  }
  index_.ReserveChunks(num_chunks);
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.key < b.key; });
  const std::span<const Entry> all = entries_;
  for (std::size_t first = 0; first < all.size();) {
    std::size_t last = first + 1;
    while (last < all.size() && all[last].key == all[first].key) ++last;
    CKPT_RETURN_IF_ERROR(AddEntries(all.subspan(first, last - first)));
    first = last;
  }
  return OkStatus();
}

Status MetadataMerger::AddEntries(std::span<const Entry> same_key) {
  std::size_t num_tensors = 0;
  for (std::size_t i = 0; i < same_key.size(); ++i) {
    const Entry& entry = same_key[i];
    if (i > 0 && entry.part == same_key[i - 1].part) {
      return Error(ErrorKind::kBadMetadata, "the same key twice")
          .Tensor(entry.key)
          .File(maps_[entry.part].part->name());
    }
    MetadataPart& part = *maps_[entry.part].part;
    const Graph& graph = part.graph();
    if (graph.kind(entry.node) == NodeKind::kRecord &&
        graph.record(entry.node).type == MetadataReducer::kTensor) {
      ++num_tensors;
    } else if (part.reducer().ClassOf(graph, entry.node) != MetadataClass::kBytes) {
      return Diagnose(entry);
    }
  }
  if (num_tensors == same_key.size()) return AddTensor(same_key);
  if (num_tensors != 0) {
    return Error(ErrorKind::kBadMetadata, "a tensor in one file, an object in another")
        .Tensor(same_key[0].key);
  }
  AddObject(same_key);
  return OkStatus();
}

Status MetadataMerger::Diagnose(const Entry& entry) {
  MetadataPart& part = *maps_[entry.part].part;
  const Graph& graph = part.graph();
  const auto bad = [&](std::string_view message) {
    return Error(ErrorKind::kBadMetadata, message).File(part.name()).Tensor(entry.key);
  };
  const NodeId state =
      graph.kind(entry.node) == NodeKind::kInstance ? graph.state(entry.node) : kNoNode;
  if (part.reducer().ClassOf(graph, entry.node) != MetadataClass::kTensor || state == kNoNode ||
      graph.kind(state) != NodeKind::kDict) {
    return bad("neither TensorStorageMetadata nor BytesStorageMetadata")
        .Actual(graph.QualifiedName(entry.node));
  }
  if (!part.reducer().DimsOf(graph, graph.Find(state, "size"))) {
    return bad("size is not a list of integers");
  }
  const NodeId chunks = graph.Find(state, "chunks");
  if (chunks == kNoNode ||
      (graph.kind(chunks) != NodeKind::kList && graph.kind(chunks) != NodeKind::kTuple)) {
    return bad("chunks is not a list");
  }
  const NodeId properties = graph.Find(state, "properties");
  if (properties == kNoNode || graph.kind(properties) != NodeKind::kRecord) {
    return bad("properties holds no dtype");
  }
  return bad("a chunk is not a pair of integer lists");
}

Result<Chunk> MetadataMerger::FindItem(const Entry& entry, std::uint32_t key, DimsId offset) {
  PartMap& map = maps_[entry.part];
  const MetadataReducer& reducer = map.part->reducer();
  const StoredItem* item = map.items.Find(key, offset);
  if (item == nullptr) {
    Status status = Error(ErrorKind::kBadMetadata, "no storage entry");
    if (offset == kNoOffset) return status;
    return std::move(status).Expected("one for the chunk at " + FormatDims(dims_.Get(offset)));
  }
  if (item->encoding == kFlawed) return Status(reducer.flaws()[item->offset_bytes]);
  const Result<FileId>& file = map.files[item->path];
  if (!file.ok()) return Status(file.status());
  const Result<EncodingId>& encoding = map.encodings[item->encoding];
  if (!encoding.ok()) return Status(encoding.status());
  return Chunk{.offsets = 0,
               .sizes = 0,
               .file = *file,
               .encoding = *encoding,
               .offset_bytes = item->offset_bytes,
               .size_bytes = item->size_bytes};
}

Status MetadataMerger::AddTensor(std::span<const Entry> same_key) {
  const auto record_of = [&](const Entry& entry) -> const TensorRecord& {
    MetadataPart& part = *maps_[entry.part].part;
    return part.reducer().tensors()[part.graph().record(entry.node).value];
  };
  const Entry& first = same_key[0];
  const TensorRecord& head = record_of(first);
  const std::string& dtype_name = maps_[first.part].part->reducer().dtypes().Get(head.dtype);
  const std::optional<DType> dtype = ParseDType(dtype_name);
  if (!dtype) {
    Report(Error(ErrorKind::kUnsupported, "unknown dtype").Actual(EscapeControls(dtype_name)),
           first);
    return OkStatus();
  }
  const Dims shape(dims_.Get(head.size).begin(), dims_.Get(head.size).end());
  if (Status status = CountBytes(shape, *dtype).status(); !status.ok()) {
    // Such a tensor cannot be listed: its elements cannot be counted.
    Report(std::move(status).Actual("size " + FormatDims(shape)), first);
    return OkStatus();
  }
  index_.AddTensor(first.key, *dtype, shape);
  for (const Entry& entry : same_key) {
    const TensorRecord& record = record_of(entry);
    MetadataReducer& reducer = maps_[entry.part].part->reducer();
    if (record.size != head.size || reducer.dtypes().Get(record.dtype) != dtype_name) {
      Report(Error(ErrorKind::kShapeMismatch, "ranks describe the tensor differently"), entry);
      continue;
    }
    const std::uint32_t key = reducer.keys().Intern(entry.key);
    for (std::uint32_t i = 0; i < record.num_chunks; ++i) {
      const ChunkRecord& chunk = reducer.chunks()[record.first_chunk + i];
      if (Status status = CheckChunk(dims_.Get(chunk.offsets), dims_.Get(chunk.sizes), shape);
          !status.ok()) {
        Report(std::move(status), entry);
        continue;
      }
      Result<Chunk> item = FindItem(entry, key, chunk.offsets);
      if (!item.ok()) {
        Report(std::move(item).status(), entry);
        continue;
      }
      item->offsets = chunk.offsets;
      item->sizes = chunk.sizes;
      index_.AddChunk(*item);
    }
  }
  return OkStatus();
}

void MetadataMerger::AddObject(std::span<const Entry> same_key) {
  bool is_added = false;
  for (const Entry& entry : same_key) {
    const std::uint32_t key = maps_[entry.part].part->reducer().keys().Intern(entry.key);
    Result<Chunk> item = FindItem(entry, key, kNoOffset);
    if (!item.ok()) {
      Report(std::move(item).status(), entry);
      continue;
    }
    ObjectEntry object = {.key = std::string(entry.key),
                          .file = item->file,
                          .encoding = item->encoding,
                          .offset_bytes = item->offset_bytes,
                          .size_bytes = item->size_bytes};
    is_added ? index_.AddObjectCopy(std::move(object)) : index_.AddObject(std::move(object));
    is_added = true;
  }
}

}  // namespace

Result<MetadataExtras> ReadMetadata(std::span<const MetadataFile> files, IndexBuilder& index) {
  DimsPool dims;
  std::deque<MetadataPart> parts;
  for (const MetadataFile& file : files) {
    CKPT_RETURN_IF_ERROR(parts.emplace_back(file.name, dims).Read(file));
  }
  MetadataExtras extras;
  std::vector<Problem> warnings;
  for (MetadataPart& part : parts) {
    ReadExtras(part.graph(), part.state(), part.name(), part.reducer(), dims, extras, warnings);
    for (Problem& warning : pickle::WarnAboutCalls(part.graph(), part.name())) {
      warnings.push_back(std::move(warning));
    }
  }
  CKPT_RETURN_IF_ERROR(MetadataMerger(dims, index).AddAll(parts));
  if (parts.size() > 1) index.SetRanksSavedAlone();
  for (Problem& warning : warnings) index.AddProblem(std::move(warning));
  index.AdoptDims(std::move(dims));
  return extras;
}

}  // namespace ckpt::dcp
