#include "formats/torch_save/object_item.h"

#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "formats/pickle/object_json.h"
#include "formats/torch_save/internal/array_digest.h"
#include "formats/torch_save/internal/inner_tensors.h"
#include "formats/torch_save/internal/persistent_storage.h"
#include "formats/torch_save/tensor_rebuild.h"

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

}  // namespace

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

}  // namespace ckpt::torch_save
