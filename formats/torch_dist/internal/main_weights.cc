#include "formats/torch_dist/internal/main_weights.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/endian.h"
#include "core/base/units.h"
#include "core/checkpoint/index.h"
#include "core/checkpoint/read.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "core/training/run_format.h"

namespace ckpt::torch_dist {
namespace {

constexpr int kComparedTensors = 8;
constexpr std::int64_t kComparedElems = 64;

// Elements of the tensor's first row.
Result<Bytes> FirstElements(const CheckpointSource& source, const GlobalTensor& tensor) {
  Box box = WholeBox(tensor.shape);
  for (std::size_t d = 0; d < box.sizes.size(); ++d) {
    const bool is_last = d + 1 == box.sizes.size();
    box.sizes[d] = std::min(box.sizes[d], is_last ? kComparedElems : 1);
  }
  Bytes elements(NumBytes(box.sizes, tensor.dtype));
  CKPT_RETURN_IF_ERROR(ReadBox(source, tensor, box, elements, kMiB));
  return elements;
}

bool IsLowerHalf(float number) {
  return std::floor(number) == number && std::abs(number) <= float{1 << 15};
}

// Whether they are halves, and not what they are called.
bool AreLowerHalves(ByteSpan exact, ByteSpan weights) {
  Bytes rounded(weights.size());
  CastElements(DType::kFloat32, exact, DType::kBfloat16, rounded);
  if (std::ranges::equal(rounded, weights)) return false;
  for (std::size_t at = 0; at < exact.size(); at += sizeof(float)) {
    if (!IsLowerHalf(LoadLe<float>(exact.data() + at))) return false;
  }
  return true;
}

Status LowerHalf(const std::string& key) {
  return Error(ErrorKind::kUnsupported,
               "the optimizer stored the lower halves of exact weights alone")
      .Tensor(key)
      .Expected("float32 that rounds to the weight")
      .Actual(
          "integers of 16 bits, as Transformer Engine keeps them with "
          "use_precision_aware_optimizer")
      .Hint(std::string(kTakeWeightsAlone));
}

}  // namespace

Status CheckAreExact(const CheckpointSource& source,
                     const std::map<std::string, std::string>& main_weights) {
  int compared = 0;
  for (const auto& [key, weight_key] : main_weights) {
    const GlobalTensor* const exact = source.index().FindTensor(key);
    const GlobalTensor* const weight = source.index().FindTensor(weight_key);
    if (exact != nullptr && exact->dtype == DType::kInt16) return LowerHalf(key);
    const bool is_comparable = exact != nullptr && weight != nullptr &&
                               exact->dtype == DType::kFloat32 &&
                               weight->dtype == DType::kBfloat16 && exact->shape == weight->shape;
    if (!is_comparable) continue;
    CKPT_ASSIGN_OR_RETURN(const Bytes exact_bytes, FirstElements(source, *exact));
    CKPT_ASSIGN_OR_RETURN(const Bytes weight_bytes, FirstElements(source, *weight));
    if (AreLowerHalves(exact_bytes, weight_bytes)) return LowerHalf(key);
    if (++compared == kComparedTensors) break;
  }
  return OkStatus();
}

}  // namespace ckpt::torch_dist
