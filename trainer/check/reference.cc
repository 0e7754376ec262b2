#include "trainer/check/reference.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/checkpoint/read.h"
#include "core/tensor/cast.h"

namespace ckpt::train {
namespace {

constexpr std::uint64_t kIdsBudgetBytes = std::uint64_t{16} << 20;
constexpr std::int32_t kNotCounted = -100;

std::int64_t IdAt(DType dtype, ByteSpan bytes, std::size_t index) {
  if (dtype == DType::kInt64) {
    std::int64_t id = 0;
    std::memcpy(&id, bytes.data() + index * sizeof id, sizeof id);
    return id;
  }
  std::int32_t id = 0;
  std::memcpy(&id, bytes.data() + index * sizeof id, sizeof id);
  return id;
}

}  // namespace

Result<Reference> Reference::Open(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(OpenedCheckpoint checkpoint, OpenCheckpoint(storage, path));
  Reference reference(std::move(checkpoint));
  for (const GlobalTensor& tensor : reference.checkpoint_->source->index().tensors()) {
    if (!tensor.key.starts_with(kGradientPrefix)) continue;
    reference.gradients_.push_back(tensor.key.substr(kGradientPrefix.size()));
  }
  if (!reference.Has("loss") && !reference.Has("logits") && reference.gradients_.empty()) {
    return Error(ErrorKind::kMissing, "the reference has nothing to compare")
        .File(path.string())
        .Expected("loss, logits or grad.<parameter>");
  }
  Status status = reference.ReadBatch();
  if (!status.ok()) return std::move(status).File(path.string());
  return reference;
}

const GlobalTensor* Reference::Find(std::string_view key) const {
  return checkpoint_->source->index().FindTensor(key);
}

const Dims* Reference::FindShape(std::string_view key) const {
  const GlobalTensor* const tensor = Find(key);
  return tensor == nullptr ? nullptr : &tensor->shape;
}

Result<std::vector<std::int32_t>> Reference::ReadIds(std::string_view key, Dims& shape) const {
  const GlobalTensor* const tensor = Find(key);
  if (tensor == nullptr) {
    return Error(ErrorKind::kMissing, "the reference has no batch").Tensor(key);
  }
  if (tensor->dtype != DType::kInt64 && tensor->dtype != DType::kInt32) {
    return Error(ErrorKind::kDtypeMismatch, "tokens are integers")
        .Tensor(key)
        .Expected("int64 or int32")
        .Actual(DTypeName(tensor->dtype));
  }
  if (tensor->shape.size() != 2 || NumElements(tensor->shape) == 0) {
    return Error(ErrorKind::kShapeMismatch, "a batch is [sequences, tokens]")
        .Tensor(key)
        .Actual(FormatDims(tensor->shape));
  }
  shape = tensor->shape;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(NumElements(shape)));
  Bytes bytes(ids.size() * ElementBytes(tensor->dtype));
  CKPT_RETURN_IF_ERROR(
      ReadBox(*checkpoint_->source, *tensor, WholeBox(shape), bytes, kIdsBudgetBytes));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::int64_t id = IdAt(tensor->dtype, bytes, i);
    // All negative labels mean that the token is not counted.
    if (id > std::numeric_limits<std::int32_t>::max()) {
      return Error(ErrorKind::kOutOfRange, "the token is larger than any vocabulary")
          .Tensor(key)
          .Actual(fmt::format("{}", id));
    }
    ids[i] = id < 0 ? kNotCounted : static_cast<std::int32_t>(id);
  }
  return ids;
}

Status Reference::ReadBatch() {
  Dims shape;
  Dims label_shape;
  CKPT_ASSIGN_OR_RETURN(batch_.tokens, ReadIds("input_ids", shape));
  CKPT_ASSIGN_OR_RETURN(batch_.labels, ReadIds("labels", label_shape));
  if (shape != label_shape) {
    return Error(ErrorKind::kShapeMismatch, "every token needs a label")
        .Tensor("labels")
        .Expected(FormatDims(shape))
        .Actual(FormatDims(label_shape));
  }
  batch_.batch = shape[0];
  batch_.seq = shape[1];
  return OkStatus();
}

Status Reference::CheckVocabulary(std::int64_t vocab_size) const {
  const auto check = [&](std::string_view key, const std::vector<std::int32_t>& ids,
                         bool may_be_negative) {
    const auto [low, high] = std::ranges::minmax(ids);
    if (high < vocab_size && (may_be_negative || low >= 0)) return OkStatus();
    return Error(ErrorKind::kOutOfRange, "the model's vocabulary has no such token")
        .File(path().string())
        .Tensor(key)
        .Expected(fmt::format("0 to {}", vocab_size - 1))
        .Actual(high < vocab_size ? "a negative one" : fmt::format("{}", high));
  };
  Status status = check("input_ids", batch_.tokens, false);
  status.Add(check("labels", batch_.labels, true));
  return status;
}

trainer::HostMicroBatch Reference::Sequences(std::int64_t begin, std::int64_t count) const {
  const auto slice = [&](const std::vector<std::int32_t>& ids) {
    const auto first = ids.begin() + begin * seq();
    return std::vector<std::int32_t>(first, first + count * seq());
  };
  trainer::HostMicroBatch sequences = {
      .tokens = slice(batch_.tokens), .labels = slice(batch_.labels), .batch = count, .seq = seq()};
  for (std::int64_t s = 0; s < count; ++s) {
    const auto first = sequences.labels.begin() + s * seq();
    std::shift_left(first, first + seq(), 1);
    *(first + seq() - 1) = kNotCounted;
  }
  return sequences;
}

Result<std::vector<double>> Reference::Read(std::string_view key,
                                            std::uint64_t budget_bytes) const {
  const GlobalTensor* const tensor = Find(key);
  if (tensor == nullptr) {
    return Error(ErrorKind::kMissing, "the reference has no such tensor")
        .File(path().string())
        .Tensor(key);
  }
  if (!IsCastable(tensor->dtype)) {
    return Error(ErrorKind::kUnsupported, "only floating-point tensors can be compared")
        .File(path().string())
        .Tensor(key)
        .Actual(DTypeName(tensor->dtype));
  }
  std::vector<double> values(static_cast<std::size_t>(NumElements(tensor->shape)));
  Bytes bytes(values.size() * ElementBytes(tensor->dtype));
  CKPT_RETURN_IF_ERROR(
      ReadBox(*checkpoint_->source, *tensor, WholeBox(tensor->shape), bytes, budget_bytes));
  CastElements(tensor->dtype, bytes, DType::kFloat64, std::as_writable_bytes(std::span(values)));
  return values;
}

}  // namespace ckpt::train
