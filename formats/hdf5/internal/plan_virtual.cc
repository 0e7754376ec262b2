#include "formats/hdf5/internal/plan_virtual.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "formats/hdf5/internal/file_structure.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/new_data_sets.h"
#include "formats/hdf5/internal/parts.h"
#include "formats/hdf5/internal/structure_writer.h"

namespace ckpt::hdf5 {
namespace {

// Rows of a tensor in a part.
struct PlacedRows {
  std::uint32_t tensor = 0;
  std::uint64_t part = 0;
  Box box;
};

// How many bytes a part shall hold; one at least.
std::uint64_t BytesOfPart(const WeightsRequest& request) {
  std::uint64_t total = 0;
  for (const TargetTensor& tensor : request.tensors) total += NumBytes(tensor.shape, tensor.dtype);
  std::uint64_t part_bytes = request.max_file_bytes;
  if (request.files > 0) part_bytes = CeilDiv(total, static_cast<std::uint64_t>(request.files));
  return std::max<std::uint64_t>(part_bytes, 1);
}

// Cuts tensors where a part is full; what is small against a part stays whole.
std::vector<PlacedRows> Distribute(const std::vector<TargetTensor>& tensors,
                                   std::uint64_t part_bytes) {
  constexpr std::uint64_t kSmallShare = 8;
  std::vector<PlacedRows> placed;
  std::uint64_t part = 0;
  std::uint64_t used = 0;
  for (std::uint32_t t = 0; t < tensors.size(); ++t) {
    const Box whole = WholeBox(tensors[t].shape);
    const std::uint64_t bytes = NumBytes(tensors[t].shape, tensors[t].dtype);
    if (used >= part_bytes) ++part, used = 0;
    if (tensors[t].shape.empty() || bytes <= part_bytes / kSmallShare) {
      placed.push_back({.tensor = t, .part = part, .box = whole});
      used += bytes;
      continue;
    }
    const auto rows = static_cast<std::uint64_t>(tensors[t].shape[0]);
    const std::uint64_t row_bytes = bytes / rows;
    for (std::uint64_t row = 0; row < rows;) {
      if (used >= part_bytes) ++part, used = 0;
      const std::uint64_t fits = CeilDiv(part_bytes - used, row_bytes);
      const std::uint64_t count = std::min(fits, rows - row);
      Box box = whole;
      box.offsets[0] = static_cast<std::int64_t>(row);
      box.sizes[0] = static_cast<std::int64_t>(count);
      placed.push_back({.tensor = t, .part = part, .box = std::move(box)});
      used += count * row_bytes;
      row += count;
    }
  }
  return placed;
}

// Lays rows behind the end of file `f`. Returns where they lie, and how many bytes they have.
ItemExtent AddItem(const PlacedRows& rows, std::uint32_t f, WritePlan& plan) {
  const std::uint64_t bytes = NumBytes(rows.box.sizes, plan.tensors[rows.tensor].dtype);
  const std::uint64_t at = AlignUp(plan.files[f].size_bytes, kAlignment);
  plan.files[f].size_bytes = at + bytes;
  plan.items.push_back({.tensor = rows.tensor,
                        .file = f,
                        .box = rows.box,
                        .offset_bytes = at,
                        .payload_offset = at,
                        .payload_bytes = bytes,
                        .size_bytes = bytes});
  return {.offset_bytes = at, .size_bytes = bytes};
}

}  // namespace

WritePlan PlanVirtual(const WeightsRequest& request) {
  const std::vector<PlacedRows> placed = Distribute(request.tensors, BytesOfPart(request));
  const std::uint64_t num_parts = placed.empty() ? 1 : placed.back().part + 1;
  WritePlan plan;
  plan.tensors = request.tensors;
  plan.files.push_back({.name = request.file_name, .size_bytes = kSuperblockBytes});
  for (std::string& name : PartNames(request.file_name, num_parts, request.names_in_use)) {
    plan.files.push_back({.name = std::move(name), .size_bytes = kSuperblockBytes});
  }
  std::vector<NewDataSet> shown;
  for (const TargetTensor& tensor : plan.tensors) shown.push_back(DataSetOf(tensor, request.paths));
  std::vector<FileStructure> stored(plan.files.size());
  for (const PlacedRows& rows : placed) {
    const TargetTensor& tensor = plan.tensors[rows.tensor];
    const auto f = static_cast<std::uint32_t>(rows.part + 1);
    const ItemExtent extent = AddItem(rows, f, plan);
    if (extent.size_bytes == 0) continue;
    std::vector<NewDataSet>& sets = stored[f].data_sets;
    const std::string name = std::to_string(sets.size());
    if (!request.is_shared) stored[f].set_of_item[plan.items.size() - 1] = sets.size();
    sets.push_back({.group = kChunksGroup,
                    .name = name,
                    .dtype = tensor.dtype,
                    .shape = rows.box.sizes,
                    .at = extent.offset_bytes});
    const bool is_whole = rows.box.sizes == tensor.shape;
    shown[rows.tensor].parts.push_back({.file = plan.files[f].name,
                                        .data_set = fmt::format("/{}/{}", kChunksGroup, name),
                                        .from = std::nullopt,
                                        .to = is_whole ? std::nullopt : std::optional(rows.box)});
  }
  AddKnown(request.known_tensors, request.paths, 0, plan.files[0].size_bytes, shown, plan.literals);
  for (NewDataSet& text : TextsOf(request)) shown.push_back(std::move(text));
  stored[0] = {.groups = {kTensorsGroup, kObjectsGroup}, .data_sets = std::move(shown)};
  for (std::uint32_t f = 1; f < plan.files.size(); ++f) {
    stored[f].file = f;
    stored[f].groups = {kChunksGroup};
  }
  AddStructures(std::move(stored), plan);
  return plan;
}

}  // namespace ckpt::hdf5
