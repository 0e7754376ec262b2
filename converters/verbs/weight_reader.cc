#include "converters/verbs/weight_reader.h"

#include <utility>

#include <fmt/format.h>

#include "core/tensor/cast.h"

namespace ckpt {

WeightReader::WeightReader(const ModelSource& model, ModelView view, std::uint64_t budget_bytes)
    : view_(std::move(view)), reader_(model.source(), budget_bytes) {
  for (std::size_t t = 0; t < view_.tensors.size(); ++t) {
    positions_.emplace(view_.tensors[t].key, t);
  }
}

Result<WeightReader> WeightReader::Open(const ModelSource& model, const std::string& naming,
                                        const layout::Choices& choices,
                                        std::uint64_t budget_bytes) {
  CKPT_ASSIGN_OR_RETURN(ModelView view, ViewModel(model, naming, choices, MixedDtypes::kWiden));
  return WeightReader(model, std::move(view), budget_bytes);
}

const TargetTensor* WeightReader::Find(std::string_view key) const {
  const auto found = positions_.find(key);
  return found == positions_.end() ? nullptr : &view_.tensors[found->second];
}

Status WeightReader::ReadRows(std::string_view key, std::int64_t begin, std::int64_t rows,
                              std::span<float> out) {
  const auto found = positions_.find(key);
  if (found == positions_.end()) {
    return Error(ErrorKind::kMissing, "the model has no such tensor").Tensor(key);
  }
  const TargetTensor& tensor = view_.tensors[found->second];
  const TensorRecipe& recipe = view_.recipes[found->second];
  Box box = {.offsets = Dims(tensor.shape.size(), 0), .sizes = tensor.shape};
  if (box.sizes.empty() || begin < 0 || rows < 0 || begin > box.sizes[0] - rows) {
    return Error(ErrorKind::kOutOfRange, "the tensor has no such rows")
        .Tensor(key)
        .Expected(FormatDims(tensor.shape))
        .Actual(fmt::format("rows {} to {}", begin, begin + rows));
  }
  box.offsets[0] = begin;
  box.sizes[0] = rows;
  if (static_cast<std::uint64_t>(NumElements(box.sizes)) != out.size()) {
    return Error(ErrorKind::kSizeMismatch, "rows of another size than the tensor's")
        .Tensor(key)
        .Expected(fmt::format("{} elements", NumElements(box.sizes)))
        .Actual(fmt::format("{}", out.size()));
  }
  if (!IsCastable(recipe.source_dtype)) {
    return Error(ErrorKind::kUnsupported, "weights of this dtype cannot be trained")
        .Tensor(key)
        .Actual(DTypeName(recipe.source_dtype));
  }
  if (std::exchange(current_, found->second) != found->second) reader_.Reset();
  const MutableByteSpan floats = std::as_writable_bytes(out);
  if (recipe.source_dtype == DType::kFloat32) return reader_.Read(recipe, box, floats);
  Bytes stored(out.size() * ElementBytes(recipe.source_dtype));
  CKPT_RETURN_IF_ERROR(reader_.Read(recipe, box, stored));
  CastElements(recipe.source_dtype, stored, DType::kFloat32, floats);
  return OkStatus();
}

}  // namespace ckpt
