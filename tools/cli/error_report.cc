#include "tools/cli/error_report.h"

#include <map>
#include <string_view>
#include <tuple>

#include "core/base/name_list.h"
#include "tools/cli/internal/tool_hints.h"

namespace ckpt::cli {
namespace {

constexpr std::string_view kRed = "\x1b[1;31m";
constexpr std::string_view kYellow = "\x1b[1;33m";
constexpr std::string_view kReset = "\x1b[0m";

// Whether the problem is a tensor that was lost with a missing file.
bool IsLoss(const Problem& problem) {
  return problem.kind == ErrorKind::kMissingFile && !problem.file.empty() &&
         !problem.tensor.empty();
}

// Two losses are equal if they differ only in the tensor.
struct IsOtherLoss {
  bool operator()(const Problem* a, const Problem* b) const {
    const auto facts = [](const Problem& p) {
      return std::tie(p.file, p.severity, p.message, p.expected, p.actual, p.hint, p.context);
    };
    return facts(*a) < facts(*b);
  }
};

void AppendReported(const ReportedProblem& reported, JsonWriter& json) {
  Problem problem = reported.problem;
  if (!reported.tensors.empty()) problem.tensor = reported.tensors.front();
  AppendProblemMembers(problem, json);
  if (reported.tensors.empty()) return;
  json.Key("tensors").BeginArray();
  for (const std::string& tensor : reported.tensors) json.Text(tensor);
  json.End();
}

void AppendTextOrNull(std::string_view key, std::string_view text, JsonWriter& json) {
  json.Key(key);
  text.empty() ? json.Null() : json.Text(text);
}

}  // namespace

std::vector<ReportedProblem> Report(const std::vector<Problem>& problems) {
  std::vector<ReportedProblem> reported;
  std::map<const Problem*, std::size_t, IsOtherLoss> losses;  // positions in `reported`
  for (const Problem& problem : problems) {
    if (IsLoss(problem)) {
      const auto [known, is_new] = losses.emplace(&problem, reported.size());
      if (!is_new) {
        ReportedProblem& loss = reported[known->second];
        if (loss.tensors.empty()) loss.tensors.push_back(loss.problem.tensor);
        loss.tensors.push_back(problem.tensor);
        continue;
      }
    }
    reported.push_back({problem, {}});
  }
  for (ReportedProblem& loss : reported) {
    if (!loss.tensors.empty()) loss.problem.tensor = NameSome(loss.tensors);
  }
  return reported;
}

std::string DescribeProblem(const Problem& problem) {
  Problem told = problem;
  told.hint = InWordsOfTools(problem.hint);
  return Describe(told);
}

void PrintProblem(const Problem& problem, Streams& streams) {
  const bool is_error = problem.severity == Severity::kError;
  if (streams.err_has_colour) streams.err.Write(is_error ? kRed : kYellow);
  streams.err.Write(is_error ? "error: " : "warning: ");
  if (streams.err_has_colour) streams.err.Write(kReset);
  std::string text = DescribeProblem(problem);
  if (text.empty() || text.back() != '\n') text += '\n';
  streams.err.Write(text);
}

void PrintStatus(const Status& status, Streams& streams) {
  for (const ReportedProblem& reported : Report(status.problems())) {
    PrintProblem(reported.problem, streams);
  }
}

void AppendProblemMembers(const Problem& problem, JsonWriter& json) {
  json.Key("kind").Text(KindName(problem.kind));
  json.Key("message").Text(problem.message);
  AppendTextOrNull("file", problem.file, json);
  AppendTextOrNull("tensor", problem.tensor, json);
  AppendTextOrNull("expected", problem.expected, json);
  AppendTextOrNull("actual", problem.actual, json);
  AppendTextOrNull("hint", InWordsOfTools(problem.hint), json);
}

void AppendProblemList(const std::vector<Problem>& problems, JsonWriter& json) {
  json.Key("problems").BeginArray();
  for (const ReportedProblem& reported : Report(problems)) {
    json.BeginObject();
    const bool is_error = reported.problem.severity == Severity::kError;
    json.Key("severity").Text(is_error ? "error" : "warning");
    AppendReported(reported, json);
    json.End();
  }
  json.End();
}

std::string ErrorDocument(const Status& status) {
  JsonWriter json;
  json.BeginObject().Key("ok").Bool(false).Key("errors").BeginArray();
  for (const ReportedProblem& reported : Report(status.problems())) {
    json.BeginObject();
    AppendReported(reported, json);
    json.End();
  }
  json.End().End();
  return json.Take() + "\n";
}

ExitCode Finish(ExitCode code, Streams& streams) {
  if (const Status written = streams.out.Flush(); !written.ok()) {
    PrintStatus(written, streams);
    code = ExitCode::kFailed;
  }
  // If standard error cannot be written, nothing can report it.
  (void)streams.err.Flush().ok();
  return code;
}

ExitCode Conclude(const Result<ExitCode>& outcome, bool is_json, Streams& streams) {
  if (outcome.ok()) return Finish(*outcome, streams);
  if (is_json) streams.out.Write(ErrorDocument(outcome.status()));
  PrintStatus(outcome.status(), streams);
  return Finish(ExitCodeOf(outcome.status()), streams);
}

}  // namespace ckpt::cli
