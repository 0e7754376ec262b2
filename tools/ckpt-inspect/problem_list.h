// Prints findings as a part of the answer.
#ifndef CKPT_TOOLS_CKPT_INSPECT_PROBLEM_LIST_H_
#define CKPT_TOOLS_CKPT_INSPECT_PROBLEM_LIST_H_

#include <vector>

#include "core/base/status.h"
#include "tools/cli/error_report.h"
#include "tools/cli/streams.h"

namespace ckpt::inspect {

[[nodiscard]] bool HasErrors(const std::vector<Problem>& problems);

using cli::AppendProblemList;

// Prints to standard output, because the findings are the answer here.
void PrintProblemList(const std::vector<Problem>& problems, cli::Streams& streams);

}  // namespace ckpt::inspect

#endif  // CKPT_TOOLS_CKPT_INSPECT_PROBLEM_LIST_H_
