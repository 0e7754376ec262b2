#include "trainer/bench/choose_products.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace ckpt::train {
namespace {

using trainer::ProductShape;
using trainer::ProductTrial;

// Less than that is noise.
constexpr double kSmallestGain = 0.002;
constexpr int kComparisons = 2;
// Of the largest product's work.
constexpr double kSmallestShare = 0.02;

std::vector<std::pair<const ProductShape, ProductTrial::Product>*> LargestFirst(
    ProductTrial& trial) {
  std::vector<std::pair<const ProductShape, ProductTrial::Product>*> products;
  for (auto& product : trial.products) products.push_back(&product);
  const auto work = [](const auto* product) { return product->first.num_multiplications(); };
  std::ranges::stable_sort(products, std::ranges::greater{}, work);
  std::erase_if(products, [&](const auto* product) {
    return work(product) < kSmallestShare * work(products.front());
  });
  return products;
}

// Whether the step is faster with `candidate` than with what is chosen, in every comparison.
// `kept_ms`: the step as chosen, timed last; it is timed again from the second comparison on.
Result<bool> Wins(ProductTrial::Product& product, std::size_t candidate, const StepTimer& time,
                  double& kept_ms) {
  const std::size_t kept = product.chosen;
  for (int comparison = 0; comparison < kComparisons; ++comparison) {
    if (comparison > 0) {
      CKPT_ASSIGN_OR_RETURN(kept_ms, time());
    }
    product.chosen = candidate;
    const Result<double> tried_ms = time();
    product.chosen = kept;
    CKPT_RETURN_IF_ERROR(tried_ms.status());
    if (*tried_ms > kept_ms * (1 - kSmallestGain)) return false;
  }
  return true;
}

void Exchange(ProductTrial& trial, std::map<ProductShape, std::size_t>& choices) {
  for (auto& [shape, product] : trial.products) std::swap(product.chosen, choices[shape]);
}

}  // namespace

Result<ProductChoice> ChooseProducts(ProductTrial& trial, const StepTimer& time) {
  ProductChoice choice = {.num_products = trial.products.size()};
  for (auto* const entry : LargestFirst(trial)) {
    ProductTrial::Product& product = entry->second;
    CKPT_ASSIGN_OR_RETURN(double kept_ms, time());
    for (std::size_t candidate = 1; candidate < product.candidates.size(); ++candidate) {
      ++choice.num_tried;
      CKPT_ASSIGN_OR_RETURN(const bool wins, Wins(product, candidate, time, kept_ms));
      if (!wins) continue;
      product.chosen = candidate;
      CKPT_ASSIGN_OR_RETURN(kept_ms, time());
    }
    if (product.chosen != 0) ++choice.num_changed;
  }
  std::map<ProductShape, std::size_t> library;  // 0 everywhere
  for (int comparison = 0; comparison < kComparisons; ++comparison) {
    CKPT_ASSIGN_OR_RETURN(const double chosen_ms, time());
    Exchange(trial, library);
    const Result<double> library_ms = time();
    Exchange(trial, library);
    CKPT_RETURN_IF_ERROR(library_ms.status());
    choice.chosen_ms += chosen_ms / kComparisons;
    choice.library_ms += *library_ms / kComparisons;
  }
  return choice;
}

}  // namespace ckpt::train
