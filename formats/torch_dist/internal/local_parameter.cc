#include "formats/torch_dist/internal/local_parameter.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/tensor/shape.h"
#include "formats/megatron/division.h"
#include "formats/torch_dist/internal/run_keys.h"
#include "formats/torch_dist/internal/weight_key.h"

namespace ckpt::torch_dist {
namespace {

bool IsOfOptimizer(std::string_view key) {
  return key.starts_with(kOptimizer) || key.starts_with(kChained);
}

// Whether rows lie behind others.
bool Follows(const Box& rows, const Box& before) {
  if (rows.sizes.empty()) return false;
  Box expected = before;
  expected.offsets[0] += before.sizes[0];
  expected.sizes[0] = rows.sizes[0];
  return rows == expected;
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

// Of all weights. The largest published models have fewer layers times experts times ranks.
constexpr std::int64_t kMaxParts = 1 << 20;

Box WithoutLeading(Box box, std::size_t leading) {
  const auto count = static_cast<std::ptrdiff_t>(leading);
  box.offsets.erase(box.offsets.begin(), box.offsets.begin() + count);
  box.sizes.erase(box.sizes.begin(), box.sizes.begin() + count);
  return box;
}

class Lister {
 public:
  Lister(const CheckpointIndex& index, const RunRanks& ranks) : index_(index), ranks_(ranks) {}

  Status Add(const GlobalTensor& weight) {
    weight_ = &weight;
    form_ = FormOfKey(weight.key);
    const bool has_modules = weight.shape.size() >= form_.leading_dims();
    if (!has_modules || IsEmpty(WholeBox(weight.shape))) return OkStatus();
    if (const auto ranks = DivideModule()) return AddDivided(*ranks);
    return AddChunks();
  }

  [[nodiscard]] std::vector<LocalParameter> Take() && { return std::move(listed_); }

 private:
  // The parts of a box that belong to one layer and expert each. Errors: kResource (with
  // `of_each` parts of a module, there are more than of any model).
  Result<std::vector<Box>> OfSingleModules(const Box& box, std::size_t of_each) {
    const std::size_t leading = form_.leading_dims();
    auto count = static_cast<std::int64_t>(of_each);
    for (std::size_t d = 0; d < leading; ++d) {
      if (!CheckedMul(count, box.sizes[d], &count)) count = kMaxParts + 1;
    }
    if (count > kMaxParts - num_parts_) {
      return Error(ErrorKind::kResource,
                   "weights have more layers, experts and ranks than any model")
          .Tensor(weight_->key)
          .Expected(fmt::format("at most {} parts in all", kMaxParts))
          .Actual(fmt::format("{} before this weight", num_parts_));
    }
    num_parts_ += count;
    std::vector<Box> parts = {box};
    for (std::size_t d = 0; d < leading; ++d) {
      std::vector<Box> cut;
      for (const Box& part : parts) {
        for (std::int64_t i = 0; i < part.sizes[d]; ++i) {
          Box& one = cut.emplace_back(part);
          one.offsets[d] += i;
          one.sizes[d] = 1;
        }
      }
      parts = std::move(cut);
    }
    return parts;
  }

  // What each tensor rank has of one module's weight, as the arguments say; one element if each has
  // all of it. Nothing: they do not say it.
  [[nodiscard]] std::optional<std::vector<std::vector<Box>>> DivideModule() const {
    if (!ranks_.are_named) return std::nullopt;
    const DimsView module = std::span(weight_->shape).subspan(form_.leading_dims());
    const std::int64_t count = ranks_.TensorRanks(weight_->key);
    std::vector<std::vector<Box>> divided;
    for (std::int64_t rank = 0; rank < count; ++rank) {
      auto boxes = BoxesOfRank(weight_->key, module, rank, count, ranks_.is_gated);
      if (!boxes) return std::nullopt;
      const bool is_whole = boxes->front() == WholeBox(module);
      divided.push_back(*std::move(boxes));
      if (is_whole) break;
    }
    return divided;
  }

  // Wherever the bytes lie.
  Status AddDivided(const std::vector<std::vector<Box>>& ranks) {
    const auto count = static_cast<std::int64_t>(ranks.size());
    CKPT_ASSIGN_OR_RETURN(const std::vector<Box> modules,
                          OfSingleModules(WholeBox(weight_->shape), ranks.size()));
    for (const Box& module : modules) {
      for (std::int64_t rank = 0; rank < count; ++rank) {
        std::vector<Box> boxes = ranks[static_cast<std::size_t>(rank)];
        for (Box& box : boxes) {
          for (std::size_t d = form_.leading_dims(); d-- > 0;) {
            box.offsets.insert(box.offsets.begin(), module.offsets[d]);
            box.sizes.insert(box.sizes.begin(), 1);
          }
        }
        listed_.push_back(Make(std::move(boxes), rank, count));
      }
    }
    return OkStatus();
  }

  Status AddChunks() {
    const std::size_t leading = form_.leading_dims();
    std::set<std::pair<Dims, Dims>> known;
    std::vector<Box> stored;
    // Each rank may have all of it, or as many rows as the others, however it is cut.
    if (ranks_.are_named) {
      stored.push_back(WholeBox(weight_->shape));
      AddRows(leading, stored);
    }
    for (const Chunk& chunk : index_.chunks(*weight_)) stored.push_back(index_.box(chunk));
    for (const Box& part : stored) {
      if (IsEmpty(part)) continue;
      CKPT_ASSIGN_OR_RETURN(std::vector<Box> boxes, OfSingleModules(part, 1));
      for (Box& box : boxes) {
        const std::optional<Slice> slice = SliceOf(box, weight_->shape, leading);
        if (!slice || !MayBeOfRank(*slice)) continue;
        // Or it is a replica.
        if (known.emplace(box.offsets, box.sizes).second) AddSlice(std::move(box), *slice);
      }
    }
    return OkStatus();
  }

  // Equal parts of a module's rows, one a rank.
  void AddRows(std::size_t leading, std::vector<Box>& parts) const {
    const std::int64_t ranks = ranks_.TensorRanks(weight_->key);
    if (ranks == 1 || leading == weight_->shape.size() || weight_->shape[leading] % ranks != 0) {
      return;
    }
    Box part = WholeBox(weight_->shape);
    part.sizes[leading] /= ranks;
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      part.offsets[leading] = rank * part.sizes[leading];
      parts.push_back(part);
    }
  }

  // Whether as many ranks as are named may have such a chunk, or the gate or up of one.
  [[nodiscard]] bool MayBeOfRank(const Slice& slice) const {
    if (!ranks_.are_named || slice.count == 1) return true;
    const std::int64_t ranks = ranks_.TensorRanks(weight_->key);
    return slice.count == ranks || (MayBeGated(form_.name) && slice.count == 2 * ranks);
  }

  // As gated, too, if it may be.
  void AddSlice(Box box, const Slice& slice) {
    const std::int64_t half = slice.count / 2;
    const bool may_be_gated = MayBeGated(form_.name);
    const bool is_gate = may_be_gated && slice.dim == form_.leading_dims() &&
                         slice.count % 2 == 0 && slice.number < half;
    if (is_gate) {
      Box up = box;
      up.offsets[slice.dim] += half * box.sizes[slice.dim];
      listed_.push_back(Make({box, std::move(up)}, slice.number, half));
      listed_.back().may_be_gated = true;
      listed_.back().is_gated = true;
    }
    listed_.push_back(Make({std::move(box)}, slice.number, slice.count));
    listed_.back().may_be_gated = may_be_gated;
  }

  [[nodiscard]] LocalParameter Make(std::vector<Box> boxes, std::int64_t slice,
                                    std::int64_t num_slices) const {
    const Dims at = boxes.front().offsets;
    std::int64_t elems = 0;
    for (const Box& box : boxes) elems += NumElements(box.sizes);
    return {.weight = weight_,
            .name = form_.name,
            .layer = form_.stacks_layers ? at[0] : form_.layer.value_or(0),
            .expert = form_.stacks_experts ? at[form_.leading_dims() - 1] : 0,
            .boxes = std::move(boxes),
            .elems = elems,
            .slice = slice,
            .num_slices = num_slices};
  }

  const CheckpointIndex& index_;
  const RunRanks& ranks_;
  const GlobalTensor* weight_ = nullptr;
  KeyForm form_;
  std::int64_t num_parts_ = 0;  // of all weights
  std::vector<LocalParameter> listed_;
};

}  // namespace

std::optional<std::vector<Box>> BoxesOfRank(std::string_view key, DimsView whole, std::int64_t rank,
                                            std::int64_t ranks, bool is_gated) {
  if (ranks == 1) return std::vector{WholeBox(whole)};
  const std::optional<megatron::Division> division = megatron::DivisionOf(key, is_gated);
  if (!division) return std::nullopt;
  Dims part(whole.begin(), whole.end());
  if (*division != megatron::Division::kWhole) {
    const std::size_t dim = *division == megatron::Division::kColumns ? 1 : 0;
    if (part.size() <= dim || part[dim] % ranks != 0) return std::nullopt;
    part[dim] /= ranks;
  }
  const Result<megatron::PlacedPiece> placed = megatron::PlacePart(*division, part, rank, ranks);
  if (!placed.ok()) return std::nullopt;
  std::vector<Box> boxes;
  for (const megatron::PlacedRows& rows : placed->rows) boxes.push_back(rows.box);
  return boxes;
}

Result<std::vector<LocalParameter>> LocalParameters(const CheckpointIndex& index,
                                                    const RunRanks& ranks) {
  Lister lister(index, ranks);
  for (const GlobalTensor& tensor : index.tensors()) {
    if (!IsOfOptimizer(tensor.key)) CKPT_RETURN_IF_ERROR(lister.Add(tensor));
  }
  std::vector<LocalParameter> parameters = std::move(lister).Take();
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

BufferPart PartOf(const LocalParameter& parameter, std::int64_t begin) {
  const std::size_t leading = FormOfKey(parameter.weight->key).leading_dims();
  BufferPart part = {.name = parameter.name,
                     .layer = parameter.layer,
                     .expert = parameter.expert,
                     .boxes = {},
                     .begin = begin};
  for (const Box& box : parameter.boxes) {
    Box in_module = WithoutLeading(box, leading);
    // The gate's rows and those of up, if one rank has all.
    if (!part.boxes.empty() && Follows(in_module, part.boxes.back())) {
      part.boxes.back().sizes[0] += in_module.sizes[0];
    } else {
      part.boxes.push_back(std::move(in_module));
    }
  }
  return part;
}

}  // namespace ckpt::torch_dist
