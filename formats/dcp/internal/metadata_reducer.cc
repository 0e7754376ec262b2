#include "formats/dcp/internal/metadata_reducer.h"

#include <algorithm>
#include <functional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/tensor/shape.h"

namespace ckpt::dcp {

using pickle::Graph;
using pickle::kNoNode;
using pickle::Literal;
using pickle::NodeId;
using pickle::NodeKind;
using pickle::Record;

namespace {

constexpr std::string_view kPlainEncoding = "torch_save";
constexpr std::uint32_t kPlainEncodingId = 0;

// Real pickles have a few of these in a list. A hostile one lets many objects share a list of a
// million, and reading it for each of them would never end.
constexpr std::size_t kMaxFields = 32;
constexpr std::size_t kMaxTransforms = 16;
constexpr std::size_t kMaxTransformBytes = 256;
// A chunk with its index and its stored item takes more bytes than this. Small pickles are not
// checked.
constexpr std::uint64_t kLeastBytesPerChunk = 32;
constexpr std::uint64_t kFreeChunks = 4096;

// The value of a state's field: a dataclass pickles its fields as a dict.
NodeId Field(const Graph& graph, NodeId state, std::string_view name) {
  const bool is_fields =
      graph.kind(state) == NodeKind::kDict && graph.items(state).size() <= 2 * kMaxFields;
  return is_fields ? graph.Find(state, name) : kNoNode;
}

bool IsRecord(const Graph& graph, NodeId node, std::uint32_t type) {
  return node != kNoNode && graph.kind(node) == NodeKind::kRecord &&
         graph.record(node).type == type;
}

bool IsText(const Graph& graph, NodeId node) {
  return node != kNoNode && graph.kind(node) == NodeKind::kText;
}

Record ChunkOf(DimsId offsets, DimsId sizes) {
  return {MetadataReducer::kChunk, (static_cast<std::uint64_t>(offsets) << 32) | sizes};
}

// A byte count of a _StorageInfo, or the reason why the node is not one.
Status ReadByteCount(const Graph& graph, NodeId node, std::string_view what, std::uint64_t* out) {
  if (node != kNoNode && graph.kind(node) == NodeKind::kBigInt) {
    return Error(ErrorKind::kOutOfRange, fmt::format("{} is not a 64-bit integer", what));
  }
  if (node == kNoNode || graph.kind(node) != NodeKind::kInt) {
    return Error(ErrorKind::kBadMetadata, fmt::format("{} is not an integer", what));
  }
  const std::int64_t value = graph.integer(node);
  if (value < 0) {
    return Error(ErrorKind::kOutOfRange, fmt::format("negative {}", what))
        .Actual(std::to_string(value));
  }
  *out = static_cast<std::uint64_t>(value);
  return OkStatus();
}

}  // namespace

MetadataClass ClassifyMetadata(std::string_view module, std::string_view name) {
  if (module == "torch" && name == "Size") return MetadataClass::kSize;
  // torch up to 2.2 kept the properties beside ShardedTensor, torch up to 2.0 everything below
  // `_shard`.
  if (module == "torch.distributed._shard.sharded_tensor.metadata") {
    return name == "TensorProperties" ? MetadataClass::kProperties : MetadataClass::kOther;
  }
  if (module == "megatron.core.dist_checkpointing.strategies.torch") {
    if (name == "MCoreMetadata") return MetadataClass::kMetadata;
    return name == "MCoreSavePlan" ? MetadataClass::kPlan : MetadataClass::kOther;
  }
  for (const std::string_view prefix :
       {"torch.distributed.checkpoint.", "torch.distributed._shard.checkpoint."}) {
    if (!module.starts_with(prefix)) continue;
    const std::string_view part = module.substr(prefix.size());
    if (part == "metadata") {
      if (name == "Metadata") return MetadataClass::kMetadata;
      if (name == "TensorStorageMetadata") return MetadataClass::kTensor;
      if (name == "BytesStorageMetadata") return MetadataClass::kBytes;
      if (name == "TensorProperties") return MetadataClass::kProperties;
      if (name == "ChunkStorageMetadata") return MetadataClass::kChunk;
      if (name == "MetadataIndex") return MetadataClass::kIndex;
    } else if (part == "filesystem") {
      if (name == "_StorageInfo") return MetadataClass::kStored;
      if (name == "_StoragePrefix") return MetadataClass::kPlan;
    } else if (part == "planner") {
      if (name == "SavePlan" || name == "WriteItem" || name == "TensorWriteData" ||
          name == "BytesIOWriteData") {
        return MetadataClass::kPlan;
      }
    }
  }
  return MetadataClass::kOther;
}

MetadataReducer::MetadataReducer(DimsPool& dims) : dims_(&dims), max_chunks_(kFreeChunks) {
  encodings_.Intern(kPlainEncoding);
}

void MetadataReducer::ReserveFor(std::uint64_t pickle_bytes) {
  // The fewest bytes that a writer needs for a chunk with its index and its item.
  constexpr std::uint64_t kBytesPerChunk = 96;
  constexpr std::uint64_t kMaxReserved = 1ULL << 22;
  max_chunks_ = std::max(kFreeChunks, pickle_bytes / kLeastBytesPerChunk);
  const std::uint64_t expected = std::min(pickle_bytes / kBytesPerChunk, kMaxReserved);
  stored_.reserve(expected);
  chunks_.reserve(expected);
}

MetadataClass MetadataReducer::ClassOf(const Graph& graph, NodeId node) {
  if (graph.kind(node) == NodeKind::kCall || graph.kind(node) == NodeKind::kInstance) {
    node = graph.callable(node);
  }
  if (graph.kind(node) != NodeKind::kGlobal) return MetadataClass::kOther;
  const pickle::GlobalId global = graph.global(node);
  if (global >= classes_.size()) {
    classes_.resize(global + 1, MetadataClass::kOther);
    classified_.resize(global + 1, false);
  }
  if (!classified_[global]) {
    classes_[global] = ClassifyMetadata(graph.module(node), graph.name(node));
    classified_[global] = true;
  }
  return classes_[global];
}

std::optional<DimsId> MetadataReducer::DimsOf(const Graph& graph, NodeId node) {
  if (node == kNoNode) return std::nullopt;
  const NodeKind kind = graph.kind(node);
  if (kind == NodeKind::kRecord && graph.record(node).type == kSize) {
    return static_cast<DimsId>(graph.record(node).value);
  }
  if (kind != NodeKind::kTuple && kind != NodeKind::kList) return std::nullopt;
  if (graph.items(node).size() > kMaxDims) return std::nullopt;
  scratch_.clear();
  for (const NodeId item : graph.items(node)) {
    if (graph.kind(item) != NodeKind::kInt) return std::nullopt;
    scratch_.push_back(graph.integer(item));
  }
  return dims_->Intern(scratch_);
}

std::optional<Record> MetadataReducer::OnCall(const Graph& graph, NodeId callable, NodeId args) {
  if (graph.kind(callable) != NodeKind::kGlobal ||
      ClassOf(graph, callable) != MetadataClass::kSize) {
    return std::nullopt;
  }
  const std::span<const NodeId> values = graph.items(args);
  const std::optional<DimsId> dims = values.size() == 1 ? DimsOf(graph, values[0]) : std::nullopt;
  if (!dims) return std::nullopt;
  return Record{kSize, *dims};
}

std::optional<Record> MetadataReducer::OnBuilt(const Graph& graph, NodeId instance, NodeId state) {
  switch (ClassOf(graph, instance)) {
    case MetadataClass::kChunk:
      return BuildChunk(graph, state);
    case MetadataClass::kIndex:
      return BuildIndex(graph, state);
    case MetadataClass::kStored:
      return BuildStored(graph, state);
    case MetadataClass::kProperties:
      return BuildProperties(graph, state);
    case MetadataClass::kTensor:
      return BuildTensor(graph, state);
    case MetadataClass::kPlan:
      return Record{kPlan, 0};
    case MetadataClass::kMetadata:
    case MetadataClass::kBytes:
    case MetadataClass::kSize:
    case MetadataClass::kOther:
      return std::nullopt;
  }
  return std::nullopt;
}

MetadataReducer::Built MetadataReducer::BuildChunk(const Graph& graph, NodeId state) {
  const std::optional<DimsId> offsets = DimsOf(graph, Field(graph, state, "offsets"));
  const std::optional<DimsId> sizes = DimsOf(graph, Field(graph, state, "sizes"));
  if (!offsets || !sizes) return std::nullopt;
  return ChunkOf(*offsets, *sizes);
}

MetadataReducer::Built MetadataReducer::BuildIndex(const Graph& graph, NodeId state) {
  const NodeId fqn = Field(graph, state, "fqn");
  if (!IsText(graph, fqn)) return std::nullopt;
  const NodeId offset = Field(graph, state, "offset");
  DimsId offset_id = kNoOffset;
  if (offset != kNoNode && graph.kind(offset) != NodeKind::kNone) {
    const std::optional<DimsId> dims = DimsOf(graph, offset);
    if (!dims) return std::nullopt;
    offset_id = *dims;
  }
  return Record{kIndex, MakeIdentity(key_cache_.Intern(fqn, graph.text(fqn), keys_), offset_id)};
}

MetadataReducer::Built MetadataReducer::BuildStored(const Graph& graph, NodeId state) {
  const NodeId path = Field(graph, state, "relative_path");
  if (!IsText(graph, path)) return std::nullopt;
  StoredItem item;
  item.path = path_cache_.Intern(path, graph.text(path), paths_);
  Status flaw = ReadByteCount(graph, Field(graph, state, "offset"), "offset", &item.offset_bytes);
  flaw.Add(ReadByteCount(graph, Field(graph, state, "length"), "length", &item.size_bytes));
  const std::optional<std::uint32_t> encoding =
      EncodingOf(graph, Field(graph, state, "transform_descriptors"));
  if (!encoding) {
    flaw.Add(Error(ErrorKind::kBadMetadata, "transform_descriptors is not a short list of texts"));
  }
  item.encoding = encoding.value_or(0);
  if (!flaw.ok()) {
    item.encoding = kFlawed;
    item.offset_bytes = flaws_.size();
    flaws_.push_back(std::move(flaw));
  }
  stored_.push_back(item);
  return Record{kStored, stored_.size() - 1};
}

std::optional<std::uint32_t> MetadataReducer::EncodingOf(const Graph& graph, NodeId descriptors) {
  if (descriptors == kNoNode || graph.kind(descriptors) == NodeKind::kNone) {
    return kPlainEncodingId;
  }
  const NodeKind kind = graph.kind(descriptors);
  if (kind != NodeKind::kList && kind != NodeKind::kTuple) return std::nullopt;
  if (graph.items(descriptors).size() > kMaxTransforms) return std::nullopt;
  std::string encoding(kPlainEncoding);
  for (const NodeId descriptor : graph.items(descriptors)) {
    if (!IsText(graph, descriptor)) return std::nullopt;
    if (graph.text(descriptor).size() > kMaxTransformBytes) return std::nullopt;
    encoding += '+';
    encoding += graph.text(descriptor);
  }
  return encodings_.Intern(encoding);
}

MetadataReducer::Built MetadataReducer::BuildProperties(const Graph& graph, NodeId state) {
  // A tuple that starts with the dtype; its length has changed between versions.
  NodeId dtype = Field(graph, state, "dtype");
  if (graph.kind(state) == NodeKind::kTuple && !graph.items(state).empty()) {
    dtype = graph.items(state)[0];
  }
  if (dtype == kNoNode || graph.kind(dtype) != NodeKind::kGlobal ||
      graph.module(dtype) != "torch") {
    return std::nullopt;
  }
  return Record{kProperties, dtypes_.Intern(graph.name(dtype))};
}

MetadataReducer::Built MetadataReducer::BuildTensor(const Graph& graph, NodeId state) {
  const NodeId properties = Field(graph, state, "properties");
  const std::optional<DimsId> size = DimsOf(graph, Field(graph, state, "size"));
  const NodeId chunks = Field(graph, state, "chunks");
  if (!IsRecord(graph, properties, kProperties) || !size || chunks == kNoNode ||
      (graph.kind(chunks) != NodeKind::kList && graph.kind(chunks) != NodeKind::kTuple)) {
    return std::nullopt;
  }
  const std::span<const NodeId> items = graph.items(chunks);
  has_too_many_chunks_ = has_too_many_chunks_ || items.size() > max_chunks_ - chunks_.size();
  if (has_too_many_chunks_) return std::nullopt;
  for (const NodeId chunk : items) {
    if (!IsRecord(graph, chunk, kChunk)) return std::nullopt;
  }
  tensors_.push_back({.dtype = static_cast<std::uint32_t>(graph.record(properties).value),
                      .size = *size,
                      .first_chunk = chunks_.size(),
                      .num_chunks = static_cast<std::uint32_t>(items.size())});
  for (const NodeId chunk : items) {
    const std::uint64_t value = graph.record(chunk).value;
    chunks_.push_back({static_cast<DimsId>(value >> 32), static_cast<DimsId>(value & 0xFFFFFFFF)});
  }
  return Record{kTensor, tensors_.size() - 1};
}

std::optional<Record> MetadataReducer::OnLiteral(const Graph& graph,
                                                 const pickle::InstanceLiteral& instance) {
  switch (ClassOf(graph, instance.cls)) {
    case MetadataClass::kChunk:
      return LiteralChunk(graph, field_names_.Sort(graph, instance));
    case MetadataClass::kIndex:
      return LiteralIndex(graph, field_names_.Sort(graph, instance));
    case MetadataClass::kStored:
      return LiteralStored(graph, field_names_.Sort(graph, instance));
    default:
      return std::nullopt;
  }
}

std::optional<DimsId> MetadataReducer::LiteralDims(const Graph& graph, const Literal* value) {
  if (value == nullptr) return std::nullopt;
  if (value->kind == Literal::Kind::kNode) return DimsOf(graph, value->node);
  if (value->kind != Literal::Kind::kCall || ClassOf(graph, value->node) != MetadataClass::kSize) {
    return std::nullopt;
  }
  return dims_->Intern(value->integers);
}

MetadataReducer::Built MetadataReducer::LiteralChunk(const Graph& graph, const Fields& fields) {
  const std::optional<DimsId> offsets = LiteralDims(graph, fields.Get(FieldName::kOffsets));
  const std::optional<DimsId> sizes = LiteralDims(graph, fields.Get(FieldName::kSizes));
  if (!offsets || !sizes) return std::nullopt;
  return ChunkOf(*offsets, *sizes);
}

MetadataReducer::Built MetadataReducer::LiteralIndex(const Graph& graph, const Fields& fields) {
  const Literal* fqn = fields.Get(FieldName::kFqn);
  const Literal* offset = fields.Get(FieldName::kOffset);
  if (fqn == nullptr || fqn->kind != Literal::Kind::kNode || !IsText(graph, fqn->node)) {
    return std::nullopt;
  }
  DimsId offset_id = kNoOffset;
  if (offset != nullptr && offset->kind != Literal::Kind::kNone) {
    const std::optional<DimsId> dims = LiteralDims(graph, offset);
    if (!dims) return std::nullopt;
    offset_id = *dims;
  }
  const std::uint32_t key = key_cache_.Intern(fqn->node, graph.text(fqn->node), keys_);
  return Record{kIndex, MakeIdentity(key, offset_id)};
}

MetadataReducer::Built MetadataReducer::LiteralStored(const Graph& graph, const Fields& fields) {
  const Literal* path = fields.Get(FieldName::kRelativePath);
  const Literal* offset = fields.Get(FieldName::kOffset);
  const Literal* length = fields.Get(FieldName::kLength);
  const Literal* transforms = fields.Get(FieldName::kTransformDescriptors);
  const auto is_count = [](const Literal* value) {
    return value != nullptr && value->kind == Literal::Kind::kInt && value->integer >= 0;
  };
  if (path == nullptr || !is_count(offset) || !is_count(length)) return std::nullopt;
  if (transforms != nullptr && transforms->kind != Literal::Kind::kNone) return std::nullopt;
  StoredItem item;
  if (path->kind == Literal::Kind::kText) {
    item.path = path_cache_.Intern(std::hash<std::string_view>{}(path->text), path->text, paths_);
  } else if (path->kind == Literal::Kind::kNode && IsText(graph, path->node)) {
    item.path = path_cache_.Intern(path->node, graph.text(path->node), paths_);
  } else {
    return std::nullopt;
  }
  item.offset_bytes = static_cast<std::uint64_t>(offset->integer);
  item.size_bytes = static_cast<std::uint64_t>(length->integer);
  item.encoding = kPlainEncodingId;
  stored_.push_back(item);
  return Record{kStored, stored_.size() - 1};
}

}  // namespace ckpt::dcp
