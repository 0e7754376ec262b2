// Findings as a part of an answer.
#ifndef CKPT_TOOLS_CKPT_INSPECT_PROBLEM_LIST_H_
#define CKPT_TOOLS_CKPT_INSPECT_PROBLEM_LIST_H_

#include <vector>

#include "core/base/status.h"
#include "tools/cli/error_report.h"
#include "tools/cli/streams.h"

namespace ckpt::inspect {

[[nodiscard]] bool HasErrors(const std::vector<Problem>& problems);

using cli::AppendProblemList;

// On standard output: here the findings are the answer.
void PrintProblemList(const std::vector<Problem>& problems, cli::Streams& streams);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_PROBLEM_LIST_H_
