#include "formats/torch_dist/internal/local_parameter.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/tensor/shape.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/weight_key.h"

namespace ckpt::torch_dist {
namespace {

bool IsOfOptimizer(std::string_view key) {
  return key.starts_with(kOptimizer) || key.starts_with(kChained);
}

// Where a box stands among those of one layer and expert: in the dim in which they differ.
struct Slice {
  std::int64_t number = 0;
  std::int64_t count = 1;
  std::size_t dim = 0;
};
std::optional<Slice> SliceOf(const Box& box, DimsView shape, std::size_t leading) {
  Slice slice = {.dim = leading};
  for (std::size_t d = leading; d < shape.size(); ++d) {
    if (box.sizes[d] == shape[d]) continue;
    const bool is_grid = box.sizes[d] > 0 && shape[d] % box.sizes[d] == 0 &&
                         box.offsets[d] % box.sizes[d] == 0 && slice.count == 1;
    if (!is_grid) return std::nullopt;
    slice = {.number = box.offsets[d] / box.sizes[d], .count = shape[d] / box.sizes[d], .dim = d};
  }
  return slice;
}

void AddParameters(const CheckpointIndex& index, const GlobalTensor& weight,
                   std::vector<LocalParameter>& parameters) {
  const KeyForm form = FormOfKey(weight.key);
  if (weight.shape.size() < form.leading_dims()) return;
  std::set<std::pair<Dims, Dims>> known;  // replicas are one parameter
  for (const Chunk& chunk : index.chunks(weight)) {
    const Box box = index.box(chunk);
    if (!known.emplace(box.offsets, box.sizes).second) continue;
    bool is_one = true;
    for (std::size_t d = 0; d < form.leading_dims(); ++d) is_one = is_one && box.sizes[d] == 1;
    const std::optional<Slice> slice = SliceOf(box, weight.shape, form.leading_dims());
    if (!is_one || !slice) continue;
    LocalParameter parameter = {
        .weight = &weight,
        .name = form.name,
        .layer = form.stacks_layers ? box.offsets[0] : form.layer.value_or(0),
        .expert = form.stacks_experts ? box.offsets[form.leading_dims() - 1] : 0,
        .boxes = {box},
        .elems = NumElements(box.sizes),
        .slice = slice->number,
        .num_slices = slice->count,
        .may_be_gated = MayBeGated(form.name)};
    const std::int64_t half = slice->count / 2;
    const bool is_gate = parameter.may_be_gated && slice->dim == form.leading_dims() &&
                         slice->count % 2 == 0 && slice->number < half;
    if (is_gate) {
      LocalParameter gated = parameter;
      Box up = box;
      up.offsets[slice->dim] += half * box.sizes[slice->dim];
      gated.boxes.push_back(std::move(up));
      gated.elems *= 2;
      gated.num_slices = half;
      gated.is_gated = true;
      parameters.push_back(std::move(gated));
    }
    parameters.push_back(std::move(parameter));
  }
}

}  // namespace

std::vector<LocalParameter> LocalParameters(const CheckpointIndex& index) {
  std::vector<LocalParameter> parameters;
  for (const GlobalTensor& tensor : index.tensors()) {
    if (!IsOfOptimizer(tensor.key)) AddParameters(index, tensor, parameters);
  }
  if (index.FindTensor(kHeadKey) != nullptr) return parameters;
  const std::size_t count = parameters.size();
  for (std::size_t p = 0; p < count; ++p) {
    if (parameters[p].name != kEmbeddingKey) continue;
    LocalParameter head = parameters[p];
    head.is_head = true;
    parameters.push_back(std::move(head));
  }
  return parameters;
}

}  // namespace ckpt::torch_dist
