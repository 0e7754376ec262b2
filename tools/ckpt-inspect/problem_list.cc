#include "tools/ckpt-inspect/problem_list.h"

#include <algorithm>

#include "tools/cli/error_report.h"

namespace ckpt::inspect {

bool HasErrors(const std::vector<Problem>& problems) {
  return std::any_of(problems.begin(), problems.end(),
                     [](const Problem& problem) { return problem.severity == Severity::kError; });
}

void AppendProblemList(const std::vector<Problem>& problems, JsonWriter& json) {
  json.Key("problems").BeginArray();
  for (const Problem& problem : problems) {
    json.BeginObject();
    json.Key("severity").Text(problem.severity == Severity::kError ? "error" : "warning");
    cli::AppendProblemMembers(problem, json);
    json.End();
  }
  json.End();
}

void PrintProblemList(const std::vector<Problem>& problems, cli::Streams& streams) {
  for (const Problem& problem : problems) {
    streams.out.Write(problem.severity == Severity::kError ? "error: " : "warning: ");
    streams.out.Write(Describe(problem) + "\n");
  }
}

}  // namespace ckpt::inspect
