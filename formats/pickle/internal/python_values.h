// Values of Python's standard library that pickle as calls, understood without calling.
#ifndef CKPT_FORMATS_PICKLE_INTERNAL_PYTHON_VALUES_H_
#define CKPT_FORMATS_PICKLE_INTERNAL_PYTHON_VALUES_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/pickle/graph.h"

namespace ckpt::pickle {

// Each returns nothing if the node is another value.

// bytes: as they are, or as protocols 0 to 2 spell them, `_codecs.encode(text, 'latin1')` and
// `bytes()`.
[[nodiscard]] std::optional<std::string> BytesOf(const Graph& graph, NodeId node);
// The same of at most `max_bytes`. More are not copied to find that out: many nodes may share a
// long text.
[[nodiscard]] std::optional<std::string> BytesUpTo(const Graph& graph, NodeId node,
                                                   std::size_t max_bytes);
// bytearray, from bytes, from text in Latin-1, or empty.
[[nodiscard]] std::optional<std::string> ByteArrayOf(const Graph& graph, NodeId node);

struct Complex {
  double real = 0;
  double imag = 0;
};
[[nodiscard]] std::optional<Complex> ComplexOf(const Graph& graph, NodeId node);

// Elements of a set or frozenset, built by opcode or by call.
struct SetItems {
  std::vector<NodeId> items;
  bool is_frozen = false;
};
[[nodiscard]] std::optional<SetItems> SetItemsOf(const Graph& graph, NodeId node);

// `parts` of a pathlib path, from whatever pieces its version of Python pickled.
[[nodiscard]] std::optional<std::vector<std::string>> PathPartsOf(const Graph& graph, NodeId node);

// `isoformat()` of a datetime.date or datetime.datetime; of an aware one only with a fixed offset.
[[nodiscard]] std::optional<std::string> IsoFormatOf(const Graph& graph, NodeId node);

// Shorthands for looking at a call `module.name(*args)`.
[[nodiscard]] bool IsCallOf(const Graph& graph, NodeId node, std::string_view module,
                            std::string_view name);
[[nodiscard]] std::span<const NodeId> CallArgs(const Graph& graph, NodeId call);

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_INTERNAL_PYTHON_VALUES_H_
