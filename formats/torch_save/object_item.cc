#include "formats/torch_save/object_item.h"

#include <optional>
#include <utility>

#include "formats/torch_save/array_digest.h"
#include "formats/torch_save/object_json.h"
#include "formats/torch_save/tensor_rebuild.h"

namespace ckpt::torch_save {
namespace {

// What a damaged tensor inside an object costs is the object, not a wrong number.
Result<std::optional<pickle::TensorDigest>> DigestNode(const TorchContainer& container,
                                                       pickle::NodeId node,
                                                       const VerifyFunction& verify) {
  if (TensorFormOf(container.pickle.graph, node) != TensorForm::kDense) {
    return std::optional<pickle::TensorDigest>();
  }
  CKPT_ASSIGN_OR_RETURN(RebuiltTensor tensor, RebuildTensor(container, node));
  CKPT_RETURN_IF_ERROR(verify(*tensor.storage));
  CKPT_ASSIGN_OR_RETURN(std::string sha256,
                        DigestArray(tensor.array, tensor.shape, HashAlgorithm::kSha256));
  return std::optional(pickle::TensorDigest{
      .shape = std::move(tensor.shape), .dtype = tensor.array.dtype, .sha256 = std::move(sha256)});
}

}  // namespace

Result<RenderedObject> RenderObject(const TorchContainer& container, pickle::NodeId node,
                                    const std::string& key, const VerifyFunction& verify) {
  pickle::RenderOptions options;
  options.tensor = [&](pickle::NodeId tensor) { return DigestNode(container, tensor, verify); };
  Result<RenderedObject> rendered =
      pickle::RenderObject(container.pickle.graph, node, container.file->name(), key, options);
  if (!rendered.ok()) return std::move(rendered).status().File(container.file->name());
  for (const Problem& warning : container.warnings) rendered->warnings.push_back(warning);
  return rendered;
}

Result<RenderedObject> RenderItem(const TorchContainer& container, pickle::NodeId node,
                                  const std::string& key) {
  for (const auto& [name, storage] : container.storages) {
    CKPT_RETURN_IF_ERROR(VerifyStorage(container, storage));
  }
  const auto is_verified = [](const StorageExtent& /*storage*/) { return OkStatus(); };
  return RenderObject(container, node, key, is_verified);
}

}  // namespace ckpt::torch_save
