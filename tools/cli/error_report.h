// Prints problems for people and for scripts.
#ifndef CKPT_TOOLS_CLI_ERROR_REPORT_H_
#define CKPT_TOOLS_CLI_ERROR_REPORT_H_

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/json/json_writer.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::cli {

// A problem, and all entries that it concerns if there are several.
struct ReportedProblem {
  Problem problem;  // for people: `tensor` names the first few
  std::vector<std::string> tensors;
};

// The problems in their order. A missing file is listed only once, with all entries that need it.
[[nodiscard]] std::vector<ReportedProblem> Report(const std::vector<Problem>& problems);

// As ckpt::Describe, with the commands that do what a hint of core advises.
[[nodiscard]] std::string DescribeProblem(const Problem& problem);
// "error: <what>: <file>: <tensor>: expected …, found …", then "hint: …" lines; a warning starts
// with "warning: ".
void PrintProblem(const Problem& problem, Streams& streams);
// Prints all problems; nothing for OK.
void PrintStatus(const Status& status, Streams& streams);

// The members "kind", "message", "file", "tensor", "expected", "actual", "hint"; null if unknown.
void AppendProblemMembers(const Problem& problem, JsonWriter& json);
// "problems": [{"severity", the members above, and "tensors" if there are several}].
void AppendProblemList(const std::vector<Problem>& problems, JsonWriter& json);
// {"ok": false, "errors": […]} on one line with a line end. It may end a stream of lines.
[[nodiscard]] std::string ErrorDocument(const Status& status);

// Ends a command that has told everything: flushes. If its answer could not be written, that is
// itself a failure.
ExitCode Finish(ExitCode code, Streams& streams);

// Ends every other command: prints the error of a command that failed (under `is_json` also as a
// document), then as Finish.
ExitCode Conclude(const Result<ExitCode>& outcome, bool is_json, Streams& streams);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_ERROR_REPORT_H_
