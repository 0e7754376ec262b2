// ChooseProducts: which of a library's algorithms make a whole step fastest.
#ifndef CKPT_TRAINER_BENCH_CHOOSE_PRODUCTS_H_
#define CKPT_TRAINER_BENCH_CHOOSE_PRODUCTS_H_

#include <cstddef>
#include <functional>

#include "core/base/result.h"
#include "trainer/ops/product_algorithms.h"

namespace ckpt::train {

// Milliseconds of a step, computed as the trial says now.
using StepTimer = std::function<Result<double>()>;

struct ProductChoice {
  std::size_t num_products = 0;  // shapes
  std::size_t num_tried = 0;     // algorithms
  std::size_t num_changed = 0;   // products that the library's own choice does not compute any more
  double library_ms = 0;         // of a step, with the library's choices
  double chosen_ms = 0;          // and with the new ones, in turns
};

// A GPU at its power limit runs everything slower where a product takes more power, so a product's
// own time says nothing. Here an algorithm is kept where it makes the whole step faster, in two
// comparisons that take turns. Products come by their size; small ones, which cannot matter, keep
// the library's choice.
//
// `trial`: every product of the step is there, and the library's choices stand. Errors: those of
// `time`.
Result<ProductChoice> ChooseProducts(trainer::ProductTrial& trial, const StepTimer& time);

}  // namespace ckpt::train

#endif  // CKPT_TRAINER_BENCH_CHOOSE_PRODUCTS_H_
