#include "converters/verbs/internal/vocabulary_padding.h"

#include <algorithm>
#include <map>

#include "core/base/checked_math.h"
#include "core/checkpoint/read.h"
#include "core/layout/affine.h"
#include "core/tensor/blocks.h"

namespace ckpt {
namespace {

constexpr std::uint64_t kMaxBlockBytes = std::uint64_t{8} << 20;

Result<bool> IsZero(const CheckpointSource& source, const GlobalTensor& tensor, const Box& box,
                    std::uint64_t budget_bytes) {
  const std::uint64_t block_bytes = std::clamp<std::uint64_t>(budget_bytes / 4, 1, kMaxBlockBytes);
  const auto max_elements = static_cast<std::int64_t>(
      std::max<std::uint64_t>(block_bytes / ElementBytes(tensor.dtype), 1));
  Bytes bytes;
  bool is_zero = true;
  const auto look = [&](const Box& block) -> Status {
    if (!is_zero) return OkStatus();
    bytes.resize(NumBytes(block.sizes, tensor.dtype));
    CKPT_RETURN_IF_ERROR(ReadBox(source, tensor, block, bytes, budget_bytes));
    is_zero =
        std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(ForEachBlock(box, max_elements, look));
  return is_zero;
}

}  // namespace

Result<std::vector<LeftOutEntry>> FindUsedPadding(const ModelSource& model,
                                                  std::uint64_t memory_budget_bytes) {
  // The source under its own naming: what only zeros fill there is padding.
  if (!model.family) return std::vector<LeftOutEntry>();
  CKPT_ASSIGN_OR_RETURN(const ModelView own,
                        ViewModel(model, model.match.layout.naming, model.match.layout.choices));
  std::map<std::string_view, std::size_t> recipe_of;
  for (std::size_t t = 0; t < own.tensors.size(); ++t) recipe_of[own.tensors[t].key] = t;

  std::vector<LeftOutEntry> used;
  for (std::size_t t = 0; t < own.layout.tensors.size(); ++t) {
    const std::uint32_t position = model.match.positions[t];
    const std::string key = own.layout.Key(own.layout.tensors[t]);
    const auto recipe = recipe_of.find(key);
    if (position == layout::SourceMatch::kAbsent || recipe == recipe_of.end()) continue;
    const GlobalTensor& stored = model.source().index().tensors()[position];
    std::uint64_t padding_bytes = 0;
    bool is_used = false;
    for (const layout::Nest& nest : own.recipes[recipe->second].nests) {
      if (!nest.is_zero_fill()) continue;
      padding_bytes +=
          static_cast<std::uint64_t>(layout::Volume(nest)) * ElementBytes(stored.dtype);
      CKPT_ASSIGN_OR_RETURN(
          const bool is_zero,
          IsZero(model.source(), stored, layout::TargetBounds(nest), memory_budget_bytes));
      is_used = is_used || !is_zero;
    }
    if (is_used) {
      used.push_back({stored.key, padding_bytes, "rows that pad the vocabulary, not all zero"});
    }
  }
  return used;
}

}  // namespace ckpt
