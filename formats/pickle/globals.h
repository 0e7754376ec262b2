// Which calls in a pickle are ordinary, and which deserve a word to the user.
#ifndef CKPT_FORMATS_PICKLE_GLOBALS_H_
#define CKPT_FORMATS_PICKLE_GLOBALS_H_

#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "formats/pickle/graph.h"

namespace ckpt::pickle {

// Whether honest checkpoints call this: constructors of Python's and numpy's plain values, torch's
// rebuild functions, classes (not functions) of the usual frameworks. We call nothing in either
// case; Python's own loader would.
[[nodiscard]] bool IsHarmlessCall(std::string_view module, std::string_view name);

// Whether it is named like a class of the usual frameworks, which only store their arguments.
[[nodiscard]] bool IsFrameworkClass(std::string_view module, std::string_view name);

// Names of torch's dtypes, including those whose tensors are not read.
[[nodiscard]] bool IsDTypeName(std::string_view name);

// A kUnsafePickle warning for every other global that the pickle calls, naming it.
[[nodiscard]] std::vector<Problem> WarnAboutCalls(const Graph& graph, const std::string& file,
                                                  const std::string& tensor = {});

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_GLOBALS_H_
