#include "core/checkpoint/unlisted.h"

#include <algorithm>
#include <iterator>

namespace ckpt {

std::vector<Problem> ErrorsOfUnlisted(const CheckpointIndex& index) {
  std::vector<Problem> errors;
  std::ranges::copy_if(index.problems(), std::back_inserter(errors), [&](const Problem& problem) {
    return problem.severity == Severity::kError && !problem.tensor.empty() &&
           index.FindTensor(problem.tensor) == nullptr &&
           index.FindObject(problem.tensor) == nullptr;
  });
  return errors;
}

}  // namespace ckpt
