// Writes a value of one pickle into another one.
#ifndef CKPT_FORMATS_PICKLE_COPY_VALUE_H_
#define CKPT_FORMATS_PICKLE_COPY_VALUE_H_

#include <functional>

#include "core/base/result.h"
#include "formats/pickle/graph.h"
#include "formats/pickle/writer.h"

namespace ckpt::pickle {

// Writes what stands for a kPersistent node in the new pickle.
using ReferenceWriter = std::function<Status(NodeId persistent, PickleWriter& pickle)>;

// Writes the value with everything below it; what it shares within itself stays shared. `pickle`
// may hold other values already. The pickle may come from a stranger: what it calls, and every
// function that it names, must be one that honest checkpoints need (IsHarmlessCall); classes of any
// module may be instantiated, as the loader of the original would.
//
// Errors: kUnsafePickle (another function), kUnsupported (a value that has no form in protocol 2),
// kResource (nested too deeply, or a value that contains itself), those of `reference`.
Status CopyValue(const Graph& graph, NodeId node, const ReferenceWriter& reference,
                 PickleWriter& pickle);

// A class or a function by its name, checked as CopyValue does.
Status CopyGlobal(const Graph& graph, NodeId global, PickleWriter& pickle);

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_COPY_VALUE_H_
