#include "tools/ckpt-inspect/health.h"

#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/checkpoint/validate.h"

namespace ckpt::inspect {

std::vector<Problem> MetadataProblems(const CheckpointSource& source) {
  std::vector<Problem> problems = ValidateIndex(source);
  RemoveRepeated(problems);
  return problems;
}

Status CheckHealthy(const CheckpointSource& source,
                    const std::vector<const GlobalTensor*>& tensors) {
  std::set<std::string_view> keys;
  for (const GlobalTensor* tensor : tensors) keys.insert(tensor->key);
  std::vector<Problem> errors;
  for (Problem& problem : MetadataProblems(source)) {
    const bool is_error = problem.severity == Severity::kError;
    if (is_error && keys.contains(problem.tensor)) errors.push_back(std::move(problem));
  }
  return Status(std::move(errors));
}

Status CheckNothingUnlisted(const CheckpointSource& source) {
  const CheckpointIndex& index = source.index();
  std::vector<Problem> errors;
  for (const Problem& problem : index.problems()) {
    const bool is_error = problem.severity == Severity::kError && !problem.tensor.empty();
    if (is_error && index.FindTensor(problem.tensor) == nullptr &&
        index.FindObject(problem.tensor) == nullptr) {
      errors.push_back(problem);
    }
  }
  return Status(std::move(errors));
}

void RemoveRepeated(std::vector<Problem>& problems) {
  std::set<std::tuple<ErrorKind, std::string, std::string, std::string>> seen;
  std::erase_if(problems, [&](const Problem& problem) {
    return !seen.emplace(problem.kind, problem.message, problem.file, problem.tensor).second;
  });
}

}  // namespace ckpt::inspect
