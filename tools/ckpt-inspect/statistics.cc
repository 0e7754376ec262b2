#include "tools/ckpt-inspect/statistics.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/json/json_writer.h"
#include "tools/ckpt-inspect/element.h"

namespace ckpt::inspect {

void Statistics::Add(ByteSpan elements) {
  const std::uint64_t step = ElementBytes(dtype_);
  for (std::uint64_t at = 0; at < elements.size(); at += step) {
    const ElementParts parts = DecodeElement(dtype_, elements.data() + at);
    bool has_nan = false;
    bool has_inf = false;
    for (int i = 0; i < parts.count; ++i) {
      const long double value = parts.values[static_cast<std::size_t>(i)];
      has_nan = has_nan || std::isnan(value);
      has_inf = has_inf || std::isinf(value);
      if (!std::isfinite(value)) continue;
      min_ = num_finite_ == 0 ? value : std::min(min_, value);
      max_ = num_finite_ == 0 ? value : std::max(max_, value);
      sum_ += value;
      ++num_finite_;
    }
    num_nan_ += has_nan ? 1 : 0;
    num_inf_ += has_inf ? 1 : 0;
  }
}

std::string Statistics::Json() const {
  const bool has_values = num_finite_ > 0 && IsReal(dtype_);
  std::string min = "null";
  std::string max = "null";
  std::string mean = "null";
  if (has_values) {
    min.clear();
    max.clear();
    mean.clear();
    AppendNumber(dtype_, min_, min);
    AppendNumber(dtype_, max_, max);
    AppendNumber(DType::kFloat64, sum_ / static_cast<long double>(num_finite_), mean);
  }
  JsonWriter json;
  json.BeginObject();
  json.Key("min").Raw(min).Key("max").Raw(max).Key("mean").Raw(mean);
  json.Key("nan").Int(num_nan_).Key("inf").Int(num_inf_);
  json.End();
  return json.Take();
}

}  // namespace ckpt::inspect
