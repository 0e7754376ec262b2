#include "tools/cli/error_report.h"

#include <string_view>

namespace ckpt::cli {
namespace {

constexpr std::string_view kRed = "\x1b[1;31m";
constexpr std::string_view kYellow = "\x1b[1;33m";
constexpr std::string_view kReset = "\x1b[0m";

void AppendTextOrNull(std::string_view key, const std::string& text, JsonWriter& json) {
  json.Key(key);
  text.empty() ? json.Null() : json.Text(text);
}

}  // namespace

void PrintProblem(const Problem& problem, Streams& streams) {
  const bool is_error = problem.severity == Severity::kError;
  if (streams.err_has_colour) streams.err.Write(is_error ? kRed : kYellow);
  streams.err.Write(is_error ? "error: " : "warning: ");
  if (streams.err_has_colour) streams.err.Write(kReset);
  std::string text = Describe(problem);
  if (text.empty() || text.back() != '\n') text += '\n';
  streams.err.Write(text);
}

void PrintStatus(const Status& status, Streams& streams) {
  for (const Problem& problem : status.problems()) PrintProblem(problem, streams);
}

void AppendProblemMembers(const Problem& problem, JsonWriter& json) {
  json.Key("kind").Text(KindName(problem.kind));
  json.Key("message").Text(problem.message);
  AppendTextOrNull("file", problem.file, json);
  AppendTextOrNull("tensor", problem.tensor, json);
  AppendTextOrNull("expected", problem.expected, json);
  AppendTextOrNull("actual", problem.actual, json);
  AppendTextOrNull("hint", problem.hint, json);
}

void AppendProblemList(const std::vector<Problem>& problems, JsonWriter& json) {
  json.Key("problems").BeginArray();
  for (const Problem& problem : problems) {
    json.BeginObject();
    json.Key("severity").Text(problem.severity == Severity::kError ? "error" : "warning");
    AppendProblemMembers(problem, json);
    json.End();
  }
  json.End();
}

std::string ErrorDocument(const Status& status) {
  JsonWriter json;
  json.BeginObject().Key("ok").Bool(false).Key("errors").BeginArray();
  for (const Problem& problem : status.problems()) {
    json.BeginObject();
    AppendProblemMembers(problem, json);
    json.End();
  }
  json.End().End();
  return json.Take() + "\n";
}

ExitCode Conclude(const Result<ExitCode>& outcome, bool is_json, Streams& streams) {
  ExitCode code = ExitCode::kDone;
  if (outcome.ok()) {
    code = *outcome;
  } else {
    code = ExitCodeOf(outcome.status());
    if (is_json) streams.out.Write(ErrorDocument(outcome.status()));
    PrintStatus(outcome.status(), streams);
  }
  if (const Status written = streams.out.Flush(); !written.ok()) {
    PrintStatus(written, streams);
    code = ExitCode::kFailed;
  }
  // Nowhere is left to tell that standard error cannot be written.
  (void)streams.err.Flush().ok();
  return code;
}

}  // namespace ckpt::cli
