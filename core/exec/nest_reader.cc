#include "core/exec/nest_reader.h"

#include <algorithm>
#include <functional>
#include <set>
#include <span>

#include "core/base/check.h"
#include "core/base/scratch.h"
#include "core/base/units.h"
#include "core/plan/stored_parts.h"
#include "core/tensor/blocks.h"
#include "core/tensor/cast.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kMinWideningBytes = 4 * kKiB;

}  // namespace

std::uint64_t NestReader::ScratchBytes(std::uint64_t budget_bytes) {
  return Gatherer::ScratchBytes(budget_bytes / 8 * 3);
}

NestReader::NestReader(const CheckpointSource& source, std::uint64_t budget_bytes)
    : widening_bytes_(std::max(budget_bytes / 8, kMinWideningBytes)),
      gatherer_(ScratchBytes(budget_bytes)),
      chunks_(source, budget_bytes / 2) {}

Status NestReader::ReadNest(const layout::Nest& nest, const Box& box, MutableByteSpan out) {
  const CheckpointIndex& index = chunks_.source().index();
  TensorReader reader(index.tensors()[nest.source], gatherer_, chunks_);
  return ForEachStoredPart(
      index, reader.tensor(), index.chunks(reader.tensor()), nest,
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
  for (const layout::Nest& nest : recipe.nests) {
    if (!IsOf(dtype, nest)) continue;
    for (const layout::Nest& part : layout::ClipToTarget(nest, block)) {
      CKPT_RETURN_IF_ERROR(ReadNest(part, block, stored_));
    }
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
  std::uint64_t at = 0;  // blocks are contiguous in `out`
  return ForEachBlock(
      box, static_cast<std::int64_t>(widening_bytes_ / bytes_both), [&](const Box& block) {
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
  for (const layout::Nest& nest : recipe.nests) {
    for (const layout::Nest& part : layout::ClipToTarget(nest, box)) {
      filled += layout::Volume(part);
      if (IsOf(recipe.source_dtype, nest)) CKPT_RETURN_IF_ERROR(ReadNest(part, box, out));
    }
  }
  for (const DType dtype : others) CKPT_RETURN_IF_ERROR(AddOfDtype(recipe, dtype, box, out));
  if (filled != NumElements(box.sizes)) {
    return Error(ErrorKind::kInternal, "the recipe does not fill its box exactly once")
        .Expected(FormatBox(box));
  }
  return OkStatus();
}

Status StreamRecipe(const CheckpointSource& source, const TensorRecipe& recipe, DimsView shape,
                    std::uint64_t budget_bytes, const std::function<Status(ByteSpan)>& sink) {
  const std::uint64_t element_bytes = ElementBytes(recipe.source_dtype);
  const std::uint64_t block_bytes = StreamBlockBytes(budget_bytes);
  const auto bytes_of = [&](DimsView sizes) { return NumBytes(sizes, recipe.source_dtype); };
  NestReader reader(source, budget_bytes / 2);
  Scratch buffer;
  return ForEachBlock(WholeBox(shape), static_cast<std::int64_t>(block_bytes / element_bytes),
                      [&](const Box& block) {
                        const MutableByteSpan bytes = buffer.First(bytes_of(block.sizes));
                        CKPT_RETURN_IF_ERROR(reader.Read(recipe, block, bytes));
                        return sink(bytes);
                      });
}

}  // namespace ckpt
