#include "tools/ckpt-inspect/element_diff.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "core/base/endian.h"
#include "core/base/widest_vectors.h"
#include "core/tensor/cast.h"
#include "tools/ckpt-inspect/element.h"

namespace ckpt::inspect {
namespace {

// An equal stripe costs one comparison of memory. The doubles of a stripe stay in the cache.
constexpr std::int64_t kStripeElements = 4096;
constexpr std::size_t kNumBytes = 256;

bool IsByte(DType dtype) { return ElementBytes(dtype) == 1 && dtype != DType::kFloat4E2m1fnX2; }

bool IsShortInteger(DType dtype) { return IsInteger(dtype) && ElementBytes(dtype) <= 4; }

template <typename T>
void LoadIntegers(ByteSpan elements, std::vector<double>& values) {
  for (std::size_t i = 0; i < elements.size() / sizeof(T); ++i) {
    values[i] = static_cast<double>(LoadLe<T>(elements.data() + i * sizeof(T)));
  }
}

// What one pass over a stripe finds.
struct StripeTotals {
  std::int64_t differing = 0;
  std::int64_t nan = 0;
  double largest = 0;
};

// Whether two numbers that are not the same are equal under the tolerance.
template <typename T>
bool IsWithin(T difference, T magnitude, const Tolerance& tolerance) {
  return !tolerance.exact && difference <= tolerance.absolute + tolerance.relative * magnitude &&
         difference < std::numeric_limits<T>::infinity();
}

// `is_same(i)`: whether elements i are the same, before the tolerance.
template <typename IsSame>
StripeTotals AddUp(std::span<const double> a, std::span<const double> b, const Tolerance& tolerance,
                   const IsSame& is_same) {
  StripeTotals totals;
  WithWidestVectors([&] {
    std::int64_t differing = 0;
    std::int64_t nan = 0;
    double largest = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double difference = std::fabs(a[i] - b[i]);
      const bool is_other = !is_same(i);
      const bool is_far = !IsWithin(difference, std::fabs(b[i]), tolerance);
      const bool differs = is_other & is_far;
      const bool is_nan = difference != difference;
      differing += differs ? 1 : 0;
      nan += (differs & is_nan) ? 1 : 0;
      largest = (differs & (difference > largest)) ? difference : largest;
    }
    totals = {.differing = differing, .nan = nan, .largest = largest};
  });
  return totals;
}

template <typename T>
StripeTotals AddUpBits(ByteSpan a, ByteSpan b, std::span<const double> values_a,
                       std::span<const double> values_b, const Tolerance& tolerance) {
  return AddUp(values_a, values_b, tolerance, [a = a.data(), b = b.data()](std::size_t i) {
    return LoadLe<T>(a + i * sizeof(T)) == LoadLe<T>(b + i * sizeof(T));
  });
}

long double Size(const ElementParts& parts, bool is_complex) {
  const long double first = std::fabs(parts.values[0]);
  if (parts.count == 1) return first;
  const long double second = std::fabs(parts.values[1]);
  if (is_complex) return std::hypot(first, second);
  return std::isnan(first) || std::isnan(second) ? std::nanl("") : std::max(first, second);
}

}  // namespace

ElementComparer::Doubles::Doubles(DType d)
    : dtype(d), can_hold(IsCastable(d) || IsShortInteger(d) || IsByte(d)) {
  if (!IsByte(dtype)) return;
  for (std::size_t byte = 0; byte < kNumBytes; ++byte) {
    const auto element = static_cast<std::byte>(byte);
    of_byte.push_back(static_cast<double>(DecodeElement(dtype, &element).values[0]));
  }
}

void ElementComparer::Doubles::Load(ByteSpan elements) {
  values.resize(kStripeElements);
  if (!of_byte.empty()) {
    std::transform(elements.begin(), elements.end(), values.begin(),
                   [&](std::byte byte) { return of_byte[std::to_integer<std::size_t>(byte)]; });
    return;
  }
  switch (dtype) {
    case DType::kUint16:
      return LoadIntegers<std::uint16_t>(elements, values);
    case DType::kInt16:
      return LoadIntegers<std::int16_t>(elements, values);
    case DType::kUint32:
      return LoadIntegers<std::uint32_t>(elements, values);
    case DType::kInt32:
      return LoadIntegers<std::int32_t>(elements, values);
    default:
      break;
  }
  const std::size_t bytes = elements.size() / ElementBytes(dtype) * sizeof(double);
  CastElements(dtype, elements, DType::kFloat64,
               std::as_writable_bytes(std::span(values)).first(bytes));
}

ElementComparer::ElementComparer(DType a, DType b, const Tolerance& tolerance)
    : tolerance_(tolerance), a_(a), b_(b) {}

void ElementComparer::SetFirst(const std::byte* a, const std::byte* b, std::int64_t position) {
  diff_.first.emplace();
  diff_.first->position = position;
  std::memcpy(diff_.first->a.data(), a, ElementBytes(a_.dtype));
  std::memcpy(diff_.first->b.data(), b, ElementBytes(b_.dtype));
}

// An element of a dtype that doubles cannot hold.
void ElementComparer::AddOne(const std::byte* a, const std::byte* b, std::int64_t position) {
  const bool has_same_dtype = a_.dtype == b_.dtype;
  if (has_same_dtype && std::memcmp(a, b, ElementBytes(a_.dtype)) == 0) return;
  const ElementParts x = DecodeElement(a_.dtype, a);
  const ElementParts y = DecodeElement(b_.dtype, b);
  // A part that one of them lacks is zero in it.
  const ElementParts difference = {.values = {x.values[0] - y.values[0], x.values[1] - y.values[1]},
                                   .count = std::max(x.count, y.count)};
  if (!has_same_dtype && x.values == y.values) return;
  const bool is_complex = !IsReal(a_.dtype) || !IsReal(b_.dtype);
  const long double distance = Size(difference, is_complex);
  if (IsWithin(distance, Size(y, is_complex), tolerance_)) return;
  ++diff_.num_differing;
  if (!diff_.first) SetFirst(a, b, position);
  if (std::isnan(distance)) {
    ++diff_.num_nan;
  } else {
    diff_.max_abs = std::max(diff_.max_abs.value_or(0), distance);
  }
}

// One loop that is computed by vectors: often most elements differ.
void ElementComparer::AddDoubles(ByteSpan a, ByteSpan b, std::int64_t count) {
  a_.Load(a);
  b_.Load(b);
  const auto values_a = std::span<const double>(a_.values).first(static_cast<std::size_t>(count));
  const auto values_b = std::span<const double>(b_.values).first(static_cast<std::size_t>(count));
  const std::uint64_t size_a = ElementBytes(a_.dtype);
  const std::uint64_t size_b = ElementBytes(b_.dtype);
  const auto is_same_number = [&](std::size_t i) { return values_a[i] == values_b[i]; };
  const StripeTotals totals =
      a_.dtype != b_.dtype ? AddUp(values_a, values_b, tolerance_, is_same_number)
      : size_a == 1        ? AddUpBits<std::uint8_t>(a, b, values_a, values_b, tolerance_)
      : size_a == 2        ? AddUpBits<std::uint16_t>(a, b, values_a, values_b, tolerance_)
      : size_a == 4        ? AddUpBits<std::uint32_t>(a, b, values_a, values_b, tolerance_)
                           : AddUpBits<std::uint64_t>(a, b, values_a, values_b, tolerance_);
  if (totals.differing == 0) return;
  diff_.num_differing += totals.differing;
  diff_.num_nan += totals.nan;
  if (totals.differing > totals.nan) {
    diff_.max_abs = std::max<long double>(diff_.max_abs.value_or(0), totals.largest);
  }
  for (std::size_t i = 0; !diff_.first; ++i) {
    const std::byte* const at_a = a.data() + i * size_a;
    const std::byte* const at_b = b.data() + i * size_b;
    const bool is_same =
        a_.dtype == b_.dtype ? std::memcmp(at_a, at_b, size_a) == 0 : is_same_number(i);
    const double difference = std::fabs(values_a[i] - values_b[i]);
    if (is_same || IsWithin(difference, std::fabs(values_b[i]), tolerance_)) continue;
    SetFirst(at_a, at_b, diff_.num_elements + static_cast<std::int64_t>(i));
  }
}

void ElementComparer::Add(ByteSpan a, ByteSpan b) {
  const std::uint64_t size_a = ElementBytes(a_.dtype);
  const std::uint64_t size_b = ElementBytes(b_.dtype);
  while (!a.empty()) {
    const auto count =
        std::min<std::int64_t>(kStripeElements, static_cast<std::int64_t>(a.size() / size_a));
    const ByteSpan part_a = a.first(static_cast<std::size_t>(count) * size_a);
    const ByteSpan part_b = b.first(static_cast<std::size_t>(count) * size_b);
    a = a.subspan(part_a.size());
    b = b.subspan(part_b.size());
    const bool is_equal =
        a_.dtype == b_.dtype && std::memcmp(part_a.data(), part_b.data(), part_a.size()) == 0;
    if (!is_equal && a_.can_hold && b_.can_hold) {
      AddDoubles(part_a, part_b, count);
    } else if (!is_equal) {
      for (std::int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        AddOne(part_a.data() + at * size_a, part_b.data() + at * size_b, diff_.num_elements + i);
      }
    }
    diff_.num_elements += count;
  }
}

}  // namespace ckpt::inspect
