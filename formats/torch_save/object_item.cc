#include "formats/torch_save/object_item.h"

#include <optional>
#include <utility>

#include "formats/torch_save/array_digest.h"
#include "formats/torch_save/object_json.h"
#include "formats/torch_save/tensor_rebuild.h"

namespace ckpt::torch_save {
namespace {

// Digests the tensors of one object.
class TensorDigester {
 public:
  TensorDigester(const TorchContainer& container, const VerifyFunction& verify)
      : container_(container),
        verify_(verify),
        digested_(*container.file, "the file is far too small for the object's tensors") {}

  // What a damaged tensor inside an object costs is the object, not a wrong number.
  Result<std::optional<pickle::TensorDigest>> Digest(pickle::NodeId node);

 private:
  const TorchContainer& container_;
  const VerifyFunction& verify_;
  TensorSum digested_;
};

Result<std::optional<pickle::TensorDigest>> TensorDigester::Digest(pickle::NodeId node) {
  if (TensorFormOf(container_.pickle.graph, node) != TensorForm::kDense) {
    return std::optional<pickle::TensorDigest>();
  }
  CKPT_ASSIGN_OR_RETURN(RebuiltTensor tensor, RebuildTensor(container_, node));
  CKPT_RETURN_IF_ERROR(digested_.Add(tensor));
  CKPT_RETURN_IF_ERROR(verify_(*tensor.storage));
  CKPT_ASSIGN_OR_RETURN(std::string sha256,
                        DigestArray(tensor.array, tensor.shape, HashAlgorithm::kSha256));
  return std::optional(pickle::TensorDigest{
      .shape = std::move(tensor.shape), .dtype = tensor.array.dtype, .sha256 = std::move(sha256)});
}

}  // namespace

Result<RenderedObject> RenderObject(const TorchContainer& container, pickle::NodeId node,
                                    const std::string& key, const VerifyFunction& verify) {
  pickle::RenderOptions options;
  TensorDigester digester(container, verify);
  options.tensor = [&](pickle::NodeId tensor) { return digester.Digest(tensor); };
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
