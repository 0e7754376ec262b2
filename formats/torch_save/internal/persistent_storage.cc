#include "formats/torch_save/internal/persistent_storage.h"

#include <span>

#include "formats/torch_save/internal/torch_dtype.h"

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::NodeId;
using pickle::NodeKind;

// Quantised storages are not read as tensors. Their size is needed to find what comes after them.
std::uint64_t QuantizedElementBytes(std::string_view class_name) {
  if (class_name == "QInt32Storage") return 4;
  if (class_name == "QInt8Storage" || class_name == "QUInt8Storage" ||
      class_name == "QUInt4x2Storage" || class_name == "QUInt2x4Storage") {
    return 1;
  }
  return 0;
}

std::optional<PersistentStorage::View> ParseView(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kTuple) return std::nullopt;
  const std::span<const NodeId> parts = graph.items(node);
  if (parts.size() != 3) return std::nullopt;
  for (const NodeId number : parts.subspan(1)) {
    if (graph.kind(number) != NodeKind::kInt || graph.integer(number) < 0) return std::nullopt;
  }
  return PersistentStorage::View{static_cast<std::uint64_t>(graph.integer(parts[1])),
                                 static_cast<std::uint64_t>(graph.integer(parts[2]))};
}

}  // namespace

std::optional<PersistentStorage> ParsePersistentStorage(const Graph& graph, NodeId persistent) {
  const NodeId id = graph.persistent_id(persistent);
  if (graph.kind(id) != NodeKind::kTuple) return std::nullopt;
  const std::span<const NodeId> parts = graph.items(id);
  if (parts.size() < 5 || graph.kind(parts[0]) != NodeKind::kText ||
      graph.text(parts[0]) != "storage" || graph.kind(parts[1]) != NodeKind::kGlobal ||
      graph.kind(parts[2]) != NodeKind::kText || graph.kind(parts[4]) != NodeKind::kInt ||
      graph.integer(parts[4]) < 0) {
    return std::nullopt;
  }
  PersistentStorage storage;
  storage.key = graph.text(parts[2]);
  storage.num_elems = static_cast<std::uint64_t>(graph.integer(parts[4]));
  const std::string_view module = graph.module(parts[1]);
  const std::string_view name = graph.name(parts[1]);
  if (module == "torch.storage" && name == "UntypedStorage") {
    storage.is_untyped = true;
    storage.element_bytes = 1;
  } else if (module == "torch" || module == "torch.cuda") {
    storage.dtype = DTypeOfStorageClass(name);
    storage.element_bytes =
        storage.dtype ? ElementBytes(*storage.dtype) : QuantizedElementBytes(name);
  }
  if (parts.size() >= 6 && graph.kind(parts[5]) != NodeKind::kNone) {
    storage.view = ParseView(graph, parts[5]);
    if (!storage.view) return std::nullopt;
  }
  return storage;
}

}  // namespace ckpt::torch_save
