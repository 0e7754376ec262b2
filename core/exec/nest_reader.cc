#include "core/exec/nest_reader.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "core/base/checked_math.h"
#include "core/base/scratch.h"
#include "core/base/units.h"
#include "core/plan/stored_parts.h"
#include "core/tensor/blocks.h"
#include "core/tensor/cast.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kMinWideningBytes = 4 * kKiB;
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 62;
// Bytes read for each byte that is asked for: what needs no reading ahead, and what part of it
// reading ahead has to leave, because it costs another copy.
constexpr double kCheap = 1.5;
constexpr double kWorthwhile = 0.75;

// Whether the nest goes through its source in order where its target is written in order.
bool KeepsOrder(const layout::Nest& nest) {
  return std::ranges::is_sorted(nest.loops, [](const layout::Loop& a, const layout::Loop& b) {
    return a.source_dim != b.source_dim ? a.source_dim < b.source_dim
                                        : a.source_step > b.source_step;
  });
}

// The parts of a recipe that fill a box.
std::vector<layout::Nest> PartsInBox(const TensorRecipe& recipe, const Box& box) {
  std::vector<layout::Nest> parts;
  for (const layout::Nest& nest : recipe.nests) {
    std::ranges::move(layout::ClipToTarget(nest, box), std::back_inserter(parts));
  }
  return layout::JoinNests(std::move(parts));
}

}  // namespace

std::uint64_t NestReader::ScratchBytes(std::uint64_t budget_bytes) {
  return Gatherer::ScratchBytes(budget_bytes / 8);
}

NestReader::NestReader(const CheckpointSource& source, std::uint64_t budget_bytes, std::size_t copy)
    : budget_bytes_(budget_bytes),
      copy_(copy),
      gatherer_(ScratchBytes(budget_bytes)),
      chunks_(source, budget_bytes / 4) {}

Status NestReader::ReadNest(const layout::Nest& nest, const Box& box, MutableByteSpan out) {
  const CheckpointIndex& index = chunks_.source().index();
  TensorReader reader(index.tensors()[nest.source], gatherer_, chunks_);
  return ForEachStoredPart(
      index, reader.tensor(), index.chunks(reader.tensor()), nest, copy_,
      [&](const Chunk& chunk, const Box& stored, std::span<const layout::Nest> parts) -> Status {
        CKPT_ASSIGN_OR_RETURN(const StoredArray* array, chunks_.Locate(reader.tensor(), chunk));
        for (const layout::Nest& part : parts) {
          CKPT_RETURN_IF_ERROR(reader.GatherStored(
              *array, CopyOfPart(part, stored, array->strides, array->dtype, box), out));
        }
        return OkStatus();
      });
}

bool NestReader::IsOf(DType dtype, const layout::Nest& nest) const {
  return !nest.is_zero_fill() && chunks_.source().index().tensors()[nest.source].dtype == dtype;
}

Status NestReader::AddBlockOfDtype(const TensorRecipe& recipe, DType dtype, const Box& block,
                                   MutableByteSpan out) {
  stored_.assign(NumBytes(block.sizes, dtype), std::byte{0});
  for (const layout::Nest& part : PartsInBox(recipe, block)) {
    if (IsOf(dtype, part)) CKPT_RETURN_IF_ERROR(ReadNest(part, block, stored_));
  }
  widened_.resize(out.size());
  CastElements(dtype, stored_, recipe.source_dtype, widened_);
  // Combines by or: `widened_` is zero where the nests have no element, and `out` is zero where
  // they have one.
  std::transform(out.begin(), out.end(), widened_.begin(), out.begin(), std::bit_or<>());
  return OkStatus();
}

Status NestReader::AddOfDtype(const TensorRecipe& recipe, DType dtype, const Box& box,
                              MutableByteSpan out) {
  const std::uint64_t bytes_both = ElementBytes(recipe.source_dtype) + ElementBytes(dtype);
  const std::uint64_t widening_bytes = std::max(budget_bytes_ / 8, kMinWideningBytes);
  std::uint64_t at = 0;  // blocks are contiguous in `out`
  return ForEachBlock(
      box, static_cast<std::int64_t>(widening_bytes / bytes_both), [&](const Box& block) {
        const std::uint64_t bytes = NumBytes(block.sizes, recipe.source_dtype);
        CKPT_RETURN_IF_ERROR(AddBlockOfDtype(recipe, dtype, block, out.subspan(at, bytes)));
        at += bytes;
        return OkStatus();
      });
}

Status NestReader::Read(const TensorRecipe& recipe, const Box& box, MutableByteSpan out) {
  std::set<DType> others;  // dtypes other than the recipe's
  bool has_gaps = false;
  for (const layout::Nest& nest : recipe.nests) {
    if (IsOf(recipe.source_dtype, nest)) continue;
    has_gaps = true;
    if (nest.is_zero_fill()) continue;
    others.insert(chunks_.source().index().tensors()[nest.source].dtype);
  }
  // Fill with zeros first; a nest of zeros then only counts its elements.
  if (has_gaps) std::fill(out.begin(), out.end(), std::byte{0});
  std::int64_t filled = 0;
  for (const layout::Nest& part : PartsInBox(recipe, box)) {
    filled += layout::Volume(part);
    if (IsOf(recipe.source_dtype, part)) CKPT_RETURN_IF_ERROR(ReadNest(part, box, out));
  }
  for (const DType dtype : others) CKPT_RETURN_IF_ERROR(AddOfDtype(recipe, dtype, box, out));
  if (filled != NumElements(box.sizes)) {
    return Error(ErrorKind::kInternal, "the recipe does not fill its box exactly once")
        .Expected(FormatBox(box));
  }
  return OkStatus();
}

Result<std::uint64_t> NestReader::BytesToRead(const TensorRecipe& recipe, const Box& box) const {
  const CheckpointIndex& index = chunks_.source().index();
  std::uint64_t bytes = 0;
  for (const layout::Nest& nest : PartsInBox(recipe, box)) {
    if (nest.is_zero_fill()) continue;
    const GlobalTensor& tensor = index.tensors()[nest.source];
    CKPT_RETURN_IF_ERROR(ForEachStoredPart(
        index, tensor, index.chunks(tensor), nest, copy_,
        [&](const Chunk& /*chunk*/, const Box& stored, std::span<const layout::Nest> parts) {
          // Where the chunk lies is not asked: that may decode it.
          const Dims strides = ContiguousStrides(stored.sizes);
          for (const layout::Nest& part : parts) {
            bytes += BytesOfReads(CopyOfPart(part, stored, strides, tensor.dtype, box),
                                  ScratchBytes(budget_bytes_));
          }
          return OkStatus();
        }));
  }
  return bytes;
}

Result<Box> NestReader::BoxToRead(const TensorRecipe& recipe, const Box& whole,
                                  const Box& box) const {
  if (box == whole || std::ranges::all_of(recipe.nests, KeepsOrder)) return box;
  const std::uint64_t element_bytes = ElementBytes(recipe.source_dtype);
  const auto max_elements = static_cast<std::int64_t>(AheadBytes() / element_bytes);
  // Bytes read for each byte that is asked for.
  const auto cost = [&](const Box& candidate) -> Result<double> {
    CKPT_ASSIGN_OR_RETURN(const std::uint64_t bytes, BytesToRead(recipe, candidate));
    return static_cast<double>(bytes) /
           static_cast<double>(NumBytes(candidate.sizes, recipe.source_dtype));
  };
  CKPT_ASSIGN_OR_RETURN(double least, cost(box));
  Box best = box;
  Box candidate = box;
  // Wider by one dim after the other, while it is contiguous in `whole`.
  for (std::size_t d = box.sizes.size(); d-- > 0 && least > kCheap;) {
    if (candidate.offsets[d] == whole.offsets[d] && candidate.sizes[d] == whole.sizes[d]) continue;
    const std::int64_t room = whole.offsets[d] + whole.sizes[d] - candidate.offsets[d];
    const std::int64_t own = candidate.sizes[d];
    const std::int64_t fitting = max_elements / (NumElements(candidate.sizes) / own) / own * own;
    candidate.sizes[d] = std::clamp(fitting, own, room);
    CKPT_ASSIGN_OR_RETURN(const double candidate_cost, cost(candidate));
    if (candidate_cost < least * kWorthwhile) {
      least = candidate_cost;
      best = candidate;
    }
    if (candidate.sizes[d] != whole.sizes[d]) break;
  }
  return best;
}

std::uint64_t NestReader::AheadBytes() const {
  const std::uint64_t eighth = budget_bytes_ / 8;
  return 5 * eighth - std::min(eighth, ScratchBytes(budget_bytes_));
}

Result<std::uint64_t> NestReader::BudgetToReadOnce(const CheckpointSource& source,
                                                   const TensorRecipe& recipe, const Box& whole,
                                                   const Box& box) {
  const NestReader without_limit(source, kNoLimit);
  CKPT_ASSIGN_OR_RETURN(const Box wider, without_limit.BoxToRead(recipe, whole, box));
  if (wider == box) return 0;
  const std::uint64_t ahead = NumBytes(wider.sizes, recipe.source_dtype);
  return CeilDiv(ahead + ScratchBytes(kNoLimit), 5) * 8;
}

Result<ByteSpan> NestReader::ReadInOrder(const TensorRecipe& recipe, const Box& whole,
                                         const Box& box, MutableByteSpan out) {
  if (!ahead_box_ || Intersect(*ahead_box_, box) != box) {
    ahead_box_.reset();
    CKPT_ASSIGN_OR_RETURN(const Box wider, BoxToRead(recipe, whole, box));
    if (wider == box) {
      CKPT_RETURN_IF_ERROR(Read(recipe, box, out));
      return ByteSpan(out);
    }
    CKPT_RETURN_IF_ERROR(
        Read(recipe, wider, ahead_.First(NumBytes(wider.sizes, recipe.source_dtype))));
    ahead_box_ = wider;
  }
  // Both are contiguous in `whole`, so one is in the other.
  const Dims strides = ContiguousStrides(ahead_box_->sizes);
  std::int64_t first = 0;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    first += (box.offsets[d] - ahead_box_->offsets[d]) * strides[d];
  }
  const ByteSpan ahead = ahead_.First(NumBytes(ahead_box_->sizes, recipe.source_dtype));
  return ahead.subspan(static_cast<std::uint64_t>(first) * ElementBytes(recipe.source_dtype),
                       out.size());
}

Status StreamRecipe(const CheckpointSource& source, const TensorRecipe& recipe, DimsView shape,
                    std::uint64_t budget_bytes, const std::function<Status(ByteSpan)>& sink) {
  const std::uint64_t element_bytes = ElementBytes(recipe.source_dtype);
  const std::uint64_t block_bytes = StreamBlockBytes(budget_bytes);
  const auto bytes_of = [&](DimsView sizes) { return NumBytes(sizes, recipe.source_dtype); };
  NestReader reader(source, budget_bytes / 2);
  Scratch buffer;
  const Box whole = WholeBox(shape);
  return ForEachBlock(
      whole, static_cast<std::int64_t>(block_bytes / element_bytes), [&](const Box& block) {
        CKPT_ASSIGN_OR_RETURN(
            const ByteSpan bytes,
            reader.ReadInOrder(recipe, whole, block, buffer.First(bytes_of(block.sizes))));
        return sink(bytes);
      });
}

}  // namespace ckpt
