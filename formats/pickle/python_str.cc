#include "formats/pickle/python_str.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "formats/pickle/internal/python_values.h"
#include "formats/pickle/internal/text.h"

namespace ckpt::pickle {
namespace {

constexpr int kMaxDepth = 8;
// Tuples that share other tuples have few nodes, but their text can be endless.
constexpr std::uint64_t kMaxTupleCost = 1ULL << 16;
// At most 154 digits, because the time to print an integer grows with the square of its length.
constexpr std::size_t kMaxBigIntBytes = 64;

// The shortest digits that read back, with an exponent outside 1e-4 … 1e16 as Python has it.
std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer{};
  const double magnitude = std::fabs(value);
  const bool is_plain = magnitude == 0 || (magnitude >= 1e-4 && magnitude < 1e16);
  const std::to_chars_result end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                    is_plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(buffer.data(), end.ptr);
  if (is_plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string Quoted(std::string_view text, bool is_bytes) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out = is_bytes ? "b" : "";
  out += quote;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == quote || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7F || (is_bytes && byte >= 0x80)) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out + quote;
}

// `cost` counts the nodes and texts of tuples.
std::string Repr(const Graph& graph, NodeId node, int depth, std::uint64_t& cost) {
  ++cost;
  switch (graph.kind(node)) {
    case NodeKind::kNone:
      return "None";
    case NodeKind::kBool:
      return graph.boolean(node) ? "True" : "False";
    case NodeKind::kInt:
      return std::to_string(graph.integer(node));
    case NodeKind::kBigInt:
      if (graph.text(node).size() > kMaxBigIntBytes) break;
      return FormatBigInt(graph.text(node));
    case NodeKind::kFloat:
      return FloatRepr(graph.number(node));
    case NodeKind::kText:
    case NodeKind::kBytes:
      cost += graph.text(node).size();
      return Quoted(graph.text(node), graph.kind(node) == NodeKind::kBytes);
    case NodeKind::kTuple: {
      if (depth == kMaxDepth) break;
      std::string out = "(";
      for (const NodeId item : graph.items(node)) {
        if (cost > kMaxTupleCost) return "<tuple>";
        if (out.size() > 1) out += ", ";
        out += Repr(graph, item, depth + 1, cost);
      }
      return out + (graph.items(node).size() == 1 ? ",)" : ")");
    }
    case NodeKind::kGlobal:
      if (graph.module(node) == "torch") return "torch." + std::string(graph.name(node));
      break;
    case NodeKind::kCall:  // the bytes of protocols 0 to 2
      if (const auto bytes = BytesOf(graph, node)) {
        cost += bytes->size();
        return Quoted(*bytes, true);
      }
      break;
    case NodeKind::kByteArray:
    case NodeKind::kList:
    case NodeKind::kDict:
    case NodeKind::kSet:
    case NodeKind::kFrozenSet:
    case NodeKind::kInstance:
    case NodeKind::kPersistent:
    case NodeKind::kRecord:
      break;
  }
  const std::string name = graph.QualifiedName(node);
  return "<" + (name.empty() ? std::string(NodeKindName(graph.kind(node))) : name) + ">";
}

}  // namespace

std::string PythonStr(const Graph& graph, NodeId node) {
  if (graph.kind(node) == NodeKind::kText) return std::string(graph.text(node));
  return PythonRepr(graph, node);
}

std::string PythonRepr(const Graph& graph, NodeId node) {
  std::uint64_t cost = 0;
  return Repr(graph, node, 0, cost);
}

}  // namespace ckpt::pickle
