#include "tools/ckpt-inspect/internal/differing_element.h"

#include <vector>

#include <fmt/format.h>

#include "core/layout/affine.h"
#include "tools/ckpt-inspect/element.h"

namespace ckpt::inspect {
namespace {

// The file with an element, or with copy number `copy` of it if there are so many.
std::string FileWith(const CheckpointIndex& side, const GlobalTensor& tensor, const Dims& index,
                     std::size_t copy) {
  const Box element{.offsets = index, .sizes = Dims(index.size(), 1)};
  std::vector<FileId> files;
  for (const Chunk& chunk : side.chunks(tensor)) {
    if (Intersect(side.box(chunk), element)) files.push_back(chunk.file);
  }
  if (files.empty()) return {};
  return side.files()[files[copy < files.size() ? copy : 0]];
}

}  // namespace

Dims IndexAt(DimsView shape, std::int64_t position) {
  Dims index(shape.size());
  for (std::size_t d = shape.size(); d-- > 0;) {
    index[d] = position % shape[d];
    position /= shape[d];
  }
  return index;
}

std::optional<StoredElement> StoredAt(const CheckpointIndex& side, const TensorAsked& asked,
                                      const Dims& index, std::size_t copy) {
  const Box element{.offsets = index, .sizes = Dims(index.size(), 1)};
  for (const layout::Nest& nest : asked.recipe.nests) {
    if (nest.is_zero_fill()) continue;
    const std::vector<layout::Nest> part = layout::ClipToTarget(nest, element);
    if (part.empty()) continue;
    const GlobalTensor& tensor = side.tensors()[nest.source];
    const Dims& at = part.front().source_origin;
    return StoredElement{.key = tensor.key, .index = at, .file = FileWith(side, tensor, at, copy)};
  }
  return std::nullopt;
}

std::string ValueText(DType dtype, const ElementBits& bits) {
  std::string text;
  AppendElement(dtype, bits.data(), text);
  return text;
}

std::string BitsText(DType dtype, const ElementBits& bits) {
  std::string text = "0x";
  for (std::uint64_t i = ElementBytes(dtype); i-- > 0;) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(bits[i]));
  }
  return text;
}

std::string DifferenceText(const TensorDiff& diff) {
  const auto is_whole = [](DType dtype) { return IsInteger(dtype) || dtype == DType::kBool; };
  const bool is_integer = is_whole(diff.pair->a.dtype) && is_whole(diff.pair->b.dtype);
  std::string text;
  AppendNumber(is_integer ? DType::kUint64 : DType::kFloat64, *diff.elements.max_abs, text);
  return text;
}

}  // namespace ckpt::inspect
