#include "formats/mp_rank/internal/grouped_experts.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "core/tensor/shape.h"

namespace ckpt::mp_rank {
namespace {

using torch_save::RebuiltTensor;

struct GroupedName {
  std::string_view ending;
  std::string_view of_expert;  // takes its place, before the expert's number
  std::size_t divided_dim;     // of the array: by the experts
};
constexpr std::array kGroupedNames = {
    GroupedName{".mlp.experts.weight1", ".mlp.experts.linear_fc1.weight", 1},
    GroupedName{".mlp.experts.weight2", ".mlp.experts.linear_fc2.weight", 0},
};

const GroupedName* FindGroupedName(std::string_view name) {
  const auto* const found = std::ranges::find_if(
      kGroupedNames, [&](const GroupedName& grouped) { return name.ends_with(grouped.ending); });
  return found == kGroupedNames.end() ? nullptr : found;
}

}  // namespace

bool IsOfGroupedExperts(std::string_view name) { return FindGroupedName(name) != nullptr; }

Result<std::vector<ExpertTensor>> SplitExperts(const std::string& name, const RebuiltTensor& array,
                                               std::int64_t first_expert,
                                               std::int64_t num_experts) {
  const GroupedName& grouped = *FindGroupedName(name);
  const Dims& shape = array.shape;
  const std::size_t dim = grouped.divided_dim;
  const bool can_be = shape.size() == 2 && num_experts > 0 && NumElements(shape) >= num_experts &&
                      shape[dim] % num_experts == 0;
  if (!can_be) {
    return Error(ErrorKind::kShapeMismatch,
                 "an array of all experts' weights cannot be that of so many experts")
        .Expected(
            fmt::format("two dims, dim {} a multiple of the rank's {} experts", dim, num_experts))
        .Actual(FormatDims(shape));
  }
  if (array.array.strides != ContiguousStrides(shape)) {
    return Error(ErrorKind::kUnsupported,
                 "the elements of an array of all experts' weights do not follow each other")
        .Expected(fmt::format("strides {}", FormatDims(ContiguousStrides(shape))))
        .Actual(FormatDims(array.array.strides))
        .Hint("save the tensor's contiguous() in its place");
  }
  Dims of_expert = shape;
  of_expert[dim] /= num_experts;
  const std::int64_t rows = of_expert[0];
  const std::int64_t columns = of_expert[1];
  const std::uint64_t expert_bytes = NumBytes(of_expert, array.array.dtype);
  const std::string_view before =
      std::string_view(name).substr(0, name.size() - grouped.ending.size());
  std::vector<ExpertTensor> experts;
  for (std::int64_t e = 0; e < num_experts; ++e) {
    RebuiltTensor local = array;
    local.shape = {columns, rows};
    local.array.strides = {1, columns};
    local.array.offset_bytes += static_cast<std::uint64_t>(e) * expert_bytes;
    experts.push_back({.name = fmt::format("{}{}{}", before, grouped.of_expert, first_expert + e),
                       .local = std::move(local)});
  }
  return experts;
}

}  // namespace ckpt::mp_rank
