#include "core/plan/plan_recipes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "core/layout/affine.h"

namespace ckpt {
namespace {

// The nest of a part of a box whose elements lie in a row, in C order, from `first_elem` on.
layout::Nest InRow(layout::Nest nest, const Box& box, std::int64_t first_elem) {
  const Dims strides = ContiguousStrides(box.sizes);
  std::int64_t origin = first_elem;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    origin += (nest.target_origin[d] - box.offsets[d]) * strides[d];
  }
  nest.target_origin = {origin};
  for (layout::Loop& loop : nest.loops) {
    loop.target_step *= strides[static_cast<std::size_t>(loop.target_dim)];
    loop.target_dim = 0;
  }
  layout::Normalize(nest);
  return nest;
}

void AddZeros(std::int64_t begin, std::int64_t end, std::vector<layout::Nest>& nests) {
  if (begin >= end) return;
  layout::Nest zeros;
  zeros.source = layout::Nest::kZeroFill;
  zeros.target_origin = {begin};
  if (end - begin > 1) zeros.loops = {{.extent = end - begin, .source_step = 0}};
  nests.push_back(std::move(zeros));
}

// Tensors and their recipes by key.
class Known {
 public:
  Known(std::span<const TargetTensor> tensors, std::span<TensorRecipe> recipes)
      : recipes_(recipes) {
    for (std::size_t t = 0; t < tensors.size(); ++t) position_[tensors[t].key] = t;
  }

  [[nodiscard]] TensorRecipe& Recipe(std::string_view key) const {
    return recipes_[position_.at(key)];
  }

 private:
  std::span<TensorRecipe> recipes_;
  std::map<std::string_view, std::size_t> position_;
};

Result<TensorRecipe> Pack(const TargetTensor& tensor, std::vector<PackedPart> parts,
                          const Known& known) {
  std::ranges::sort(parts, {}, &PackedPart::first_elem);
  TensorRecipe packed;
  std::int64_t behind = 0;
  for (const PackedPart& part : parts) {
    const TensorRecipe& recipe = known.Recipe(part.tensor);
    if (&part == &parts.front()) packed.source_dtype = recipe.source_dtype;
    if (recipe.source_dtype != packed.source_dtype) {
      return Error(ErrorKind::kDtypeMismatch, "tensors that become one have different dtypes")
          .Tensor(part.tensor)
          .Expected(DTypeName(packed.source_dtype))
          .Actual(DTypeName(recipe.source_dtype));
    }
    AddZeros(behind, part.first_elem, packed.nests);
    for (const layout::Nest& nest : recipe.nests) {
      for (layout::Nest& cut : layout::ClipToTarget(nest, part.box)) {
        packed.nests.push_back(InRow(std::move(cut), part.box, part.first_elem));
      }
    }
    behind = part.first_elem + NumElements(part.box.sizes);
  }
  AddZeros(behind, tensor.shape.at(0), packed.nests);
  return packed;
}

}  // namespace

Result<std::vector<TensorRecipe>> RecipesOfPlan(const WritePlan& plan,
                                                std::span<const TargetTensor> tensors,
                                                std::vector<TensorRecipe> recipes) {
  const Known known(tensors, recipes);
  std::vector<TensorRecipe> of_plan(plan.tensors.size());
  // Several tensors may be made of parts of one, so recipes are taken away last.
  for (std::size_t t = 0; t < of_plan.size(); ++t) {
    const auto parts = plan.packed.find(plan.tensors[t].key);
    if (parts == plan.packed.end()) continue;
    CKPT_ASSIGN_OR_RETURN(of_plan[t], Pack(plan.tensors[t], parts->second, known));
  }
  for (std::size_t t = 0; t < of_plan.size(); ++t) {
    const std::string& key = plan.tensors[t].key;
    if (!plan.packed.contains(key)) of_plan[t] = std::move(known.Recipe(key));
  }
  return of_plan;
}

}  // namespace ckpt
