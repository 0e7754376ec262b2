#include "tools/ckpt-inspect/problem_list.h"

#include <algorithm>

#include "tools/cli/error_report.h"

namespace ckpt::inspect {

bool HasErrors(const std::vector<Problem>& problems) {
  return std::any_of(problems.begin(), problems.end(),
                     [](const Problem& problem) { return problem.severity == Severity::kError; });
}

void PrintProblemList(const std::vector<Problem>& problems, cli::Streams& streams) {
  for (const auto& [problem, tensors] : cli::Report(problems)) {
    streams.out.Write(problem.severity == Severity::kError ? "error: " : "warning: ");
    streams.out.Write(cli::DescribeProblem(problem) + "\n");
  }
}

}  // namespace ckpt::inspect
