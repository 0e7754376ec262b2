#include "formats/mp_rank/internal/merged_tensors.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "formats/megatron/division.h"
#include "formats/mp_rank/internal/global_name.h"
#include "formats/mp_rank/internal/grouped_experts.h"

namespace ckpt::mp_rank {
namespace {

using torch_save::RankSet;
using torch_save::RankTensor;
using torch_save::RebuiltTensor;

// The rows of a part from `first` on, as many as `shape` has.
RebuiltTensor RowsOf(RebuiltTensor part, std::int64_t first, const Dims& shape) {
  if (!shape.empty()) {
    part.array.offset_bytes += static_cast<std::uint64_t>(first * part.array.strides.front()) *
                               ElementBytes(part.array.dtype);
  }
  part.shape = shape;
  return part;
}

// Every tensor rank of a stage that has a part of the tensor must have one.
Status CheckComplete(const std::vector<OfRank>& parts, const std::vector<std::string>& names,
                     std::int64_t tensor_ranks) {
  using Stage = std::pair<std::int64_t, std::int64_t>;
  std::map<Stage, std::vector<const OfRank*>> stages;
  for (const OfRank& part : parts) stages[{part.at.pipeline, part.at.expert}].push_back(&part);
  for (const auto& [stage, of_stage] : stages) {
    std::vector<bool> has(static_cast<std::size_t>(tensor_ranks));
    for (const OfRank* part : of_stage) has[static_cast<std::size_t>(part->at.tensor)] = true;
    const auto lacking = std::ranges::find(has, false);
    if (lacking == has.end()) continue;
    return Error(ErrorKind::kMissing, "a tensor-parallel rank has no part of the tensor")
        .File(names[of_stage.front()->file])
        .Expected(fmt::format("a part of each of {} ranks, as this file has one", tensor_ranks))
        .Actual(fmt::format("none of rank {}", lacking - has.begin()));
  }
  return OkStatus();
}

constexpr std::string_view kSaveAsTorchDist =
    "Megatron-LM can save the same run as torch_dist, where it is read";

// That expert ranks have the same of it is as wrong as that they have different parts, so that such
// a tensor is not read from the first.
Status CheckExpertsKnown(const std::string& name, const Arguments& arguments) {
  if (arguments.sizes.expert == 1 || !IsOfExpert(name)) return OkStatus();
  if (arguments.divides_each_expert) {
    return Error(ErrorKind::kUnsupported, "expert ranks have parts of each expert")
        .Expected("moe_extended_tp False")
        .Actual("True")
        .Hint(kSaveAsTorchDist);
  }
  if (NumbersExpert(name)) return OkStatus();
  return Error(ErrorKind::kUnsupported,
               "which experts a rank has in a tensor of this name is not known")
      .Expected("a tensor for each expert, with its number, or weight1 and weight2 of GroupedMLP")
      .Hint(kSaveAsTorchDist);
}

// Fills in the shape and the parts. Errors: what the tensor's problem is.
Status Place(const std::string& name, const std::vector<OfRank>& parts, const RankSet& set,
             const Arguments& arguments, RankTensor& tensor) {
  const OfRank& first = parts.front();
  const std::int64_t ranks = arguments.sizes.tensor;
  for (const OfRank& part : parts) {
    if (!part.problem.ok()) return Status(part.problem).File(set.names[part.file]);
  }
  if (Status known = CheckExpertsKnown(name, arguments); !known.ok()) {
    return std::move(known).File(set.names[first.file]);
  }
  if (IsOfExpert(name) && arguments.expert_tensor != ranks) {
    return Error(ErrorKind::kUnsupported, "experts are divided by other ranks than the rest")
        .Expected(fmt::format("expert_tensor_parallel_size {}", ranks))
        .Actual(fmt::format("{}", arguments.expert_tensor));
  }
  const std::optional<megatron::Division> division =
      ranks == 1 ? megatron::Division::kWhole : megatron::DivisionOf(name, arguments.is_gated);
  if (!division) {
    return Error(ErrorKind::kUnsupported,
                 "how tensor-parallel ranks divide a tensor of this name is not known")
        .File(set.names[first.file]);
  }
  CKPT_RETURN_IF_ERROR(CheckComplete(parts, set.names, ranks));
  for (const OfRank& part : parts) {
    const bool is_like_first =
        part.local.shape == first.local.shape && part.local.array.dtype == first.local.array.dtype;
    if (!is_like_first) {
      return Error(ErrorKind::kShapeMismatch, "ranks have different parts of a tensor")
          .File(set.names[part.file])
          .Expected(fmt::format("{} {}, as in {}", DTypeName(first.local.array.dtype),
                                FormatDims(first.local.shape), set.names[first.file]))
          .Actual(fmt::format("{} {}", DTypeName(part.local.array.dtype),
                              FormatDims(part.local.shape)));
    }
    CKPT_ASSIGN_OR_RETURN(const megatron::PlacedPiece piece,
                          megatron::PlacePart(*division, part.local.shape, part.at.tensor, ranks));
    CKPT_RETURN_IF_ERROR(CountBytes(piece.shape, part.local.array.dtype).status());
    tensor.shape = piece.shape;
    for (const megatron::PlacedRows& rows : piece.rows) {
      tensor.parts.push_back({.file = part.file,
                              .box = rows.box,
                              .local = RowsOf(part.local, rows.first_row, rows.box.sizes)});
    }
  }
  return OkStatus();
}

}  // namespace

void AddPart(const std::string& name, OfRank part, const Arguments& arguments, Parts& tensors) {
  if (IsOfGroupedExperts(name) && !arguments.divides_each_expert) {
    const std::int64_t own = arguments.own_experts();
    Result<std::vector<ExpertTensor>> experts =
        SplitExperts(name, part.local, part.at.expert * own, own);
    if (experts.ok()) {
      for (ExpertTensor& expert : *experts) {
        tensors[expert.name].push_back(
            {.file = part.file, .at = part.at, .local = std::move(expert.local)});
      }
      return;
    }
    part.problem = std::move(experts).status();
  }
  tensors[name].push_back(std::move(part));
}

void AddTensors(const std::string& prefix, const Parts& tensors, const Arguments& arguments,
                RankSet& set) {
  for (const auto& [name, parts] : tensors) {
    const RebuiltTensor& first = parts.front().local;
    RankTensor tensor{.key = prefix + name, .dtype = first.array.dtype, .shape = first.shape};
    tensor.problem = Place(name, parts, set, arguments, tensor);
    if (!tensor.problem.ok()) tensor.parts.clear();
    set.tensors.push_back(std::move(tensor));
  }
}

}  // namespace ckpt::mp_rank
