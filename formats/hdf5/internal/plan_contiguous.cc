#include "formats/hdf5/internal/plan_contiguous.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/checked_math.h"
#include "formats/hdf5/internal/file_structure.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/new_data_sets.h"
#include "formats/hdf5/internal/structure_writer.h"

namespace ckpt::hdf5 {

WritePlan PlanContiguous(const WeightsRequest& request) {
  WritePlan plan;
  plan.files.push_back({.name = request.file_name, .size_bytes = kSuperblockBytes});
  plan.tensors = request.tensors;
  FileStructure structure{.groups = {kTensorsGroup, kObjectsGroup}, .data_sets = {}};
  std::vector<NewDataSet>& sets = structure.data_sets;
  std::uint64_t& end = plan.files.front().size_bytes;
  for (std::uint32_t t = 0; t < plan.tensors.size(); ++t) {
    const TargetTensor& tensor = plan.tensors[t];
    const std::uint64_t bytes = NumBytes(tensor.shape, tensor.dtype);
    const std::uint64_t at = AlignUp(end, kAlignment);
    plan.items.push_back({.tensor = t,
                          .file = 0,
                          .box = WholeBox(tensor.shape),
                          .offset_bytes = at,
                          .payload_offset = at,
                          .payload_bytes = bytes,
                          .size_bytes = bytes});
    end = at + bytes;
    sets.push_back(DataSetOf(tensor, request.paths));
    sets.back().at = at;
    if (bytes != 0 && !request.is_shared) structure.set_of_item[t] = t;
  }
  AddKnown(request.known_tensors, request.paths, 0, end, sets, plan.literals);
  for (NewDataSet& text : TextsOf(request)) sets.push_back(std::move(text));
  AddStructures({std::move(structure)}, plan);
  return plan;
}

}  // namespace ckpt::hdf5
