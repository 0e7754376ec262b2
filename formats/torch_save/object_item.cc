#include "formats/torch_save/object_item.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/checked_math.h"
#include "core/base/quote.h"
#include "core/base/units.h"
#include "core/io/storage.h"
#include "formats/pickle/copy_value.h"
#include "formats/pickle/object_json.h"
#include "formats/pickle/writer.h"
#include "formats/torch_save/internal/array_digest.h"
#include "formats/torch_save/internal/inner_tensors.h"
#include "formats/torch_save/internal/persistent_storage.h"
#include "formats/torch_save/tensor_rebuild.h"
#include "formats/torch_save/torch_item.h"

namespace ckpt::torch_save {
namespace {

// The bytes of a storage that is referred to without a tensor around it. Null if it is not there.
std::optional<RebuiltTensor> BytesOfStorage(const TorchContainer& container, pickle::NodeId node) {
  const auto reference = ParsePersistentStorage(container.pickle.graph, node);
  if (!reference) return std::nullopt;
  const auto found = container.storages.find(reference->key);
  if (found == container.storages.end()) return std::nullopt;
  RebuiltTensor bytes{.shape = {static_cast<std::int64_t>(found->second.size_bytes)},
                      .array = {},
                      .storage = &found->second};
  bytes.array.file = container.file;
  bytes.array.offset_bytes = found->second.offset_bytes;
  bytes.array.dtype = DType::kUint8;
  bytes.array.strides = {1};
  return bytes;
}

// Digests the tensors of one object.
class TensorDigester {
 public:
  TensorDigester(const TorchContainer& container, const VerifyFunction& verify)
      : container_(container),
        verify_(verify),
        digested_(*container.file, "the file is far too small for the object's tensors") {}

  // If a tensor inside an object is damaged, the object has no digest, instead of a wrong one.
  Result<std::optional<pickle::TensorDigest>> Digest(pickle::NodeId node);
  // Of the tensors that were digested and are one number, by dtype and digest.
  [[nodiscard]] const HeldNumbers& numbers() const { return numbers_; }
  // Digests the tensors below `node` that have no digest yet.
  Result<std::vector<HeldTensor>> DigestRest(pickle::NodeId node);

 private:
  Result<std::string> Sha256Of(const RebuiltTensor& tensor);

  const TorchContainer& container_;
  const VerifyFunction& verify_;
  TensorSum digested_;
  std::set<pickle::NodeId> shown_;
  HeldNumbers numbers_;
};

Result<std::string> TensorDigester::Sha256Of(const RebuiltTensor& tensor) {
  CKPT_RETURN_IF_ERROR(digested_.Add(tensor));
  CKPT_RETURN_IF_ERROR(verify_(*tensor.storage));
  return DigestArray(tensor.array, tensor.shape, HashAlgorithm::kSha256);
}

Result<std::optional<pickle::TensorDigest>> TensorDigester::Digest(pickle::NodeId node) {
  if (TensorFormOf(container_.pickle.graph, node) != TensorForm::kDense) {
    return std::optional<pickle::TensorDigest>();
  }
  CKPT_ASSIGN_OR_RETURN(RebuiltTensor tensor, RebuildTensor(container_, node));
  CKPT_ASSIGN_OR_RETURN(std::string sha256, Sha256Of(tensor));
  CKPT_ASSIGN_OR_RETURN(const std::optional<double> number, NumberIn(tensor.array, tensor.shape));
  if (number) numbers_[{tensor.array.dtype, sha256}] = *number;
  shown_.insert(node);
  return std::optional(pickle::TensorDigest{
      .shape = std::move(tensor.shape), .dtype = tensor.array.dtype, .sha256 = std::move(sha256)});
}

Result<std::vector<HeldTensor>> TensorDigester::DigestRest(pickle::NodeId node) {
  const pickle::Graph& graph = container_.pickle.graph;
  CKPT_ASSIGN_OR_RETURN(std::vector<InnerTensor> inner, FindInnerTensors(graph, node));
  std::vector<HeldTensor> held;
  for (InnerTensor& found : inner) {
    if (found.of_mesh || shown_.contains(found.node)) continue;
    std::optional<RebuiltTensor> tensor;
    if (graph.kind(found.node) == pickle::NodeKind::kPersistent) {
      tensor = BytesOfStorage(container_, found.node);
      if (!tensor) continue;
    } else {
      CKPT_ASSIGN_OR_RETURN(tensor, RebuildTensor(container_, found.node));
    }
    CKPT_ASSIGN_OR_RETURN(std::string sha256, Sha256Of(*tensor));
    std::string path = std::move(found.holder_key);
    if (!path.empty() && !found.path.empty()) path += '.';
    held.push_back({.path = path + found.path,
                    .shape = std::move(tensor->shape),
                    .dtype = tensor->array.dtype,
                    .sha256 = std::move(sha256)});
  }
  return held;
}

// Copies the storages to which a value refers, and numbers them in the order of its references.
class StorageCopies {
 public:
  StorageCopies(const TorchContainer& container, const VerifyFunction& verify)
      : container_(container), verify_(verify) {}

  Status Write(pickle::NodeId persistent, pickle::PickleWriter& pickle);
  [[nodiscard]] std::vector<Bytes> Take() { return std::move(copies_); }

 private:
  // All of a storage, or the part of it that the reference means.
  Result<Bytes> Read(const PersistentStorage& reference);

  const TorchContainer& container_;
  const VerifyFunction& verify_;
  std::map<std::tuple<std::string_view, std::uint64_t, std::uint64_t>, std::int64_t> numbers_;
  std::vector<Bytes> copies_;
  std::uint64_t sum_bytes_ = 0;
};

Result<Bytes> StorageCopies::Read(const PersistentStorage& reference) {
  // A conversion holds all objects in memory.
  constexpr std::uint64_t kMaxBytes = 64 * kMiB;
  const auto found = container_.storages.find(reference.key);
  if (found == container_.storages.end()) {
    return Error(ErrorKind::kBadItem, "a storage is not there").Actual(Quote(reference.key));
  }
  const StorageExtent& storage = found->second;
  std::uint64_t offset = 0;
  std::uint64_t size = storage.size_bytes;
  if (reference.view) {
    const bool is_inside = CheckedMul(reference.view->offset, reference.element_bytes, &offset) &&
                           CheckedMul(reference.view->size, reference.element_bytes, &size) &&
                           RangeFits(offset, size, storage.size_bytes);
    if (!is_inside) return Error(ErrorKind::kBadItem, "a view reaches outside its storage");
  }
  if (size > kMaxBytes - sum_bytes_) {
    return Error(ErrorKind::kResource, "the object holds more numbers than can be copied with it")
        .Expected(FormatByteSize(kMaxBytes));
  }
  sum_bytes_ += size;
  CKPT_RETURN_IF_ERROR(verify_(storage));
  Bytes bytes(size);
  CKPT_RETURN_IF_ERROR(container_.file->ReadAt(storage.offset_bytes + offset, bytes));
  return bytes;
}

Status StorageCopies::Write(pickle::NodeId persistent, pickle::PickleWriter& pickle) {
  const pickle::Graph& graph = container_.pickle.graph;
  const auto reference = ParsePersistentStorage(graph, persistent);
  if (!reference) return Error(ErrorKind::kBadItem, "a reference that is not to a storage");
  if (container_.is_big_endian) {
    return Error(ErrorKind::kUnsupported, "an object with numbers that are stored big-endian");
  }
  const std::tuple place = {reference->key, reference->view ? reference->view->offset : 0,
                            reference->view ? reference->view->size : reference->num_elems};
  const auto [known, is_new] = numbers_.emplace(place, static_cast<std::int64_t>(copies_.size()));
  if (is_new) {
    CKPT_ASSIGN_OR_RETURN(Bytes copy, Read(*reference));
    copies_.push_back(std::move(copy));
  }
  pickle.BeginTuple().SharedText("storage");
  const pickle::NodeId type = graph.items(graph.persistent_id(persistent))[1];
  CKPT_RETURN_IF_ERROR(pickle::CopyGlobal(graph, type, pickle));
  pickle.Text(std::to_string(known->second)).SharedText("cpu");
  pickle.Int(static_cast<std::int64_t>(std::get<2>(place))).EndTuple().PersistentId();
  return OkStatus();
}

}  // namespace

Result<std::optional<PickledObject>> CopyObject(const TorchContainer& container,
                                                pickle::NodeId node, const VerifyFunction& verify) {
  StorageCopies storages(container, verify);
  pickle::PickleWriter pickle(pickle::Dialect::kWeightsOnly);
  const auto refer = [&](pickle::NodeId persistent, pickle::PickleWriter& out) {
    return storages.Write(persistent, out);
  };
  Status status = pickle::CopyValue(container.pickle.graph, node, refer, pickle);
  if (!status.ok()) return std::move(status).File(container.file->name());
  return std::optional(PickledObject{.pickle = pickle.Take(), .storages = storages.Take()});
}

Result<std::optional<PickledObject>> CopyItem(const TorchContainer& container,
                                              pickle::NodeId node) {
  return CopyObject(container, node, [&](const StorageExtent& storage) {
    return VerifyStorage(container, storage);
  });
}

Result<RenderedObject> RenderObject(const TorchContainer& container, pickle::NodeId node,
                                    const std::string& key, Held held,
                                    const VerifyFunction& verify) {
  pickle::RenderOptions options;
  TensorDigester digester(container, verify);
  options.tensor = [&](pickle::NodeId tensor) { return digester.Digest(tensor); };
  Result<RenderedObject> rendered =
      pickle::RenderObject(container.pickle.graph, node, container.file->name(), key, options);
  if (!rendered.ok()) return std::move(rendered).status().File(container.file->name());
  for (const Problem& warning : container.warnings) rendered->warnings.push_back(warning);
  rendered->numbers = digester.numbers();
  if (held == Held::kDigest) {
    Result<std::vector<HeldTensor>> rest = digester.DigestRest(node);
    if (!rest.ok()) return std::move(rest).status().File(container.file->name());
    rendered->held = *std::move(rest);
  }
  return rendered;
}

Result<RenderedObject> RenderItem(const TorchContainer& container, pickle::NodeId node,
                                  const std::string& key) {
  for (const auto& [name, storage] : container.storages) {
    CKPT_RETURN_IF_ERROR(VerifyStorage(container, storage));
  }
  const auto is_verified = [](const StorageExtent& /*storage*/) { return OkStatus(); };
  return RenderObject(container, node, key, Held::kDigest, is_verified);
}

Result<RenderedObject> RenderPickled(const PickledEntry& entry) {
  Bytes item = ObjectItem(entry.value.pickle, entry.value.storages);
  const std::uint64_t size = item.size();
  CKPT_ASSIGN_OR_RETURN(const TorchContainer container,
                        OpenZipContainer(MakeMemoryFile(entry.key, std::move(item)), 0, size));
  return RenderItem(container, container.pickle.root, entry.key);
}

}  // namespace ckpt::torch_save
