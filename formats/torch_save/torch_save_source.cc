#include "formats/torch_save/torch_save_source.h"

#include <map>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/counted.h"
#include "core/base/name_list.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "core/manifest/manifest_text.h"
#include "formats/pickle/globals.h"
#include "formats/pickle/object_json.h"
#include "formats/pickle/python_str.h"
#include "formats/torch_save/internal/array_digest.h"
#include "formats/torch_save/internal/distributed_tensor.h"
#include "formats/torch_save/internal/entry_walk.h"
#include "formats/torch_save/internal/inner_tensors.h"
#include "formats/torch_save/internal/persistent_storage.h"
#include "formats/torch_save/object_item.h"

namespace ckpt::torch_save {
namespace {

// Of all tensors of a file, which may share a list of them.
constexpr std::size_t kMaxParts = std::size_t{1} << 22;

Problem WarnOfCall(const TorchContainer& container, const NamedNode& call) {
  std::string name = container.pickle.graph.QualifiedName(call.node);
  if (name.empty()) name = "what another call returned";
  Problem warning =
      Warning(ErrorKind::kUnsafePickle, "the pickle calls " + name + "; it was not run",
              container.file->name(), call.key);
  warning.actual = std::move(name);
  return warning;
}

// `node` holds tensors at `paths` and is not a tensor itself.
Problem WarnOfHolder(const TorchContainer& container, pickle::NodeId node, const std::string& key,
                     const std::vector<std::string>& paths, std::uint64_t bytes) {
  const pickle::Graph& graph = container.pickle.graph;
  Problem warning = Warning(ErrorKind::kUnsupported,
                            "an object holds numbers that are not tensors of the checkpoint",
                            container.file->name(), key);
  // The elements of a tensor that has a class of its own stand at no path.
  const std::string held = NameSome(paths);
  warning.actual = fmt::format("{} with {}{}", pickle::ClassName(graph, node),
                               held.empty() ? "" : held + ", ", FormatByteSize(bytes));
  warning.hint = "ckpt-inspect show and meta give the digest of each";
  const auto distributed = DistributedTensorOf(graph, node);
  if (!distributed) return warning;
  warning.message = "only this rank's part of a distributed tensor is in the file";
  warning.expected = "all of " + pickle::PythonStr(graph, distributed->size);
  warning.hint = "save the state of all ranks with torch.distributed.checkpoint, or full_tensor()";
  return warning;
}

Problem WarnOfClasses(const TorchContainer& container, const OwnClasses& own) {
  Problem warning =
      Warning(ErrorKind::kUnsupported,
              "mappings or lists have classes of their own, which a conversion leaves out",
              container.file->name(), own.first_key);
  warning.actual = "class " + pickle::ClassName(container.pickle.graph, own.first);
  if (own.count > 1) warning.actual += fmt::format(" and {} more", own.count - 1);
  return warning;
}

// Whether the file is one list, whose items have entries of their own.
bool IsListOfEntries(const TorchContainer& container, const Entries& found) {
  const pickle::NodeKind kind = container.pickle.graph.kind(container.pickle.root);
  const bool is_list = kind == pickle::NodeKind::kList || kind == pickle::NodeKind::kTuple;
  return is_list && !found.list.empty() && !found.list.front().key.empty();
}

Problem WarnOfList(const TorchContainer& container) {
  Problem warning = Warning(ErrorKind::kUnsupported,
                            "the file holds one list, of which a conversion makes a mapping",
                            container.file->name());
  warning.expected = "one mapping";
  warning.actual =
      pickle::PythonTypeName(container.pickle.graph, container.pickle.root) + " of entries";
  return warning;
}

// A value that cannot be shown, for the reason `why`. No tensor depends on it.
RenderedObject OnlyNamed(const TorchContainer& container, pickle::NodeId node,
                         const std::string& key, Problem why) {
  const pickle::Graph& graph = container.pickle.graph;
  why.severity = Severity::kWarning;
  why.file = container.file->name();
  why.tensor = key;
  return {.type = pickle::PythonTypeName(graph, node),
          .json = pickle::OpaqueJson(graph, node),
          .warnings = {std::move(why)}};
}

// A tensor's elements in the rank's file. Errors: those of RebuildTensor, kUnsupported (no plain
// array).
Result<RebuiltTensor> ReadLocal(const TorchContainer& container, pickle::NodeId local) {
  const pickle::Graph& graph = container.pickle.graph;
  if (TensorFormOf(graph, local) != TensorForm::kDense) {
    return Error(ErrorKind::kUnsupported, "a rank's tensor is not a plain array")
        .Actual(pickle::ClassName(graph, local));
  }
  return RebuildTensor(container, local);
}

Result<RankPart> ReadPart(const TorchContainer& container, const NamedNode& named) {
  const pickle::Graph& graph = container.pickle.graph;
  RankPart part;
  part.key = named.key;
  pickle::NodeId local = named.node;
  const auto distributed = DistributedTensorOf(graph, named.node);
  if (distributed) {
    CKPT_ASSIGN_OR_RETURN(part.shape, ReadDims(graph, distributed->size, "size"));
    CKPT_ASSIGN_OR_RETURN(RankPlacement placement, ReadPlacement(graph, *distributed));
    part.cut_dims = std::move(placement.cut_dims);
    part.coordinate = std::move(placement.coordinate);
    local = distributed->local;
  }
  if (local == pickle::kNoNode) {
    return Error(ErrorKind::kBadItem, "a distributed tensor has no part of the rank");
  }
  CKPT_ASSIGN_OR_RETURN(part.local, ReadLocal(container, local));
  if (!distributed) part.shape = part.local.shape;
  return part;
}

Result<std::vector<RankPart>> ReadParts(const TorchContainer& container, const NamedNode& named) {
  const pickle::Graph& graph = container.pickle.graph;
  CKPT_ASSIGN_OR_RETURN(const std::optional<ShardedTensor> sharded,
                        ShardedTensorOf(graph, named.node));
  std::vector<RankPart> parts;
  if (!sharded) {
    CKPT_ASSIGN_OR_RETURN(RankPart part, ReadPart(container, named));
    parts.push_back(std::move(part));
    return parts;
  }
  CKPT_ASSIGN_OR_RETURN(const Dims size, ReadDims(graph, sharded->size, "size"));
  for (const ShardedTensor::Shard& shard : sharded->shards) {
    RankPart& part = parts.emplace_back();
    part.key = named.key;
    part.shape = size;
    CKPT_ASSIGN_OR_RETURN(part.local, ReadLocal(container, shard.local));
    CKPT_ASSIGN_OR_RETURN(Dims offsets, ReadDims(graph, shard.offsets, "offset"));
    part.box = Box{.offsets = std::move(offsets), .sizes = part.local.shape};
  }
  return parts;
}

}  // namespace

TorchSaveSource::TorchSaveSource(TorchContainer container)
    : container_(std::move(container)),
      whole_(NodesAt(container_.pickle.graph, container_.pickle.root, container_.whole)) {}

Result<std::unique_ptr<TorchSaveSource>> TorchSaveSource::Open(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const ReadableFile> file, storage.Open(path));
  CKPT_ASSIGN_OR_RETURN(TorchContainer container, OpenTorchFile(std::move(file)));
  std::unique_ptr<TorchSaveSource> source(new TorchSaveSource(std::move(container)));
  if (Status status = source->BuildIndex(path.filename().string()); !status.ok()) {
    return std::move(status).File(path.string());
  }
  return source;
}

// What is kept from one entry to the next.
struct TorchSaveSource::Listing {
  Listing(const ReadableFile& content, const std::string& file_name)
      : file(builder.AddFile(file_name)),
        encoding(builder.AddEncoding("torch_save")),
        sum(content, "the file is far too small for its tensors") {}

  IndexBuilder builder;
  const FileId file;
  const EncodingId encoding;
  TensorSum sum;
  std::unordered_set<std::string> seen;
  std::unordered_set<std::string> warned_of;  // calls for which a warning was given
  bool all_are_listed = true;                 // else there is an error for it
  // Tensors with attributes or a class of their own; those of the first one.
  std::uint64_t tensors_with_more = 0;
  std::string first_with_more;
  std::vector<std::string> beside;
};

Status TorchSaveSource::AddEntry(const NamedNode& named, Listing& listing) {
  if (!listing.seen.insert(named.key).second) {
    listing.builder.AddProblems(Error(ErrorKind::kBadMetadata, "two entries have the same path")
                                    .File(container_.file->name())
                                    .Tensor(named.key));
    return OkStatus();
  }
  if (named.form == TensorForm::kNone && !named.is_value) {
    Problem warning = WarnOfCall(container_, named);
    listing.warned_of.insert(warning.actual);
    listing.builder.AddProblem(std::move(warning));
  }
  if (named.form != TensorForm::kDense) {
    listing.builder.AddObject(
        {.key = named.key, .file = listing.file, .encoding = listing.encoding});
    objects_.emplace(named.key, named.node);
    if (named.is_value) values_.insert(named.node);
    return OkStatus();
  }
  Result<RebuiltTensor> tensor = RebuildTensor(container_, named.node);
  if (!tensor.ok()) {
    listing.all_are_listed = false;
    listing.builder.AddProblems(
        std::move(tensor).status().File(container_.file->name()).Tensor(named.key));
    return OkStatus();
  }
  CKPT_RETURN_IF_ERROR(listing.sum.Add(*tensor));
  if (std::vector<std::string> beside = BesideElements(container_.pickle.graph, named.node);
      !beside.empty()) {
    if (listing.tensors_with_more++ == 0) {
      listing.first_with_more = named.key;
      listing.beside = std::move(beside);
    }
  }
  const StorageExtent& storage = *tensor->storage;
  listing.builder.AddTensor(named.key, tensor->array.dtype, tensor->shape);
  listing.builder.AddChunk(WholeBox(tensor->shape), listing.file, listing.encoding,
                           storage.offset_bytes, storage.size_bytes);
  tensors_.emplace(named.key, *std::move(tensor));
  return OkStatus();
}

Status TorchSaveSource::BuildIndex(const std::string& file_name) {
  CKPT_ASSIGN_OR_RETURN(const Entries found,
                        FindEntries(container_.pickle.graph, container_.pickle.root, whole_));
  Listing listing(*container_.file, file_name);
  IndexBuilder& builder = listing.builder;
  for (const Problem& warning : container_.warnings) builder.AddProblem(warning);
  if (!found.has_values) {
    builder.AddProblem(Warning(ErrorKind::kResource,
                               "values beside the tensors are more than can be listed",
                               container_.file->name(), ""));
  }
  for (const auto& [key, storage] : container_.storages) {
    if (storage.crc32) protection_ = Protection::kCrc32;
  }

  if (IsListOfEntries(container_, found)) builder.AddProblem(WarnOfList(container_));
  if (found.own_classes.count > 0) {
    builder.AddProblem(WarnOfClasses(container_, found.own_classes));
  }
  for (const NamedNode& named : found.list) CKPT_RETURN_IF_ERROR(AddEntry(named, listing));
  if (listing.tensors_with_more > 0) {
    Problem warning =
        Warning(ErrorKind::kUnsupported,
                "tensors have attributes or classes of their own, which a conversion leaves out",
                container_.file->name(), listing.first_with_more);
    warning.actual = NameSome(listing.beside);
    if (const std::uint64_t others = listing.tensors_with_more - 1; others > 0) {
      warning.actual += fmt::format("; {} more have some, too", Counted(others, "tensor"));
    }
    builder.AddProblem(std::move(warning));
  }
  for (const NamedNode& attribute : found.attributes) {
    if (listing.seen.contains(attribute.key)) continue;
    attributes_.push_back(
        {.key = attribute.key, .file = listing.file, .encoding = listing.encoding});
    objects_.emplace(attribute.key, attribute.node);
    values_.insert(attribute.node);
  }
  if (listing.all_are_listed) {
    const auto make = [&](const std::string& key) {
      return ObjectEntry{.key = key, .file = listing.file, .encoding = listing.encoding};
    };
    CKPT_RETURN_IF_ERROR(NameHidden(make, builder));
  }
  for (Problem& warning :
       pickle::WarnAboutCalls(container_.pickle.graph, container_.file->name())) {
    if (!listing.warned_of.contains(warning.actual)) builder.AddProblem(std::move(warning));
  }
  CKPT_ASSIGN_OR_RETURN(index_, builder.Build());
  return OkStatus();
}

TorchSaveSource::Storages TorchSaveSource::ListedStorages() const {
  Storages listed;
  for (const auto& [key, tensor] : tensors_) listed.insert(tensor.storage);
  return listed;
}

const StorageExtent* TorchSaveSource::StorageBehind(pickle::NodeId node) const {
  const pickle::Graph& graph = container_.pickle.graph;
  if (graph.kind(node) != pickle::NodeKind::kPersistent) {
    const Result<RebuiltTensor> tensor = RebuildTensor(container_, node);
    return tensor.ok() ? tensor->storage : nullptr;
  }
  const auto reference = ParsePersistentStorage(graph, node);
  if (!reference) return nullptr;
  const auto found = container_.storages.find(reference->key);
  return found == container_.storages.end() ? nullptr : &found->second;
}

TorchSaveSource::Storages TorchSaveSource::HiddenStorages() const {
  const pickle::Graph& graph = container_.pickle.graph;
  const Storages listed = ListedStorages();
  Storages hidden;
  for (pickle::NodeId node = 0; node < graph.size(); ++node) {
    if (graph.kind(node) != pickle::NodeKind::kPersistent) continue;
    const StorageExtent* storage = StorageBehind(node);
    if (storage != nullptr && !listed.contains(storage)) hidden.insert(storage);
  }
  return hidden;
}

Status TorchSaveSource::NameHidden(const std::function<ObjectEntry(const std::string&)>& make,
                                   IndexBuilder& builder) {
  struct Holder {
    std::string key;
    std::vector<std::string> paths;  // of tensors, from the holder
    std::vector<const StorageExtent*> storages;
    std::uint64_t bytes = 0;
  };
  Storages hidden = HiddenStorages();
  if (hidden.empty()) return OkStatus();
  const pickle::Graph& graph = container_.pickle.graph;
  CKPT_ASSIGN_OR_RETURN(const std::vector<InnerTensor> inner,
                        FindInnerTensors(graph, container_.pickle.root, whole_));
  std::map<pickle::NodeId, Holder> holders;
  for (const InnerTensor& tensor : inner) {
    const StorageExtent* storage = StorageBehind(tensor.node);
    if (storage == nullptr || !hidden.contains(storage)) continue;
    if (tensor.of_mesh) {
      hidden.erase(storage);
    } else if (tensor.holder != pickle::kNoNode) {
      Holder& holder = holders[tensor.holder];
      holder.key = tensor.holder_key;
      holder.paths.push_back(tensor.path);
      holder.storages.push_back(storage);
      holder.bytes += storage->size_bytes;
    }
  }
  for (const auto& [node, holder] : holders) {
    if (tensors_.contains(holder.key)) continue;
    const auto [entry, is_new] = objects_.emplace(holder.key, node);
    // If the key belongs to another value, this one cannot be read under it, and its storages are
    // not listed.
    if (entry->second != node) continue;
    if (is_new) builder.AddObject(make(holder.key));
    values_.erase(node);
    held_bytes_[holder.key] = holder.bytes;
    for (const StorageExtent* storage : holder.storages) {
      held_.insert(storage);
      hidden.erase(storage);
    }
    // That such an object holds numbers was so in the checkpoint that it was in, too.
    if (whole_.contains(node)) continue;
    builder.AddProblem(WarnOfHolder(container_, node, holder.key, holder.paths, holder.bytes));
  }
  if (hidden.empty()) return OkStatus();
  std::uint64_t hidden_bytes = 0;
  for (const StorageExtent* storage : hidden) hidden_bytes += storage->size_bytes;
  Problem warning =
      Warning(ErrorKind::kUnsupported, "some storages belong to no tensor that is listed",
              container_.file->name(), "");
  warning.actual = fmt::format("{} of {} storages, {}", hidden.size(), container_.storages.size(),
                               FormatByteSize(hidden_bytes));
  builder.AddProblem(std::move(warning));
  return OkStatus();
}

Status TorchSaveSource::VerifyOnce(const StorageExtent& storage) const {
  return verified_.Run(&storage, [&] { return VerifyStorage(container_, storage); });
}

Result<std::vector<RankPart>> TorchSaveSource::RankParts(std::string_view prefix) const {
  CKPT_ASSIGN_OR_RETURN(const std::vector<NamedNode> found,
                        FindTensors(container_.pickle.graph, container_.pickle.root));
  std::vector<RankPart> parts;
  Status failures;
  TensorSum sum(*container_.file, "the file is far too small for its tensors");
  for (const NamedNode& named : found) {
    if (named.form == TensorForm::kNone) continue;  // a call, of which the index warns
    if (!named.key.starts_with(prefix)) continue;
    Result<std::vector<RankPart>> read = ReadParts(container_, named);
    if (!read.ok()) {
      failures.Add(std::move(read).status().File(container_.file->name()).Tensor(named.key));
      continue;
    }
    if (read->size() > kMaxParts - parts.size()) {
      return Error(ErrorKind::kResource, "the file has more parts of tensors than can be listed")
          .File(container_.file->name());
    }
    for (RankPart& part : *read) {
      CKPT_RETURN_IF_ERROR(sum.Add(part.local));
      parts.push_back(std::move(part));
    }
  }
  if (!failures.ok()) return failures;
  return parts;
}

Result<StoredArray> TorchSaveSource::LocatePart(const RebuiltTensor& local) const {
  CKPT_RETURN_IF_ERROR(VerifyOnce(*local.storage));
  return local.array;
}

Result<std::string> TorchSaveSource::DigestPart(const RebuiltTensor& local) const {
  CKPT_ASSIGN_OR_RETURN(const StoredArray array, LocatePart(local));
  return DigestArray(array, local.shape, HashAlgorithm::kSha256);
}

Result<StoredArray> TorchSaveSource::Locate(const GlobalTensor& tensor,
                                            const Chunk& /*chunk*/) const {
  CKPT_RETURN_IF_ERROR(index_.CheckDeliverable(tensor.key));
  const auto found = tensors_.find(tensor.key);
  if (found == tensors_.end()) {
    return Error(ErrorKind::kNotFound, "no such tensor").Tensor(tensor.key);
  }
  if (Status status = VerifyOnce(*found->second.storage); !status.ok()) {
    return std::move(status).Tensor(tensor.key);
  }
  return found->second.array;
}

std::vector<std::string> TorchSaveSource::members() const {
  const pickle::Graph& graph = container_.pickle.graph;
  const pickle::NodeId root = container_.pickle.root;
  std::vector<std::string> members;
  if (graph.kind(root) != pickle::NodeKind::kDict) return members;
  const std::span<const pickle::NodeId> items = graph.items(root);
  for (std::size_t i = 0; i < items.size(); i += 2) {
    if (graph.kind(items[i]) == pickle::NodeKind::kText) members.emplace_back(graph.text(items[i]));
  }
  return members;
}

Result<RenderedObject> TorchSaveSource::ReadObject(const ObjectEntry& object) const {
  const pickle::Graph& graph = container_.pickle.graph;
  const pickle::NodeId root = container_.pickle.root;
  const auto found = objects_.find(object.key);
  const bool is_entry = found != objects_.end();
  pickle::NodeId node = is_entry ? found->second : root;
  if (!is_entry && !object.key.empty()) {
    const bool is_dict = graph.kind(root) == pickle::NodeKind::kDict;
    node = is_dict ? graph.Find(root, object.key) : pickle::kNoNode;
  }
  if (node == pickle::kNoNode) {
    return Error(ErrorKind::kNotFound, "no such object").Tensor(object.key);
  }
  // Storages of values inside the object are listed with the entries of these values.
  const Held held = is_entry ? Held::kDigest : Held::kSkip;
  const auto verify = [this](const StorageExtent& storage) { return VerifyOnce(storage); };
  Result<RenderedObject> rendered = RenderObject(container_, node, object.key, held, verify);
  const bool is_too_large = !rendered.ok() && rendered.status().kind() == ErrorKind::kResource;
  if (!is_too_large || !values_.contains(node)) return rendered;
  return OnlyNamed(container_, node, object.key, std::move(rendered).status().first());
}

Result<std::optional<PickledObject>> TorchSaveSource::ReadPickled(const ObjectEntry& object) const {
  const auto found = objects_.find(object.key);
  if (found == objects_.end()) {
    return Error(ErrorKind::kNotFound, "no such object").Tensor(object.key);
  }
  const auto verify = [this](const StorageExtent& storage) { return VerifyOnce(storage); };
  return CopyObject(container_, found->second, verify);
}

Result<std::string> TorchSaveSource::OutlineMember(std::string_view member) const {
  const pickle::Graph& graph = container_.pickle.graph;
  const pickle::NodeId root = container_.pickle.root;
  const bool is_dict = graph.kind(root) == pickle::NodeKind::kDict;
  const pickle::NodeId node = is_dict ? graph.Find(root, member) : pickle::kNoNode;
  if (node == pickle::kNoNode) {
    return Error(ErrorKind::kNotFound, "no such member").Tensor(member);
  }
  return pickle::RenderJson(graph, node);
}

std::uint64_t TorchSaveSource::HeldBytes(const ObjectEntry& object) const {
  const auto found = held_bytes_.find(object.key);
  return found == held_bytes_.end() ? 0 : found->second;
}

EntryPaths TorchSaveSource::Paths() const {
  Result<EntryPaths> paths = FindPaths(container_.pickle.graph, container_.pickle.root, whole_);
  // Of an object with too many entries, keys are all that is told.
  return paths.ok() ? *std::move(paths) : EntryPaths();
}

Result<std::shared_ptr<const Manifest>> TorchSaveSource::ReadOrigin() const {
  if (container_.origin.empty()) return std::shared_ptr<const Manifest>();
  CKPT_ASSIGN_OR_RETURN(Manifest manifest,
                        ParseManifest(container_.origin, container_.file->name()));
  return std::make_shared<const Manifest>(std::move(manifest));
}

Status TorchSaveSource::VerifyRest() const {
  const Storages listed = ListedStorages();
  for (const auto& [key, storage] : container_.storages) {
    if (!listed.contains(&storage) && !held_.contains(&storage))
      CKPT_RETURN_IF_ERROR(VerifyOnce(storage));
  }
  return OkStatus();
}

Result<std::uint64_t> TorchSaveSource::FileSize(FileId /*file*/) const {
  return container_.file->size_bytes();
}

Result<std::unique_ptr<CheckpointSource>> OpenTorchSave(Storage& storage, const Path& file) {
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<TorchSaveSource> source,
                        TorchSaveSource::Open(storage, file));
  return std::unique_ptr<CheckpointSource>(std::move(source));
}

}  // namespace ckpt::torch_save
