#include "formats/mp_rank/internal/rounded_copy.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/endian.h"
#include "core/checkpoint/lies_in_order.h"
#include "core/tensor/cast.h"
#include "core/tensor/shape.h"

namespace ckpt::mp_rank {
namespace {

using torch_save::RebuiltTensor;

constexpr std::int64_t kComparedElems = 16;

bool IsComparable(const RebuiltTensor& tensor) {
  const StoredArray& array = tensor.array;
  const bool is_exact = array.dtype == DType::kFloat32 || array.dtype == DType::kBfloat16 ||
                        array.dtype == DType::kFloat16;
  return is_exact && LiesInOrder(array, tensor.shape);
}

// Elements from `first` on.
Result<Bytes> ReadElements(const StoredArray& array, std::int64_t first, std::int64_t count) {
  const std::uint64_t element_bytes = ElementBytes(array.dtype);
  Bytes bytes(static_cast<std::uint64_t>(count) * element_bytes);
  CKPT_RETURN_IF_ERROR(array.file->ReadAt(
      array.offset_bytes + static_cast<std::uint64_t>(first) * element_bytes, bytes));
  return bytes;
}

Result<std::vector<float>> ReadNumbers(const StoredArray& array, std::int64_t first,
                                       std::int64_t count, DType rounded_to) {
  CKPT_ASSIGN_OR_RETURN(Bytes bytes, ReadElements(array, first, count));
  if (array.dtype != rounded_to) {
    Bytes rounded(static_cast<std::uint64_t>(count) * ElementBytes(rounded_to));
    CastElements(array.dtype, bytes, rounded_to, rounded);
    bytes = std::move(rounded);
  }
  Bytes wide(static_cast<std::uint64_t>(count) * sizeof(float));
  if (rounded_to == DType::kFloat32) {
    wide = std::move(bytes);
  } else {
    CastElements(rounded_to, bytes, DType::kFloat32, wide);
  }
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = LoadLe<float>(wide.data() + i * sizeof(float));
  }
  return numbers;
}

}  // namespace

Status CheckIsRounded(const RebuiltTensor& weight, const RebuiltTensor& exact) {
  const std::int64_t elems = NumElements(weight.shape);
  if (elems == 0 || !IsComparable(weight) || !IsComparable(exact)) return OkStatus();
  const std::int64_t count = std::min(elems, kComparedElems);
  for (const std::int64_t first : std::set<std::int64_t>{0, elems - count}) {
    const DType dtype = weight.array.dtype;
    CKPT_ASSIGN_OR_RETURN(const auto stored, ReadNumbers(weight.array, first, count, dtype));
    CKPT_ASSIGN_OR_RETURN(const auto rounded, ReadNumbers(exact.array, first, count, dtype));
    for (std::size_t i = 0; i < stored.size(); ++i) {
      const bool are_equal =
          stored[i] == rounded[i] || (std::isnan(stored[i]) && std::isnan(rounded[i]));
      if (are_equal) continue;
      return Error(ErrorKind::kValueMismatch,
                   "the weight is not what the optimizer's value of it rounds to")
          .Expected(
              fmt::format("{} as element {}", stored[i], first + static_cast<std::int64_t>(i)))
          .Actual(fmt::format("{}", rounded[i]));
    }
  }
  return OkStatus();
}

}  // namespace ckpt::mp_rank
