#include "converters/verbs/internal/vocabulary_padding.h"

#include <algorithm>
#include <map>

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

// A stored tensor and its padding.
struct PaddedTensor {
  const GlobalTensor* stored = nullptr;
  std::vector<Box> padding;
  std::uint64_t padding_bytes = 0;
};

Result<std::vector<PaddedTensor>> FindPaddedTensors(const ModelSource& model) {
  std::vector<PaddedTensor> padded;
  if (!model.family) return padded;
  // The source under its own naming: what only zeros fill there is padding.
  CKPT_ASSIGN_OR_RETURN(const ModelView own,
                        ViewModel(model, model.match.layout.naming, model.match.layout.choices));
  std::map<std::string_view, std::size_t> recipe_of;
  for (std::size_t t = 0; t < own.tensors.size(); ++t) recipe_of[own.tensors[t].key] = t;
  for (std::size_t t = 0; t < own.layout.tensors.size(); ++t) {
    const std::uint32_t position = model.match.positions[t];
    const std::string key = own.layout.Key(own.layout.tensors[t]);
    const auto recipe = recipe_of.find(key);
    if (position == layout::SourceMatch::kAbsent || recipe == recipe_of.end()) continue;
    PaddedTensor tensor{.stored = &model.source().index().tensors()[position], .padding = {}};
    for (const layout::Nest& nest : own.recipes[recipe->second].nests) {
      if (!nest.is_zero_fill()) continue;
      tensor.padding.push_back(layout::TargetBounds(nest));
      tensor.padding_bytes +=
          static_cast<std::uint64_t>(layout::Volume(nest)) * ElementBytes(tensor.stored->dtype);
    }
    if (!tensor.padding.empty()) padded.push_back(std::move(tensor));
  }
  return padded;
}

}  // namespace

Result<std::vector<LeftOutEntry>> FindPadding(const ModelSource& model) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<PaddedTensor> padded, FindPaddedTensors(model));
  std::vector<LeftOutEntry> entries;
  entries.reserve(padded.size());
  for (const PaddedTensor& tensor : padded) {
    entries.push_back({tensor.stored->key, tensor.padding_bytes, "rows that pad the vocabulary"});
  }
  return entries;
}

Result<std::vector<LeftOutEntry>> FindUsedPadding(const ModelSource& model,
                                                  std::uint64_t memory_budget_bytes) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<PaddedTensor> padded, FindPaddedTensors(model));
  std::vector<LeftOutEntry> used;
  for (const PaddedTensor& tensor : padded) {
    bool is_used = false;
    for (const Box& box : tensor.padding) {
      CKPT_ASSIGN_OR_RETURN(const bool is_zero,
                            IsZero(model.source(), *tensor.stored, box, memory_budget_bytes));
      is_used = is_used || !is_zero;
    }
    if (is_used) {
      used.push_back(
          {tensor.stored->key, tensor.padding_bytes, "rows that pad the vocabulary, not all zero"});
    }
  }
  return used;
}

}  // namespace ckpt
