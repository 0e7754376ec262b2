#include "formats/torch_dist/internal/local_parameter.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/base/checked_math.h"
#include "core/tensor/shape.h"
#include "formats/torch_dist/internal/flat_range.h"
#include "formats/torch_dist/internal/grouped_states.h"
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
    may_join_experts_ = MayJoinExperts();
    const auto ranks = DivideModule();
    if (!ranks) return AddChunks();
    CKPT_RETURN_IF_ERROR(AddDivided(WholeBox(weight.shape), form_.leading_dims(), *ranks));
    return may_join_experts_ ? AddJoined(*ranks) : OkStatus();
  }

  [[nodiscard]] std::vector<LocalParameter> Take() && { return std::move(listed_); }

 private:
  // Whether the weight may be a part of an array of all experts that a rank has.
  [[nodiscard]] bool MayJoinExperts() const {
    const std::size_t leading = form_.leading_dims();
    const bool has_experts = form_.stacks_experts && IsOfGroupedExperts(weight_->key) &&
                             weight_->shape.size() == leading + 2;
    if (!has_experts) return false;
    if (ranks_.joins_experts) return *ranks_.joins_experts;
    // No other class of Megatron's stores several in one chunk.
    return std::ranges::any_of(index_.chunks(*weight_), [&](const Chunk& chunk) {
      return index_.sizes(chunk)[leading - 1] > 1;
    });
  }

  // The parts of a box that belong to one parameter each: those of one place in the `leading` first
  // dims, of layers and experts. Errors: kResource (with `of_each` parts of a module, there are
  // more than of any model).
  Result<std::vector<Box>> OfSingleModules(const Box& box, std::size_t leading,
                                           std::size_t of_each) {
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

  // Of a box of all ranks' parts, wherever the bytes lie. All experts in it are one parameter if
  // its `leading` dims are those of layers alone.
  Status AddDivided(const Box& all, std::size_t leading,
                    const std::vector<std::vector<Box>>& ranks) {
    const auto count = static_cast<std::int64_t>(ranks.size());
    CKPT_ASSIGN_OR_RETURN(const std::vector<Box> modules,
                          OfSingleModules(all, leading, ranks.size()));
    for (const Box& module : modules) {
      for (std::int64_t rank = 0; rank < count; ++rank) {
        std::vector<Box> boxes = ranks[static_cast<std::size_t>(rank)];
        for (Box& box : boxes) {
          for (std::size_t d = form_.leading_dims(); d-- > 0;) {
            box.offsets.insert(box.offsets.begin(), module.offsets[d]);
            box.sizes.insert(box.sizes.begin(), module.sizes[d]);
          }
        }
        listed_.push_back(Make(std::move(boxes), rank, count));
        listed_.back().is_turned = leading < form_.leading_dims();
      }
    }
    return OkStatus();
  }

  // As arrays of the experts that a rank has: as many as any other.
  Status AddJoined(const std::vector<std::vector<Box>>& ranks) {
    const std::size_t experts = form_.leading_dims() - 1;  // the dim
    Box joined = WholeBox(weight_->shape);
    if (joined.sizes[experts] % ranks_.expert != 0) return OkStatus();
    joined.sizes[experts] /= ranks_.expert;
    for (std::int64_t rank = 0; rank < ranks_.expert; ++rank) {
      joined.offsets[experts] = rank * joined.sizes[experts];
      CKPT_RETURN_IF_ERROR(AddDivided(joined, experts, ranks));
    }
    return OkStatus();
  }

  Status AddChunks() {
    const std::size_t leading = form_.leading_dims();
    KnownBoxes known;
    std::vector<Box> stored;
    // Each rank may have all of it, or as many rows as the others, however it is cut.
    if (ranks_.are_named) {
      stored.push_back(WholeBox(weight_->shape));
      AddRows(leading, stored);
    }
    for (const Chunk& chunk : index_.chunks(*weight_)) stored.push_back(index_.box(chunk));
    for (const Box& part : stored) {
      if (IsEmpty(part)) continue;
      CKPT_RETURN_IF_ERROR(AddPart(part, leading, known));
      if (may_join_experts_) CKPT_RETURN_IF_ERROR(AddPart(part, leading - 1, known));
    }
    return OkStatus();
  }

  // Every box that was listed, by whether its experts are joined.
  using KnownBoxes = std::set<std::tuple<bool, Dims, Dims>>;

  // `leading`: as of AddDivided.
  Status AddPart(const Box& part, std::size_t leading, KnownBoxes& known) {
    const bool is_turned = leading < form_.leading_dims();
    CKPT_ASSIGN_OR_RETURN(std::vector<Box> boxes, OfSingleModules(part, leading, 1));
    for (Box& box : boxes) {
      const std::optional<Slice> slice = SliceOf(box, weight_->shape, form_.leading_dims());
      if (!slice || !MayBeOfRank(*slice)) continue;
      // Or it is a replica.
      const bool is_new = known.emplace(is_turned, box.offsets, box.sizes).second;
      if (is_new) AddSlice(std::move(box), *slice, is_turned);
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
  void AddSlice(Box box, const Slice& slice, bool is_turned) {
    const std::int64_t half = slice.count / 2;
    const bool may_be_gated = MayBeGated(form_.name);
    const bool is_gate = may_be_gated && slice.dim == form_.leading_dims() &&
                         slice.count % 2 == 0 && slice.number < half;
    if (is_gate) {
      Box up = box;
      up.offsets[slice.dim] += half * box.sizes[slice.dim];
      listed_.push_back(Make({box, std::move(up)}, slice.number, half));
      listed_.back().is_turned = is_turned;
      listed_.back().may_be_gated = true;
      listed_.back().is_gated = true;
    }
    listed_.push_back(Make({std::move(box)}, slice.number, slice.count));
    listed_.back().is_turned = is_turned;
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
  bool may_join_experts_ = false;
  std::int64_t num_parts_ = 0;  // of all weights
  std::vector<LocalParameter> listed_;
};

// Of a parameter that is not turned.
std::vector<LocalPiece> CutBoxes(const LocalParameter& parameter, std::int64_t begin,
                                 std::int64_t end) {
  std::vector<LocalPiece> pieces;
  std::int64_t first = 0;  // of a box
  for (const Box& box : parameter.boxes) {
    const std::int64_t behind = first + NumElements(box.sizes);
    const std::int64_t from = std::clamp(begin, first, behind) - first;
    const std::int64_t to = std::clamp(end, first, behind) - first;
    for (FlatBox& cut : CutFlatRange(box, from, to)) {
      pieces.push_back({.box = std::move(cut.box),
                        .first_elem = first + cut.first_elem,
                        .strides = ContiguousStrides(box.sizes)});
    }
    first = behind;
  }
  return pieces;
}

// Of one that is: its memory is cut first, and each part of it at the rows of up.
std::vector<LocalPiece> CutTurned(const LocalParameter& parameter, std::int64_t begin,
                                  std::int64_t end) {
  Dims memory = parameter.boxes.front().sizes;
  const std::size_t rows = memory.size() - 2;  // dims of the weight
  const std::size_t columns = rows + 1;
  memory[rows] = memory[columns];
  memory[columns] = 0;
  for (const Box& box : parameter.boxes) memory[columns] += box.sizes[rows];
  Dims strides = ContiguousStrides(memory);
  std::swap(strides[rows], strides[columns]);
  std::vector<LocalPiece> pieces;
  for (const auto& [cut, first_elem] : CutFlatRange(memory, begin, end)) {
    const std::int64_t first_row = cut.offsets[columns];
    std::int64_t row = 0;  // the box's first one
    for (const Box& box : parameter.boxes) {
      const std::int64_t behind = row + box.sizes[rows];
      const std::int64_t from = std::clamp(first_row, row, behind);
      const std::int64_t to = std::clamp(first_row + cut.sizes[columns], row, behind);
      if (from < to) {
        Box piece = box;
        for (std::size_t d = 0; d < rows; ++d) {
          piece.offsets[d] += cut.offsets[d];
          piece.sizes[d] = cut.sizes[d];
        }
        piece.offsets[rows] += from - row;
        piece.sizes[rows] = to - from;
        piece.offsets[columns] += cut.offsets[rows];
        piece.sizes[columns] = cut.sizes[rows];
        pieces.push_back({.box = std::move(piece),
                          .first_elem = first_elem + from - first_row,
                          .strides = strides});
      }
      row = behind;
    }
  }
  return pieces;
}

}  // namespace

std::vector<LocalPiece> CutParameter(const LocalParameter& parameter, std::int64_t begin,
                                     std::int64_t end) {
  return parameter.is_turned ? CutTurned(parameter, begin, end) : CutBoxes(parameter, begin, end);
}

std::optional<std::vector<Box>> BoxesOfRank(std::string_view key, DimsView whole, std::int64_t rank,
                                            std::int64_t ranks, bool is_gated) {
  if (ranks == 1) return std::vector{WholeBox(whole)};
  const std::optional<megatron::Division> division = megatron::DivisionOf(key, is_gated);
  return division ? BoxesOfRank(*division, whole, rank, ranks) : std::nullopt;
}

std::optional<std::vector<Box>> BoxesOfRank(megatron::Division division, DimsView whole,
                                            std::int64_t rank, std::int64_t ranks) {
  Dims part(whole.begin(), whole.end());
  if (division != megatron::Division::kWhole) {
    const std::size_t dim = division == megatron::Division::kColumns ? 1 : 0;
    if (part.size() <= dim || part[dim] % ranks != 0) return std::nullopt;
    part[dim] /= ranks;
  }
  const Result<megatron::PlacedPiece> placed = megatron::PlacePart(division, part, rank, ranks);
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
