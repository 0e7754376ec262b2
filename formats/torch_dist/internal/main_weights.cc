#include "formats/torch_dist/internal/main_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/base/bytes.h"
#include "core/base/checked_math.h"
#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/base/units.h"
#include "core/base/warning.h"
#include "core/checkpoint/index.h"
#include "core/checkpoint/read.h"
#include "core/tensor/box.h"
#include "core/tensor/cast.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"
#include "formats/torch_dist/internal/run_arguments.h"
#include "formats/torch_dist/internal/run_keys.h"

namespace ckpt::torch_dist {
namespace {

constexpr std::int64_t kComparedElems = 32;  // at either end
constexpr std::int64_t kComparedRows = 64;   // where the order is asked
constexpr std::size_t kMostPairs = 4096;
constexpr std::size_t kMostNamed = 8;
// What may be read of them: a conversion reads everything anyway, a run that goes on waits for it.
constexpr std::uint64_t kReadBytes = kGiB;
constexpr std::uint64_t kReadShare = 16;
constexpr std::uint64_t kReadBytesToResume = 64 * kMiB;

std::uint64_t AddOrMost(std::uint64_t a, std::uint64_t b) {
  std::uint64_t sum = 0;
  return CheckedAdd(a, b, &sum) ? sum : std::numeric_limits<std::uint64_t>::max();
}

// A weight and its exact value, of the same shape, and what is compared of both.
struct WeightPair {
  const GlobalTensor* exact = nullptr;
  const GlobalTensor* weight = nullptr;
  std::vector<Box> boxes = {};
  std::uint64_t read_bytes = 0;  // for the boxes
};

// Of the first row and of the last.
std::vector<Box> ComparedBoxes(DimsView shape) {
  Box first = WholeBox(shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    const bool is_last = d + 1 == shape.size();
    first.sizes[d] = std::min(shape[d], is_last ? kComparedElems : 1);
  }
  Box last = first;
  for (std::size_t d = 0; d < shape.size(); ++d) last.offsets[d] = shape[d] - last.sizes[d];
  if (first == last) return {first};
  return {first, last};
}

// What is read for the boxes: items with a checksum whole.
std::uint64_t ReadBytes(const CheckpointSource& source, const GlobalTensor& tensor,
                        const std::vector<Box>& boxes) {
  const CheckpointIndex& index = source.index();
  std::uint64_t bytes = 0;
  if (source.protection() == Protection::kNone) {
    for (const Box& box : boxes) bytes += NumBytes(box.sizes, tensor.dtype);
    return bytes;
  }
  for (const Chunk& chunk : index.chunks(tensor)) {
    const BoxView stored(index.offsets(chunk), index.sizes(chunk));
    const auto is_part = [&](const Box& box) { return Intersect(stored, box).has_value(); };
    if (std::ranges::any_of(boxes, is_part)) bytes = AddOrMost(bytes, chunk.size_bytes);
  }
  return bytes;
}

bool IsBesideScales(const CheckpointIndex& index, const std::string& weight_key) {
  return index.FindTensor(weight_key + "_scale") != nullptr ||
         index.FindTensor(weight_key + "_scale_inv") != nullptr;
}

bool AreComparable(const CheckpointIndex& index, const GlobalTensor& exact,
                   const GlobalTensor& weight) {
  const bool is_rounded = weight.dtype == DType::kBfloat16 || weight.dtype == DType::kFloat16 ||
                          weight.dtype == DType::kFloat32;
  return is_rounded && exact.dtype == DType::kFloat32 && exact.shape == weight.shape &&
         std::ranges::find(exact.shape, 0) == exact.shape.end() &&
         index.CheckDeliverable(exact.key).ok() && index.CheckDeliverable(weight.key).ok() &&
         !IsBesideScales(index, weight.key);
}

std::vector<WeightPair> ComparablePairs(const CheckpointSource& source,
                                        const std::map<std::string, std::string>& main_weights) {
  const CheckpointIndex& index = source.index();
  std::vector<WeightPair> pairs;
  for (const auto& [key, weight_key] : main_weights) {
    const GlobalTensor* const exact = index.FindTensor(key);
    const GlobalTensor* const weight = index.FindTensor(weight_key);
    if (exact == nullptr || weight == nullptr || !AreComparable(index, *exact, *weight)) continue;
    WeightPair pair = {.exact = exact, .weight = weight, .boxes = ComparedBoxes(exact->shape)};
    pair.read_bytes =
        AddOrMost(ReadBytes(source, *exact, pair.boxes), ReadBytes(source, *weight, pair.boxes));
    pairs.push_back(std::move(pair));
  }
  return pairs;
}

// Megatron has been seen to store this one wrong: a conversion compares it, whatever it costs.
bool IsAlwaysCompared(const WeightPair& pair, RunDetail detail) {
  return detail == RunDetail::kWhole && pair.weight->key == kEmbeddingKey;
}

// In the order in which they are compared. Those of equal size, such as experts, have none of their
// own, so that a part of them is of all layers.
void SortByCost(std::vector<WeightPair>& pairs, RunDetail detail) {
  const auto place = [&](const WeightPair& pair) {
    const std::string_view key = pair.weight->key;
    return std::tuple(!IsAlwaysCompared(pair, detail), pair.read_bytes, Crc32c(AsBytes(key)), key);
  };
  std::ranges::sort(pairs, {}, place);
}

// What may be read of the pairs.
std::uint64_t Budget(const std::vector<WeightPair>& pairs, RunDetail detail) {
  if (detail != RunDetail::kWhole) return kReadBytesToResume;
  std::uint64_t bytes = 0;
  for (const WeightPair& pair : pairs) {
    for (const GlobalTensor* const tensor : {pair.exact, pair.weight}) {
      bytes = AddOrMost(bytes, NumBytes(tensor->shape, tensor->dtype));
    }
  }
  return std::max(kReadBytes, bytes / kReadShare);
}

// The elements of all boxes. The item that holds several is opened once.
Result<Bytes> ReadBoxes(const CheckpointSource& source, const GlobalTensor& tensor,
                        const std::vector<Box>& boxes) {
  Gatherer gatherer(Gatherer::ScratchBytes(0));
  LocatedChunks chunks(source, kMiB);
  TensorReader reader(tensor, gatherer, chunks);
  Bytes elements;
  for (const Box& box : boxes) {
    const std::size_t size = elements.size();
    elements.resize(size + NumBytes(box.sizes, tensor.dtype));
    CKPT_RETURN_IF_ERROR(reader.Read(box, MutableByteSpan(elements).subspan(size)));
  }
  return elements;
}

Bytes Cast(DType from, Bytes elements, DType to) {
  if (from == to) return elements;
  Bytes cast(elements.size() / ElementBytes(from) * ElementBytes(to));
  CastElements(from, elements, to, cast);
  return cast;
}

// float32 has every value of the dtypes that are compared.
std::vector<float> NumbersOf(DType dtype, Bytes elements) {
  const Bytes wide = Cast(dtype, std::move(elements), DType::kFloat32);
  std::vector<float> numbers(wide.size() / sizeof(float));
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = LoadLe<float>(wide.data() + i * sizeof(float));
  }
  return numbers;
}

bool IsLowerHalf(float number) {
  return std::floor(number) == number && std::abs(number) <= float{1 << 15};
}
// Larger than any weight.
bool IsLarge(float number) { return std::abs(number) > 256; }

// Of one pair.
struct Difference {
  Dims index;
  float weight = 0;
  float rounded = 0;
};
struct Comparison {
  bool may_be_lower_halves = true;
  bool has_large = false;
  std::optional<Difference> first;
};

// `elem`: counted over the boxes, which are parts of rows.
Dims IndexOf(const std::vector<Box>& boxes, std::size_t elem) {
  const auto per_box = static_cast<std::size_t>(NumElements(boxes.front().sizes));
  Dims index = boxes[elem / per_box].offsets;
  if (!index.empty()) index.back() += static_cast<std::int64_t>(elem % per_box);
  return index;
}

// What float32 elements round to in `dtype`, if they were rounded to `before` first.
std::vector<float> Rounded(const Bytes& exact, DType before, DType dtype) {
  return NumbersOf(dtype, Cast(before, Cast(DType::kFloat32, exact, before), dtype));
}

// The first element at which two arrays differ; their size, if they are equal. NaN equals NaN.
std::size_t FirstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  const auto are_equal = [](float x, float y) {
    return x == y || (std::isnan(x) && std::isnan(y));
  };
  return static_cast<std::size_t>(std::ranges::mismatch(a, b, are_equal).in1 - a.begin());
}

Result<Comparison> Compare(const CheckpointSource& source, const WeightPair& pair) {
  const DType dtype = pair.weight->dtype;
  CKPT_ASSIGN_OR_RETURN(const Bytes exact, ReadBoxes(source, *pair.exact, pair.boxes));
  CKPT_ASSIGN_OR_RETURN(Bytes stored, ReadBoxes(source, *pair.weight, pair.boxes));
  const std::vector<float> weights = NumbersOf(dtype, std::move(stored));
  Comparison comparison;
  const std::vector<float> numbers = NumbersOf(DType::kFloat32, exact);
  comparison.may_be_lower_halves = std::ranges::all_of(numbers, &IsLowerHalf);
  comparison.has_large = std::ranges::any_of(numbers, &IsLarge);
  // A conversion to another dtype rounds the model's weights once more.
  for (const DType before : {DType::kBfloat16, DType::kFloat16}) {
    if (FirstDifference(weights, Rounded(exact, before, dtype)) == weights.size()) {
      return comparison;
    }
  }
  const std::vector<float> rounded = Rounded(exact, dtype, dtype);
  const std::size_t elem = FirstDifference(weights, rounded);
  if (elem == weights.size()) return comparison;
  comparison.first = {
      .index = IndexOf(pair.boxes, elem), .weight = weights[elem], .rounded = rounded[elem]};
  return comparison;
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

Problem RoundsToAnother(const std::string& key, const Difference& difference) {
  Problem warning = Warning(
      ErrorKind::kValueMismatch,
      "the exact value does not round to the weight; a run goes on with the exact value", {}, key);
  warning.expected = fmt::format("{} at {}", difference.weight, FormatDims(difference.index));
  warning.actual = fmt::format("{}", difference.rounded);
  warning.hint = kTakeWeightsAlone;
  return warning;
}

// `differences`: by the keys of exact weights.
std::vector<Problem> NameFirst(const std::map<std::string, Difference>& differences) {
  std::vector<Problem> warnings;
  for (const auto& [key, difference] : differences) {
    if (warnings.size() == kMostNamed) break;
    warnings.push_back(RoundsToAnother(key, difference));
  }
  if (differences.size() > kMostNamed) {
    Problem more = Warning(ErrorKind::kValueMismatch,
                           fmt::format("the exact values of {} more weights do not round to them",
                                       differences.size() - kMostNamed));
    more.hint = kTakeWeightsAlone;
    warnings.push_back(std::move(more));
  }
  return warnings;
}

}  // namespace

Result<std::vector<Problem>> CheckAreExact(const CheckpointSource& source,
                                           const std::map<std::string, std::string>& main_weights,
                                           RunDetail detail) {
  const CheckpointIndex& index = source.index();
  for (const auto& [key, weight_key] : main_weights) {
    const GlobalTensor* const exact = index.FindTensor(key);
    if (exact != nullptr && exact->dtype == DType::kInt16) return LowerHalf(key);
  }
  std::vector<WeightPair> pairs = ComparablePairs(source, main_weights);
  const std::uint64_t budget = Budget(pairs, detail);
  SortByCost(pairs, detail);
  if (pairs.size() > kMostPairs) pairs.resize(kMostPairs);

  std::map<std::string, Difference> differences;
  std::optional<std::string> lower_half;  // the first that is no bfloat16's exact value
  bool may_be_lower_halves = true;
  std::uint64_t read = 0;
  for (const WeightPair& pair : pairs) {
    if (!IsAlwaysCompared(pair, detail)) {
      const std::uint64_t with_pair = AddOrMost(read, pair.read_bytes);
      if (with_pair > budget) continue;
      read = with_pair;
    }
    const Result<Comparison> compared = Compare(source, pair);
    if (!compared.ok()) continue;
    const bool is_bf16 = pair.weight->dtype == DType::kBfloat16;
    if (is_bf16 && !compared->may_be_lower_halves) may_be_lower_halves = false;
    if (!compared->first) continue;
    const bool is_lower_half = is_bf16 && compared->may_be_lower_halves && compared->has_large;
    if (is_lower_half) return LowerHalf(pair.exact->key);
    if (is_bf16 && !lower_half) lower_half = pair.exact->key;
    differences.emplace(pair.exact->key, *compared->first);
  }
  if (lower_half && may_be_lower_halves) return LowerHalf(*lower_half);
  return NameFirst(differences);
}

Result<std::optional<bool>> AreTransposed(const CheckpointSource& source, const GlobalTensor& exact,
                                          const GlobalTensor& weight) {
  constexpr std::optional<bool> kNotTold = std::nullopt;
  const std::size_t ndim = exact.shape.size();
  const bool are_square = ndim >= 2 && exact.shape[ndim - 1] == exact.shape[ndim - 2];
  if (!are_square || !AreComparable(source.index(), exact, weight)) return kNotTold;
  const auto rows = static_cast<std::size_t>(std::min(exact.shape.back(), kComparedRows));
  Box box = WholeBox(exact.shape);
  for (std::size_t d = 0; d < ndim; ++d) {
    box.sizes[d] = d + 2 < ndim ? 1 : static_cast<std::int64_t>(rows);
  }
  std::vector<float> numbers;
  std::vector<float> weights;
  for (const auto& [tensor, into] : {std::pair(&exact, &numbers), std::pair(&weight, &weights)}) {
    Result<Bytes> elements = ReadBoxes(source, *tensor, {box});
    if (!elements.ok() && IsUnread(elements.status().kind())) return elements.status();
    if (!elements.ok()) return kNotTold;
    *into = NumbersOf(tensor->dtype, *std::move(elements));
  }
  double as_stored = 0;
  double transposed = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    for (std::size_t column = 0; column < rows; ++column) {
      const double of_weight = weights[row * rows + column];
      as_stored += std::abs(of_weight - numbers[row * rows + column]);
      transposed += std::abs(of_weight - numbers[column * rows + row]);
    }
  }
  // Weights are rounded, to as few as 4 bits: the order that is right is much nearer.
  constexpr double kMuch = 4;
  if (as_stored * kMuch < transposed) return std::optional(false);
  if (transposed * kMuch < as_stored) return std::optional(true);
  return kNotTold;
}

bool RoundToWeights(const layout::Configuration& args) {
  constexpr std::array<std::string_view, 4> kNarrow = {"fp8_param", "fp8_param_gather", "fp4_param",
                                                       "fp4_param_gather"};
  const RunArguments arguments(args);
  const layout::Value* const kept = arguments.Find("main_params_dtype");
  const bool keeps_half =
      kept != nullptr && (*kept == layout::Value("float16") || *kept == layout::Value("fp16"));
  return !keeps_half && std::ranges::none_of(
                            kNarrow, [&](std::string_view name) { return arguments.IsTrue(name); });
}

}  // namespace ckpt::torch_dist
