// FullParams: a ParamAccess without sharding: every weight and gradient of the model is resident.
#ifndef CKPT_TESTS_TESTING_FULL_PARAMS_H_
#define CKPT_TESTS_TESTING_FULL_PARAMS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "tests/testing/device_values.h"
#include "trainer/device/device.h"
#include "trainer/ops/fixed_point.h"
#include "trainer/params/param_access.h"
#include "trainer/params/param_spec.h"

namespace ckpt::testing {

struct FullParamsOptions {
  DType weights = DType::kFloat32;
  DType gradients = DType::kFloat32;
  std::set<std::string> frozen = {};  // parameters without a gradient
};

// Checks the protocol of ParamAccess, too: weights are only used while they are acquired, and each
// unit's gradients are acquired and reduced once per micro-batch. Gradients are stored first, over
// what spoils every sum, and then added.
class FullParams final : public trainer::ParamAccess {
 public:
  using Tensor = trainer::Tensor;

  FullParams(trainer::Device& device, trainer::Queue& queue,
             const std::vector<trainer::UnitSpec>& units, const FullParamsOptions& options = {})
      : device_(device), queue_(queue) {
    for (const trainer::UnitSpec& spec : units) {
      Unit& unit = units_.emplace_back();
      StackMemory weight_stacks, gradient_stacks;
      for (const trainer::ParamSpec& param : spec.params) {
        unit.weights.push_back(Allocate(options.weights, param, spec, weight_stacks));
        weights_[param.name] = unit.weights.back();
        specs_[param.name] = param;
        unit.gradients.emplace_back();
        if (options.frozen.contains(param.name)) continue;
        unit.gradients.back().tensor = Allocate(options.gradients, param, spec, gradient_stacks);
        gradients_[param.name] = unit.gradients.back().tensor;
      }
    }
    ClearGradients();
  }

  void Prefetch(int unit) override { calls_.push_back("prefetch " + std::to_string(unit)); }
  std::span<const Tensor> Acquire(int unit) override {
    calls_.push_back("acquire " + std::to_string(unit));
    ++At(unit).num_users;
    return At(unit).weights;
  }
  void Release(int unit) override {
    calls_.push_back("release " + std::to_string(unit));
    CKPT_CHECK(At(unit).num_users-- > 0);
  }
  std::span<const trainer::Gradient> AcquireGradients(int unit) override {
    CKPT_CHECK(!At(unit).has_gradients_out);
    At(unit).has_gradients_out = true;
    return At(unit).gradients;
  }
  void ReduceGradients(int unit) override {
    calls_.push_back("reduce " + std::to_string(unit));
    CKPT_CHECK(At(unit).has_gradients_out);
    At(unit).has_gradients_out = false;
    for (trainer::Gradient& gradient : At(unit).gradients) {
      gradient.write = trainer::GradWrite::kAdd;
    }
  }

  // By name; `specs` and `gradients` list what there is.
  [[nodiscard]] const std::map<std::string, trainer::ParamSpec>& specs() const { return specs_; }
  [[nodiscard]] const std::map<std::string, Tensor>& gradients() const { return gradients_; }
  [[nodiscard]] const Tensor& weight(const std::string& name) const { return weights_.at(name); }
  // Every call since the last ClearCalls, "acquire 0".
  [[nodiscard]] const std::vector<std::string>& calls() const { return calls_; }
  void ClearCalls() { calls_.clear(); }
  [[nodiscard]] bool is_at_rest() const {
    for (const Unit& unit : units_) {
      if (unit.num_users != 0 || unit.has_gradients_out) return false;
    }
    return true;
  }

  [[nodiscard]] std::vector<double> ReadWeight(const std::string& name) const {
    return ReadValues(device_, queue_, weights_.at(name));
  }
  void WriteWeight(const std::string& name, const std::vector<double>& values) {
    WriteValues(device_, queue_, values, weights_.at(name));
  }
  [[nodiscard]] std::map<std::string, std::vector<double>> ReadGradients() const {
    std::map<std::string, std::vector<double>> values;
    for (const auto& [name, gradient] : gradients_) {
      values[name] = ReadValues(device_, queue_, gradient);
    }
    return values;
  }
  // The next micro-batch is the first of a step.
  void ClearGradients() {
    for (Unit& unit : units_) {
      for (trainer::Gradient& gradient : unit.gradients) {
        if (!gradient) continue;
        gradient.write = trainer::GradWrite::kStore;
        const double spoilt = gradient.tensor.dtype == DType::kInt64
                                  ? static_cast<double>(trainer::kFixedPointLimit)
                                  : std::numeric_limits<double>::quiet_NaN();
        WriteValues(
            device_, queue_,
            std::vector<double>(static_cast<std::size_t>(gradient.tensor.num_elems()), spoilt),
            gradient.tensor);
      }
    }
  }

 private:
  struct Unit {
    std::vector<Tensor> weights;
    std::vector<trainer::Gradient> gradients;
    int num_users = 0;
    bool has_gradients_out = false;
  };

  Unit& At(int unit) { return units_.at(static_cast<std::size_t>(unit)); }

  // What is left of the memory of a stack, by its name.
  using StackMemory = std::map<std::string, Tensor>;

  // Parameters of a stack lie behind one another.
  Tensor Allocate(DType dtype, const trainer::ParamSpec& param, const trainer::UnitSpec& unit,
                  StackMemory& stacks) {
    const std::int64_t elems = NumElements(param.shape);
    Tensor flat;
    if (param.stack.empty()) {
      flat = AllocateFlat(dtype, elems);
    } else {
      const auto count = std::ranges::count(unit.params, param.stack, &trainer::ParamSpec::stack);
      const auto [left, is_new] = stacks.try_emplace(param.stack);
      if (is_new) left->second = AllocateFlat(dtype, count * elems);
      flat = left->second.Rows(0, elems);
      left->second = left->second.Rows(elems, left->second.dim(0) - elems);
    }
    flat.ndim = static_cast<int>(param.shape.size());
    std::ranges::copy(param.shape, flat.dims.begin());
    return flat;
  }

  Tensor AllocateFlat(DType dtype, std::int64_t elems) {
    Result<trainer::Buffer> buffer = device_.Allocate(
        static_cast<std::uint64_t>(elems) * ElementBytes(dtype), trainer::MemoryUse::kWeights);
    CKPT_CHECK(buffer.ok());
    buffers_.push_back(std::move(*buffer));
    return {buffers_.back().data(), dtype, {elems}};
  }

  trainer::Device& device_;
  trainer::Queue& queue_;
  std::vector<trainer::Buffer> buffers_;
  std::vector<Unit> units_;
  std::map<std::string, trainer::ParamSpec> specs_;
  std::map<std::string, Tensor> weights_;
  std::map<std::string, Tensor> gradients_;
  std::vector<std::string> calls_;
};

// Weights large enough that every part of the model matters: matrices of standard deviation
// 1/√columns, norms around 1, biases around 0. The same for every dtype but for rounding.
inline void FillFromSeed(std::uint64_t seed, FullParams& params) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (const auto& [name, spec] : params.specs()) {
    const bool is_matrix = spec.shape.size() > 1;
    const double spread = is_matrix ? 1 / std::sqrt(static_cast<double>(spec.shape.back())) : 0.2;
    std::vector<double> values(static_cast<std::size_t>(NumElements(spec.shape)));
    for (double& value : values) value = spec.init.constant + spread * normal(random);
    params.WriteWeight(name, values);
  }
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TESTING_FULL_PARAMS_H_
