#include "tools/ckpt-inspect/topology.h"

#include <algorithm>
#include <set>
#include <string_view>

#include "core/base/text_number.h"

namespace ckpt::inspect {
namespace {

std::optional<std::int64_t> TakeWholeNumber(std::string_view& text) {
  const std::optional<std::int64_t> number = TakeNumber<std::int64_t>(text);
  return number && *number >= 0 ? number : std::nullopt;
}

struct Grid {
  std::int64_t pipeline = 0;
  std::int64_t tensor = 0;
};

// What one key says about the grid: "rng_state/shard_1.0_2.4" is cell (1, 0) of a grid of 2 x 4;
// "rng_state.(1, 0).…" shows that the grid has that cell.
std::optional<Grid> GridOf(std::string_view key) {
  if (TakePrefix("rng_state/shard_", key)) {
    if (!TakeWholeNumber(key) || !TakePrefix(".", key) || !TakeWholeNumber(key) ||
        !TakePrefix("_", key)) {
      return {};
    }
    const std::optional<std::int64_t> pipeline = TakeWholeNumber(key);
    if (!pipeline || !TakePrefix(".", key)) return {};
    const std::optional<std::int64_t> tensor = TakeWholeNumber(key);
    return tensor ? std::optional(Grid{*pipeline, *tensor}) : std::nullopt;
  }
  if (!TakePrefix("rng_state.(", key)) return {};
  const std::optional<std::int64_t> pipeline = TakeWholeNumber(key);
  if (!pipeline || !TakePrefix(", ", key)) return {};
  const std::optional<std::int64_t> tensor = TakeWholeNumber(key);
  if (!tensor || !key.starts_with(')')) return {};
  return Grid{*pipeline + 1, *tensor + 1};
}

}  // namespace

std::optional<std::int64_t> WriterOf(std::string_view file) {
  if (file.ends_with(".distcp")) {
    const std::size_t at = file.rfind("__");
    if (at == std::string_view::npos) return std::nullopt;
    file.remove_prefix(at + 2);
    return TakeWholeNumber(file);
  }
  if (!TakePrefix("shard-", file)) return std::nullopt;
  const std::optional<std::int64_t> number = TakeWholeNumber(file);
  return number && *number > 0 ? std::optional(*number - 1) : std::nullopt;
}

Topology FindTopology(const CheckpointIndex& index) {
  Topology topology;
  std::set<std::int64_t> writers;
  for (const std::string& file : index.files()) {
    if (const auto writer = WriterOf(file)) writers.insert(*writer);
  }
  if (!writers.empty()) topology.writers = static_cast<std::int64_t>(writers.size());
  Grid grid;
  const auto widen = [&](std::string_view key) {
    const std::optional<Grid> seen = GridOf(key);
    if (!seen) return;
    grid.pipeline = std::max(grid.pipeline, seen->pipeline);
    grid.tensor = std::max(grid.tensor, seen->tensor);
  };
  for (const ObjectEntry& object : index.objects()) widen(object.key);
  for (const GlobalTensor& tensor : index.tensors()) {
    widen(tensor.key);
    topology.max_chunks = std::max(topology.max_chunks, tensor.num_chunks);
  }
  if (grid.pipeline > 0) topology.pipeline_parallel = grid.pipeline;
  if (grid.tensor > 0) topology.tensor_parallel = grid.tensor;
  return topology;
}

}  // namespace ckpt::inspect
