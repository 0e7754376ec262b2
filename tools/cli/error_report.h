// Problems as people and scripts get them.
#ifndef CKPT_TOOLS_CLI_ERROR_REPORT_H_
#define CKPT_TOOLS_CLI_ERROR_REPORT_H_

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/json/json_writer.h"
#include "tools/cli/exit_code.h"
#include "tools/cli/streams.h"

namespace ckpt::cli {

// A problem, and all entries that it is about where that is more than one.
struct ReportedProblem {
  Problem problem;  // for people: `tensor` names the first few
  std::vector<std::string> tensors;
};

// The problems in their order, but a file that is not there once, with all entries that need it.
[[nodiscard]] std::vector<ReportedProblem> Report(const std::vector<Problem>& problems);

// "error: <what>: <file>: <tensor>: expected …, found …", then "hint: …" lines; a warning starts
// with "warning: ".
void PrintProblem(const Problem& problem, Streams& streams);
// All of them; nothing for OK.
void PrintStatus(const Status& status, Streams& streams);

// The members "kind", "message", "file", "tensor", "expected", "actual", "hint"; null where
// unknown.
void AppendProblemMembers(const Problem& problem, JsonWriter& json);
// "problems": [{"severity", the members above, and "tensors" where there are several}].
void AppendProblemList(const std::vector<Problem>& problems, JsonWriter& json);
// {"ok": false, "errors": […]} on one line, which may end a stream of lines, and a line end.
[[nodiscard]] std::string ErrorDocument(const Status& status);

// The end of every command: prints the error of one that failed, also as the document under
// `is_json`, and flushes. A document that could not be written is itself a failure.
ExitCode Conclude(const Result<ExitCode>& outcome, bool is_json, Streams& streams);

}  // namespace ckpt::cli

#endif  // CKPT_TOOLS_CLI_ERROR_REPORT_H_
