// How far the trainer's numbers are from a reference's.
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
  std::int64_t row_elems = 0;           // of a token in `logits`: the vocabulary with its padding
  std::vector<float> logits;            // [batch · seq, row_elems]; empty if nobody asked
  std::vector<MemoryTensor> gradients;  // under the trainer's names; empty if nobody asked
};

struct Comparison {
  struct Loss {
    double expected = 0;
    double actual = 0;
    double error = 0;  // relative to `expected`
  };
  std::optional<Loss> loss;
  std::optional<double> logits;  // error
  // Error by name, in the order of the reference.
  std::vector<std::pair<std::string, double>> gradients;

  // Everything that was compared, worst first.
  [[nodiscard]] std::vector<std::pair<std::string, double>> ByError() const;
};

// How far numbers are from what is expected.
struct Deviation {
  double difference = 0;  // the largest; infinite if anything is not finite
  double magnitude = 0;   // the largest that is expected

  // Where nothing but zeros is expected, any difference is infinite.
  [[nodiscard]] double Relative() const;
  // Of a gradient whose reference has none larger than `largest`. One below a millionth of it is a zero that was rounded, for
  // which its own magnitude is no measure: it is compared at a hundredth of `largest`. So a tolerance of 1e-5 lets pass what
  // float32 rounds off the largest gradient.
  [[nodiscard]] double RelativeInGradients(double largest) const;
};

// REQUIRES: equal sizes.
[[nodiscard]] Deviation Measure(std::span<const double> expected, std::span<const double> actual);

// Gradients are renamed and reshaped as Transformers holds the parameters of `model` at run time.
//
// Errors: kMissing (the model has no such gradient), kShapeMismatch, those of reading.
Result<Comparison> Compare(const ModelSource& model, const Reference& reference, Computed computed,
                           std::uint64_t budget_bytes);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_CHECK_COMPARISON_H_
