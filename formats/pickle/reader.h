// Reads a pickle into a Graph. Executes nothing: names stay names, calls become nodes.
#ifndef CKPT_FORMATS_PICKLE_READER_H_
#define CKPT_FORMATS_PICKLE_READER_H_

#include <cstdint>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "formats/pickle/graph.h"
#include "formats/pickle/options.h"

namespace ckpt::pickle {

struct ParsedPickle {
  Graph graph;
  NodeId root = kNoNode;
  std::uint64_t end = 0;  // behind STOP
  int protocol = 0;
};

// Reads one pickle of protocol 0 to 5. `name` (a path) appears in errors, which name the byte. The
// bytes need not outlive the result.
//
// Errors: kBadMetadata (no pickle at all, unknown opcode, early end, stack underflow, memo slot not
// set, malformed argument), kResource (an announced length larger than the input, too many nodes),
// kUnsafePickle (INST, OBJ: old opcodes that only an attacker writes), kUnsupported (EXT, PERSID,
// out-of-band buffers, a newer protocol).
// Cost: two passes over the bytes; 16 bytes of memory a node plus the text. Nothing recurses,
// whatever the nesting.
Result<ParsedPickle> ParsePickle(ByteSpan bytes, std::string_view name,
                                 const PickleOptions& options = {});

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_READER_H_
