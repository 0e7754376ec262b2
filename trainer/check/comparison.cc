#include "trainer/check/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>

#include "converters/families/known_namings.h"
#include "core/exec/nest_reader.h"
#include "core/tensor/cast.h"

namespace ckpt::train {
namespace {

// A model's gradients under the names and in the shapes of its parameters at run time.
class RuntimeGradients {
 public:
  // Errors: kInternal and the like: the model's own names always match.
  static Result<RuntimeGradients> View(const ModelSource& model,
                                       std::vector<MemoryTensor> gradients) {
    auto opened = std::make_shared<OpenedCheckpoint>();
    CKPT_ASSIGN_OR_RETURN(opened->source, MakeMemorySource(std::move(gradients)));
    OpenModelOptions options;
    options.naming = kTrainerNaming;
    options.allow_missing = true;  // parameters without a gradient
    RuntimeGradients view;
    CKPT_ASSIGN_OR_RETURN(view.model_, MatchModel(opened, model.config, options));
    CKPT_ASSIGN_OR_RETURN(view.view_, ViewModel(view.model_, std::string(PublishedNaming().name),
                                                {{"expert_layout", "fused"}}));
    for (std::size_t t = 0; t < view.view_.tensors.size(); ++t) {
      view.positions_[view.view_.tensors[t].key] = t;
    }
    return view;
  }

  [[nodiscard]] const Dims* FindShape(const std::string& name) const {
    const auto found = positions_.find(name);
    return found == positions_.end() ? nullptr : &view_.tensors[found->second].shape;
  }
  // REQUIRES: FindShape knows it.
  [[nodiscard]] Result<std::vector<double>> Read(const std::string& name,
                                                 std::uint64_t budget_bytes) const {
    const std::size_t position = positions_.at(name);
    const Dims& shape = view_.tensors[position].shape;
    const auto elems = static_cast<std::size_t>(NumElements(shape));
    Bytes floats(elems * sizeof(float));
    NestReader reader(model_.source(), budget_bytes);
    CKPT_RETURN_IF_ERROR(reader.Read(view_.recipes[position], WholeBox(shape), floats));
    std::vector<double> values(elems);
    CastElements(DType::kFloat32, floats, DType::kFloat64,
                 std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  ModelSource model_;
  ModelView view_;
  std::map<std::string, std::size_t> positions_;
};

Status WrongShape(const Reference& reference, std::string_view key, const Dims& expected,
                  const Dims& actual) {
  return Error(ErrorKind::kShapeMismatch, "the shape in the reference differs from the model's")
      .File(reference.path().string())
      .Tensor(key)
      .Expected(FormatDims(expected))
      .Actual(FormatDims(actual));
}

Result<double> CompareLogits(const Reference& reference, const Computed& computed,
                             std::uint64_t budget_bytes) {
  const Dims shape = {reference.batch(), reference.seq(), computed.vocab_size};
  const Dims& stored = *reference.FindShape("logits");
  if (stored != shape) return WrongShape(reference, "logits", shape, stored);
  CKPT_ASSIGN_OR_RETURN(const std::vector<double> expected, reference.Read("logits", budget_bytes));
  std::vector<double> actual;
  actual.reserve(expected.size());
  for (auto row = computed.logits.begin(); row != computed.logits.end();
       row += computed.row_elems) {
    actual.insert(actual.end(), row, row + computed.vocab_size);
  }
  return Measure(expected, actual).Relative();
}

// Errors: kMissing, kShapeMismatch, all at once.
Status CheckNames(const Reference& reference, const RuntimeGradients& actual) {
  Status problems;
  for (const std::string& name : reference.gradients()) {
    const std::string key = std::string(kGradientPrefix) + name;
    const Dims* const shape = actual.FindShape(name);
    if (shape == nullptr) {
      problems.Add(Error(ErrorKind::kMissing, "the model has no such gradient")
                       .File(reference.path().string())
                       .Tensor(key));
    } else if (*reference.FindShape(key) != *shape) {
      problems.Add(WrongShape(reference, key, *shape, *reference.FindShape(key)));
    }
  }
  return problems;
}

}  // namespace

double Deviation::Relative() const { return difference == 0 ? 0 : difference / magnitude; }

double Deviation::RelativeInGradients(double largest) const {
  constexpr double kRoundedZero = 1e-6;
  constexpr double kScaleOfZeros = 1e-2;
  if (magnitude > kRoundedZero * largest) return Relative();
  return Deviation{.difference = difference, .magnitude = kScaleOfZeros * largest}.Relative();
}

Deviation Measure(std::span<const double> expected, std::span<const double> actual) {
  Deviation deviation;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!std::isfinite(expected[i]) || !std::isfinite(actual[i])) {
      deviation.difference = std::numeric_limits<double>::infinity();
      return deviation;
    }
    deviation.difference = std::max(deviation.difference, std::abs(actual[i] - expected[i]));
    deviation.magnitude = std::max(deviation.magnitude, std::abs(expected[i]));
  }
  return deviation;
}

std::vector<std::pair<std::string, double>> Comparison::ByError() const {
  std::vector<std::pair<std::string, double>> all;
  if (loss) all.emplace_back("loss", loss->error);
  if (logits) all.emplace_back("logits", *logits);
  for (const auto& [name, error] : gradients) {
    all.emplace_back(std::string(kGradientPrefix) + name, error);
  }
  std::ranges::stable_sort(all, std::ranges::greater(), &std::pair<std::string, double>::second);
  return all;
}

Result<Comparison> Compare(const ModelSource& model, const Reference& reference, Computed computed,
                           std::uint64_t budget_bytes) {
  Comparison comparison;
  if (reference.Has("loss")) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<double> expected, reference.Read("loss", budget_bytes));
    if (expected.size() != 1)
      return WrongShape(reference, "loss", {}, *reference.FindShape("loss"));
    comparison.loss = {.expected = expected[0],
                       .actual = computed.loss,
                       .error = Measure(expected, std::span(&computed.loss, 1)).Relative()};
  }
  if (reference.Has("logits")) {
    CKPT_ASSIGN_OR_RETURN(comparison.logits, CompareLogits(reference, computed, budget_bytes));
  }
  if (reference.gradients().empty()) return comparison;
  CKPT_ASSIGN_OR_RETURN(const RuntimeGradients gradients,
                        RuntimeGradients::View(model, std::move(computed.gradients)));
  CKPT_RETURN_IF_ERROR(CheckNames(reference, gradients));
  std::vector<Deviation> deviations;
  double largest = 0;
  for (const std::string& name : reference.gradients()) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<double> expected,
                          reference.Read(std::string(kGradientPrefix) + name, budget_bytes));
    CKPT_ASSIGN_OR_RETURN(const std::vector<double> actual, gradients.Read(name, budget_bytes));
    deviations.push_back(Measure(expected, actual));
    largest = std::max(largest, deviations.back().magnitude);
  }
  for (std::size_t g = 0; g < deviations.size(); ++g) {
    comparison.gradients.emplace_back(reference.gradients()[g],
                                      deviations[g].RelativeInGradients(largest));
  }
  return comparison;
}

}  // namespace ckpt::train
