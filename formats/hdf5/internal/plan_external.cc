#include "formats/hdf5/internal/plan_external.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "formats/hdf5/internal/data_files.h"
#include "formats/hdf5/internal/file_structure.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/new_data_sets.h"
#include "formats/hdf5/internal/structure_writer.h"

namespace ckpt::hdf5 {
namespace {

// Whether the boxes are rows of the tensor, one behind the other.
bool AreRows(const std::vector<LinkedBox>& links, DimsView shape) {
  std::int64_t row = 0;
  for (const LinkedBox& link : links) {
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const bool in_place = d == 0 ? link.box.offsets[0] == row
                                   : link.box.offsets[d] == 0 && link.box.sizes[d] == shape[d];
      if (!in_place) return false;
    }
    if (!shape.empty()) row += link.box.sizes[0];
  }
  return true;
}

Segment SegmentOf(const LinkedBox& link) {
  return {.file = link.file, .offset_bytes = link.offset_bytes, .size_bytes = link.size_bytes};
}

// Adds the data set of a tensor, behind those of its boxes if it shows them.
void AddLinked(const TargetTensor& tensor, std::vector<LinkedBox> links, const EntryPaths& paths,
               std::size_t& num_boxes, std::vector<NewDataSet>& sets) {
  // A list of external files is one message of at most 64 KiB.
  constexpr std::size_t kMaxSegments = 2000;
  std::ranges::sort(links, {}, [](const LinkedBox& link) { return link.box.offsets; });
  NewDataSet set = DataSetOf(tensor, paths);
  if (links.size() <= kMaxSegments && AreRows(links, tensor.shape)) {
    for (const LinkedBox& link : links) set.segments.push_back(SegmentOf(link));
    sets.push_back(std::move(set));
    return;
  }
  for (const LinkedBox& link : links) {
    const std::string name = std::to_string(num_boxes++);
    sets.push_back({.group = kChunksGroup,
                    .name = name,
                    .dtype = tensor.dtype,
                    .shape = link.box.sizes,
                    .segments = {SegmentOf(link)}});
    set.parts.push_back({.file = ".",
                         .data_set = fmt::format("/{}/{}", kChunksGroup, name),
                         .from = std::nullopt,
                         .to = link.box});
  }
  sets.push_back(std::move(set));
}

}  // namespace

Status CheckLinks(const WeightsRequest& request) {
  Status status;
  for (std::size_t t = 0; t < request.tensors.size(); ++t) {
    for (const LinkedBox& link : (*request.links)[t]) {
      if (IsNamedAsWeights(link.file)) continue;
      status.Add(Error(ErrorKind::kUnsupported,
                       "the tensor cannot be linked: its file is not named as weights are, and no "
                       "reader follows a link to it")
                     .File(link.file)
                     .Tensor(request.tensors[t].key)
                     .Expected("one of " + NamesOfWeights())
                     .Hint("ckpt-convert to-hdf5 without --link copies it"));
      break;
    }
  }
  return status;
}

WritePlan PlanExternal(const WeightsRequest& request) {
  std::vector<NewDataSet> sets;
  std::size_t num_boxes = 0;
  for (std::size_t t = 0; t < request.tensors.size(); ++t) {
    AddLinked(request.tensors[t], (*request.links)[t], request.paths, num_boxes, sets);
  }
  WritePlan plan;
  plan.files.push_back({.name = request.file_name, .size_bytes = kSuperblockBytes});
  AddKnown(request.known_tensors, request.paths, 0, plan.files[0].size_bytes, sets, plan.literals);
  for (NewDataSet& text : TextsOf(request)) sets.push_back(std::move(text));
  AddStructures(
      {{.file = 0, .groups = {kTensorsGroup, kObjectsGroup}, .data_sets = std::move(sets)}}, plan);
  return plan;
}

}  // namespace ckpt::hdf5
