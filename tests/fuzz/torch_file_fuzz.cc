// Any bytes as a torch.save file: the zip container or the legacy stream, with the tensors that it
// refers to.

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/io/storage.h"
#include "formats/torch_save/tensor_rebuild.h"
#include "formats/torch_save/torch_container.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto file = ckpt::MakeMemoryFile("fuzz", ckpt::Bytes(bytes.begin(), bytes.end()));
  const auto container = ckpt::torch_save::OpenTorchFile(file);
  if (!container.ok()) return 0;
  const auto& graph = container->pickle.graph;
  for (ckpt::pickle::NodeId node = 0; node < graph.size(); ++node) {
    if (ckpt::torch_save::TensorFormOf(graph, node) != ckpt::torch_save::TensorForm::kDense)
      continue;
    const auto tensor = ckpt::torch_save::RebuildTensor(*container, node);
    if (tensor.ok()) (void)ckpt::torch_save::VerifyStorage(*container, *tensor->storage).ok();
  }
  return 0;
}
