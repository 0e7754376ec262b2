// How much the trainer's numbers differ from a reference's.
#ifndef CKPT_TRAINER_CHECK_COMPARISON_H_
#define CKPT_TRAINER_CHECK_COMPARISON_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "converters/verbs/model_source.h"
#include "core/base/result.h"
#include "core/checkpoint/memory_source.h"
#include "trainer/check/reference.h"

namespace ckpt::train {

// What the ranks computed.
struct Computed {
  double loss = 0;
  std::int64_t vocab_size = 0;
  // Elements per token in `logits`: the vocabulary with its padding.
  std::int64_t row_elems = 0;
  std::vector<float> logits;            // [batch · seq, row_elems]; empty if not requested
  std::vector<MemoryTensor> gradients;  // under the trainer's names; empty if not requested
};

struct Comparison {
  struct Loss {
    double expected = 0;
    double actual = 0;
    double error = 0;  // relative to `expected`
  };
  std::optional<Loss> loss;
  std::optional<double> logits;  // error
  // Errors by name, in the order of the reference.
  std::vector<std::pair<std::string, double>> gradients;

  // Everything that was compared, the largest error first.
  [[nodiscard]] std::vector<std::pair<std::string, double>> ByError() const;
};

// How much numbers differ from the expected ones.
struct Deviation {
  double difference = 0;  // the largest difference; infinite if any number is not finite
  double magnitude = 0;   // the largest expected magnitude

  // If all expected numbers are zero, any difference is infinite.
  [[nodiscard]] double Relative() const;
  // For a gradient, where `largest` is the largest magnitude in all gradients of the reference. A
  // gradient below a millionth of it is a rounded zero, so its own magnitude is not a useful
  // measure: its difference is taken relative to a hundredth of `largest`. So a tolerance of 1e-5
  // accepts the rounding errors of float32 on the largest gradient.
  [[nodiscard]] double RelativeInGradients(double largest) const;
};

// REQUIRES: equal sizes.
[[nodiscard]] Deviation Measure(std::span<const double> expected, std::span<const double> actual);

// Compares gradients under the names and in the shapes that Transformers uses for the parameters of
// `model` at run time.
//
// Errors: kMissing (the model has no such gradient), kShapeMismatch, those of reading.
Result<Comparison> Compare(const ModelSource& model, const Reference& reference, Computed computed,
                           std::uint64_t budget_bytes);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_CHECK_COMPARISON_H_
