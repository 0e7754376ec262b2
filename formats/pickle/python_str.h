// Python's str() and repr() of the values that serve as mapping keys.
#ifndef CKPT_FORMATS_PICKLE_PYTHON_STR_H_
#define CKPT_FORMATS_PICKLE_PYTHON_STR_H_

#include <string>

#include "formats/pickle/graph.h"

namespace ckpt::pickle {

// str(value) for None, bools, numbers, text, bytes, dtypes and tuples of these; "<module.Name>" for
// anything else and for what nests deeper than eight tuples, for integers past 154 digits and for
// tuples of more than 64 KiB of text.
[[nodiscard]] std::string PythonStr(const Graph& graph, NodeId node);

// repr(value): text has quotes.
[[nodiscard]] std::string PythonRepr(const Graph& graph, NodeId node);

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_PYTHON_STR_H_
