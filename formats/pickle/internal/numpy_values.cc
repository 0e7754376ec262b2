#include "formats/pickle/internal/numpy_values.h"

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/checked_math.h"
#include "core/base/text_number.h"
#include "formats/pickle/internal/python_values.h"

namespace ckpt::pickle {
namespace {

struct NumpyDType {
  std::string str;
  std::uint64_t item_bytes = 0;
};

bool IsMultiarray(std::string_view module) {
  return module == "numpy.core.multiarray" || module == "numpy._core.multiarray";
}

bool IsNumpyCall(const Graph& graph, NodeId node, std::string_view name) {
  return graph.kind(node) == NodeKind::kCall &&
         graph.kind(graph.callable(node)) == NodeKind::kGlobal &&
         IsMultiarray(graph.module(graph.callable(node))) &&
         graph.name(graph.callable(node)) == name;
}

// numpy.dtype('f8', False, True) with the state (version, byte order, …).
std::optional<NumpyDType> DTypeOf(const Graph& graph, NodeId node) {
  if (!IsCallOf(graph, node, "numpy", "dtype")) return std::nullopt;
  const std::span<const NodeId> args = CallArgs(graph, node);
  if (args.empty() || graph.kind(args[0]) != NodeKind::kText) return std::nullopt;
  const std::string_view code = graph.text(args[0]);
  if (code.size() < 2 || std::string_view("?biufcSU").find(code[0]) == std::string_view::npos) {
    return std::nullopt;
  }
  const std::optional<std::uint64_t> size = ParseNumber<std::uint64_t>(code.substr(1));
  if (!size || *size > (1U << 20)) return std::nullopt;
  char order = '|';
  if (const NodeId state = graph.state(node); state != kNoNode) {
    if (graph.kind(state) != NodeKind::kTuple || graph.items(state).size() < 2) return std::nullopt;
    const NodeId text = graph.items(state)[1];
    if (graph.kind(text) != NodeKind::kText || graph.text(text).size() != 1) return std::nullopt;
    order = graph.text(text)[0];
  } else if (*size > 1) {
    order = '<';
  }
  if (order == '=') order = '<';
  const std::uint64_t width = code[0] == 'U' ? 4 : 1;
  return NumpyDType{order + std::string(code), *size * width};
}

std::optional<Dims> ShapeOf(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kTuple || graph.items(node).size() > 64) return std::nullopt;
  Dims shape;
  for (const NodeId dim : graph.items(node)) {
    if (graph.kind(dim) != NodeKind::kInt || graph.integer(dim) < 0) return std::nullopt;
    shape.push_back(graph.integer(dim));
  }
  return shape;
}

// Elements in Fortran order, put into C order.
std::string ToCOrder(std::string_view bytes, const Dims& shape, std::uint64_t item_bytes) {
  std::string out;
  out.reserve(bytes.size());
  Dims index(shape.size(), 0);
  const std::uint64_t count = bytes.size() / item_bytes;
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint64_t at = 0;
    for (std::size_t d = shape.size(); d-- > 0;) {
      at = at * static_cast<std::uint64_t>(shape[d]) + static_cast<std::uint64_t>(index[d]);
    }
    out.append(bytes.substr(at * item_bytes, item_bytes));
    for (std::size_t d = shape.size(); d-- > 0;) {
      if (++index[d] < shape[d]) break;
      index[d] = 0;
    }
  }
  return out;
}

std::optional<NumpyArray> MakeArray(const Graph& graph, NodeId dtype_node, NodeId shape_node,
                                    std::optional<std::string> bytes, bool is_fortran) {
  const std::optional<NumpyDType> dtype = DTypeOf(graph, dtype_node);
  std::optional<Dims> shape = ShapeOf(graph, shape_node);
  if (!dtype || !shape || !bytes) return std::nullopt;
  const Result<std::int64_t> count = CountElements(*shape);
  std::uint64_t want = 0;
  if (!count.ok() || !CheckedMul(static_cast<std::uint64_t>(*count), dtype->item_bytes, &want) ||
      want != bytes->size()) {
    return std::nullopt;
  }
  if (is_fortran && shape->size() > 1 && want > 0) {
    bytes = ToCOrder(*bytes, *shape, dtype->item_bytes);
  }
  return NumpyArray{dtype->str, *std::move(shape), *std::move(bytes)};
}

}  // namespace

std::optional<NumpyScalar> NumpyScalarOf(const Graph& graph, NodeId node) {
  if (!IsNumpyCall(graph, node, "scalar")) return std::nullopt;
  const std::span<const NodeId> args = CallArgs(graph, node);
  if (args.size() != 2) return std::nullopt;
  const std::optional<NumpyDType> dtype = DTypeOf(graph, args[0]);
  if (!dtype) return std::nullopt;
  std::optional<std::string> bytes = BytesUpTo(graph, args[1], dtype->item_bytes);
  if (!bytes || bytes->size() != dtype->item_bytes) return std::nullopt;
  return NumpyScalar{dtype->str, *std::move(bytes)};
}

std::optional<NumpyArray> NumpyArrayOf(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kCall) return std::nullopt;
  const std::string name = graph.QualifiedName(node);
  const std::span<const NodeId> args = CallArgs(graph, node);
  if (name == "numpy._core.numeric._frombuffer" || name == "numpy.core.numeric._frombuffer") {
    if (args.size() != 4 || graph.kind(args[3]) != NodeKind::kText) return std::nullopt;
    std::optional<std::string> bytes = BytesOf(graph, args[0]);
    if (!bytes) bytes = ByteArrayOf(graph, args[0]);
    return MakeArray(graph, args[1], args[2], std::move(bytes), graph.text(args[3]) == "F");
  }
  const NodeId state = graph.state(node);
  if (!IsNumpyCall(graph, node, "_reconstruct") || state == kNoNode || args.empty() ||
      !graph.IsGlobal(args[0], "numpy", "ndarray") || graph.kind(state) != NodeKind::kTuple ||
      graph.items(state).size() != 5) {
    return std::nullopt;
  }
  // (version, shape, dtype, is Fortran order, bytes)
  const std::span<const NodeId> parts = graph.items(state);
  if (graph.kind(parts[3]) != NodeKind::kBool) return std::nullopt;
  return MakeArray(graph, parts[2], parts[1], BytesOf(graph, parts[4]), graph.boolean(parts[3]));
}

}  // namespace ckpt::pickle
