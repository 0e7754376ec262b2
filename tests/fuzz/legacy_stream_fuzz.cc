// Any bytes as the stream of old versions of torch.save, with or without the magic number in front.

#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"
#include "core/base/check.h"
#include "core/base/checked_math.h"
#include "core/io/storage.h"
#include "formats/torch_save/internal/legacy_stream.h"
#include "formats/torch_save/tensor_rebuild.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace torch_save = ckpt::torch_save;
  const std::string_view text = ckpt::AsText(std::as_bytes(std::span(data, size)));
  ckpt::Bytes bytes;
  if (torch_save::LegacyMagicBytes(text) == 0) ckpt::Append(torch_save::kLegacyMagic, bytes);
  ckpt::Append(text, bytes);
  const std::uint64_t file_bytes = bytes.size();
  const auto container =
      torch_save::OpenLegacyStream(ckpt::MakeMemoryFile("fuzz", std::move(bytes)));
  if (!container.ok()) return 0;
  for (const auto& [key, storage] : container->storages) {
    CKPT_CHECK(ckpt::RangeFits(storage.offset_bytes, storage.size_bytes, file_bytes));
  }
  const auto& graph = container->pickle.graph;
  for (ckpt::pickle::NodeId node = 0; node < graph.size(); ++node) {
    if (torch_save::TensorFormOf(graph, node) != torch_save::TensorForm::kDense) continue;
    const auto tensor = torch_save::RebuildTensor(*container, node);
    if (tensor.ok()) (void)torch_save::VerifyStorage(*container, *tensor->storage).ok();
  }
  return 0;
}
