#include "formats/torch_save/internal/array_digest.h"

#include <utility>

#include "core/base/units.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/read.h"

namespace ckpt::torch_save {
namespace {

constexpr std::uint64_t kDigestBudgetBytes = 4 * kMiB;

// Shows one array as a checkpoint with one tensor, so that the reader of strided chunks can read
// it.
class ArraySource final : public CheckpointSource {
 public:
  static Result<ArraySource> Make(const StoredArray& array, DimsView shape) {
    IndexBuilder builder;
    const Dims dims(shape.begin(), shape.end());
    builder.AddTensor("", array.dtype, dims);
    builder.AddChunk(WholeBox(dims), builder.AddFile(""), builder.AddEncoding(""), 0, 0);
    CKPT_ASSIGN_OR_RETURN(CheckpointIndex index, builder.Build());
    return ArraySource(array, std::move(index));
  }

  [[nodiscard]] const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor& /*t*/, const Chunk& /*c*/) const override {
    return *array_;
  }
  Result<RenderedObject> ReadObject(const ObjectEntry& /*object*/) const override {
    return Error(ErrorKind::kNotFound, "there are no objects");
  }
  Result<std::uint64_t> FileSize(FileId /*file*/) const override {
    return array_->file->size_bytes();
  }
  [[nodiscard]] Protection protection() const override { return Protection::kNone; }

 private:
  ArraySource(const StoredArray& array, CheckpointIndex index)
      : array_(&array), index_(std::move(index)) {}

  const StoredArray* array_;
  CheckpointIndex index_;
};

}  // namespace

Result<std::string> DigestArray(const StoredArray& array, DimsView shape, HashAlgorithm algorithm) {
  CKPT_ASSIGN_OR_RETURN(const ArraySource source, ArraySource::Make(array, shape));
  return DigestTensor(source, source.index().tensors().front(), algorithm, kDigestBudgetBytes);
}

Result<std::optional<double>> NumberIn(const StoredArray& array, DimsView shape) {
  CKPT_ASSIGN_OR_RETURN(const ArraySource source, ArraySource::Make(array, shape));
  const GlobalTensor& tensor = source.index().tensors().front();
  if (!IsNumber(tensor)) return std::optional<double>();
  CKPT_ASSIGN_OR_RETURN(const double number, ReadStoredNumber(source, tensor));
  return std::optional(number);
}

}  // namespace ckpt::torch_save
