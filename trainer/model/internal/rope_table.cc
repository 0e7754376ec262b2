#include "trainer/model/internal/rope_table.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <utility>

#include "core/base/result.h"

namespace ckpt::trainer {
namespace {

// Long waves, which turn less than low_freq_factor times over the original context, are slowed down
// by the whole factor. Short waves, which turn more than high_freq_factor times, keep their
// frequency. Waves between them are interpolated.
template <typename Real>
Real Llama3Frequency(const RopeConfig& rope, Real frequency) {
  const auto factor = static_cast<Real>(rope.factor);
  const auto low = static_cast<Real>(rope.low_freq_factor);
  const auto high = static_cast<Real>(rope.high_freq_factor);
  const auto original = static_cast<Real>(rope.original_max_positions);
  const Real wavelength = 2 * std::numbers::pi_v<Real> / frequency;
  if (wavelength < original / high) return frequency;
  if (wavelength > original / low) return frequency / factor;
  const Real smooth = (original / wavelength - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

// Peng, Quesnelle, Fan, Shippole: "YaRN: Efficient Context Window Extension of Large Language
// Models", section 3.2.
class YarnRamp {
 public:
  YarnRamp(const RopeConfig& rope, std::int64_t dim) {
    // The pair that makes `turns` turns over the original context.
    const auto pair_of = [&](double turns) {
      return static_cast<double>(dim) *
             std::log(rope.original_max_positions / (turns * 2 * std::numbers::pi)) /
             (2 * std::log(rope.base));
    };
    low_ = pair_of(rope.beta_fast);
    high_ = pair_of(rope.beta_slow);
    if (rope.truncate) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, static_cast<double>(dim - 1));
    if (low_ == high_) high_ += 0.001;
  }

  // 0: the pair keeps its frequency; 1: it is slowed down by the whole factor.
  template <typename Real>
  [[nodiscard]] Real At(std::int64_t pair) const {
    const Real ramp =
        (static_cast<Real>(pair) - static_cast<Real>(low_)) / static_cast<Real>(high_ - low_);
    return std::clamp(ramp, Real{0}, Real{1});
  }

 private:
  double low_ = 0;
  double high_ = 0;
};

}  // namespace

template <typename Real>
std::vector<Real> RopeFrequencies(const RopeConfig& rope, std::int64_t dim) {
  const auto factor = static_cast<Real>(rope.factor);
  std::vector<Real> frequencies(static_cast<std::size_t>(dim / 2));
  for (std::int64_t pair = 0; pair < dim / 2; ++pair) {
    const Real exponent = static_cast<Real>(2 * pair) / static_cast<Real>(dim);
    const Real slowness = std::pow(static_cast<Real>(rope.base), exponent);
    Real frequency = 1 / slowness;
    switch (rope.scaling) {
      case RopeScaling::kNone:
        break;
      case RopeScaling::kLinear:
        frequency /= factor;
        break;
      case RopeScaling::kLlama3:
        frequency = Llama3Frequency(rope, frequency);
        break;
      case RopeScaling::kYarn: {
        const Real ramp = YarnRamp(rope, dim).At<Real>(pair);
        frequency = 1 / (factor * slowness) * ramp + frequency * (1 - ramp);
        break;
      }
    }
    frequencies[static_cast<std::size_t>(pair)] = frequency;
  }
  return frequencies;
}

template std::vector<float> RopeFrequencies<float>(const RopeConfig&, std::int64_t);
template std::vector<double> RopeFrequencies<double>(const RopeConfig&, std::int64_t);

template <typename Real>
std::vector<std::byte> RopeTable::Compute(std::int64_t num_positions) const {
  const std::vector<Real> frequencies = RopeFrequencies<Real>(rope_, dim_);
  const auto factor = static_cast<Real>(rope_.attention_factor);
  std::vector<Real> values;
  values.reserve(2 * static_cast<std::size_t>(num_positions) * frequencies.size());
  for (const bool is_sine : {false, true}) {
    for (std::int64_t position = 0; position < num_positions; ++position) {
      for (const Real frequency : frequencies) {
        const Real angle = static_cast<Real>(position) * frequency;
        values.push_back((is_sine ? std::sin(angle) : std::cos(angle)) * factor);
      }
    }
  }
  std::vector<std::byte> bytes(values.size() * sizeof(Real));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::int64_t RotatedElements(const ModelConfig& config) {
  if (config.mla) return config.mla->qk_pos_emb_head_dim;
  if (config.learned_positions > 0) return 0;
  return static_cast<std::int64_t>(static_cast<double>(config.kv_channels) * config.rope.percent);
}

Status RopeTable::Prepare(Device& device, Queue& queue, DType dtype, std::int64_t seq) {
  if (seq > num_positions_ || dtype != cosine_.dtype) {
    const std::vector<std::byte> values =
        dtype == DType::kFloat64 ? Compute<double>(seq) : Compute<float>(seq);
    CKPT_ASSIGN_OR_RETURN(Buffer buffer, device.Allocate(values.size(), MemoryUse::kOther));
    const Tensor all(buffer.data(), dtype, {2 * seq, dim_ / 2});
    device.CopyFromHost(queue, values.data(), all);
    CKPT_RETURN_IF_ERROR(queue.Synchronize());  // no work uses the old table or `values` now
    buffer_ = std::move(buffer);
    num_positions_ = seq;
  }
  const Tensor all(buffer_.data(), dtype, {2 * num_positions_, dim_ / 2});
  cosine_ = all.Rows(0, seq);
  sine_ = all.Rows(num_positions_, seq);
  return OkStatus();
}

}  // namespace ckpt::trainer
