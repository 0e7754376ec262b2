#include "formats/pickle/internal/python_values.h"

#include <cstdint>

#include <fmt/format.h>

namespace ckpt::pickle {
namespace {

// Text whose code points are bytes, as those bytes.
std::optional<std::string> Latin1Bytes(std::string_view utf8) {
  std::string bytes;
  bytes.reserve(utf8.size());
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    if (lead < 0x80) {
      bytes += utf8[i];
    } else if ((lead == 0xC2 || lead == 0xC3) && i + 1 < utf8.size()) {
      const auto next = static_cast<unsigned char>(utf8[++i]);
      bytes += static_cast<char>(((lead & 3U) << 6) | (next & 0x3FU));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

bool IsLatin1(std::string_view encoding) {
  return encoding == "latin1" || encoding == "latin-1" || encoding == "iso-8859-1";
}

std::optional<double> NumberOf(const Graph& graph, NodeId node) {
  if (graph.kind(node) == NodeKind::kFloat) return graph.number(node);
  if (graph.kind(node) == NodeKind::kInt) return static_cast<double>(graph.integer(node));
  return std::nullopt;
}

std::uint32_t Byte(std::string_view bytes, std::size_t at) {
  return static_cast<unsigned char>(bytes[at]);
}

// "+01:30" of a datetime.timezone; empty for None.
std::optional<std::string> UtcOffsetOf(const Graph& graph, NodeId zone) {
  if (graph.kind(zone) == NodeKind::kNone) return "";
  if (!IsCallOf(graph, zone, "datetime", "timezone") || CallArgs(graph, zone).empty()) {
    return std::nullopt;
  }
  const NodeId delta = CallArgs(graph, zone)[0];
  if (!IsCallOf(graph, delta, "datetime", "timedelta")) return std::nullopt;
  std::int64_t parts[3] = {0, 0, 0};  // days, seconds, microseconds
  const std::span<const NodeId> args = CallArgs(graph, delta);
  if (args.size() > 3) return std::nullopt;
  for (std::size_t i = 0; i < args.size(); ++i) {
    if (graph.kind(args[i]) != NodeKind::kInt) return std::nullopt;
    parts[i] = graph.integer(args[i]);
  }
  // Python allows only offsets of less than a day.
  if (parts[0] < -1 || parts[0] > 0 || parts[1] < 0 || parts[1] >= 86400 || parts[2] != 0) {
    return std::nullopt;
  }
  std::int64_t seconds = parts[0] * 86400 + parts[1];
  const char sign = seconds < 0 ? '-' : '+';
  if (seconds < 0) seconds = -seconds;
  std::string text = fmt::format("{}{:02}:{:02}", sign, seconds / 3600, seconds / 60 % 60);
  if (seconds % 60 != 0) text += fmt::format(":{:02}", seconds % 60);
  return text;
}

}  // namespace

bool IsCallOf(const Graph& graph, NodeId node, std::string_view module, std::string_view name) {
  return graph.kind(node) == NodeKind::kCall && graph.IsGlobal(graph.callable(node), module, name);
}

std::span<const NodeId> CallArgs(const Graph& graph, NodeId call) {
  return graph.items(graph.args(call));
}

std::optional<std::string> BytesOf(const Graph& graph, NodeId node) {
  return BytesUpTo(graph, node, std::string::npos);
}

std::optional<std::string> BytesUpTo(const Graph& graph, NodeId node, std::size_t max_bytes) {
  if (graph.kind(node) == NodeKind::kBytes) {
    if (graph.text(node).size() > max_bytes) return std::nullopt;
    return std::string(graph.text(node));
  }
  if (IsCallOf(graph, node, "builtins", "bytes") && CallArgs(graph, node).empty()) return "";
  if (!IsCallOf(graph, node, "_codecs", "encode")) return std::nullopt;
  const std::span<const NodeId> args = CallArgs(graph, node);
  if (args.size() != 2 || graph.kind(args[0]) != NodeKind::kText ||
      graph.kind(args[1]) != NodeKind::kText || !IsLatin1(graph.text(args[1]))) {
    return std::nullopt;
  }
  // A byte is one or two of UTF-8.
  const std::string_view text = graph.text(args[0]);
  if (text.size() / 2 > max_bytes) return std::nullopt;
  std::optional<std::string> bytes = Latin1Bytes(text);
  return bytes && bytes->size() <= max_bytes ? bytes : std::nullopt;
}

std::optional<std::string> ByteArrayOf(const Graph& graph, NodeId node) {
  if (graph.kind(node) == NodeKind::kByteArray) return std::string(graph.text(node));
  if (!IsCallOf(graph, node, "builtins", "bytearray")) return std::nullopt;
  const std::span<const NodeId> args = CallArgs(graph, node);
  if (args.empty()) return "";
  if (args.size() == 1) return BytesOf(graph, args[0]);
  if (args.size() != 2 || graph.kind(args[0]) != NodeKind::kText ||
      graph.kind(args[1]) != NodeKind::kText || !IsLatin1(graph.text(args[1]))) {
    return std::nullopt;
  }
  return Latin1Bytes(graph.text(args[0]));
}

std::optional<Complex> ComplexOf(const Graph& graph, NodeId node) {
  if (!IsCallOf(graph, node, "builtins", "complex")) return std::nullopt;
  const std::span<const NodeId> args = CallArgs(graph, node);
  if (args.size() != 2) return std::nullopt;
  const std::optional<double> real = NumberOf(graph, args[0]);
  const std::optional<double> imag = NumberOf(graph, args[1]);
  if (!real || !imag) return std::nullopt;
  return Complex{*real, *imag};
}

std::optional<SetItems> SetItemsOf(const Graph& graph, NodeId node) {
  const auto copy = [&](NodeId container) {
    const std::span<const NodeId> items = graph.items(container);
    return std::vector<NodeId>(items.begin(), items.end());
  };
  const NodeKind kind = graph.kind(node);
  if (kind == NodeKind::kSet || kind == NodeKind::kFrozenSet) {
    return SetItems{copy(node), kind == NodeKind::kFrozenSet};
  }
  const bool is_frozen = IsCallOf(graph, node, "builtins", "frozenset");
  if (!is_frozen && !IsCallOf(graph, node, "builtins", "set")) return std::nullopt;
  const std::span<const NodeId> args = CallArgs(graph, node);
  if (args.empty()) return SetItems{{}, is_frozen};
  if (args.size() != 1 ||
      (graph.kind(args[0]) != NodeKind::kList && graph.kind(args[0]) != NodeKind::kTuple)) {
    return std::nullopt;
  }
  return SetItems{copy(args[0]), is_frozen};
}

std::optional<std::vector<std::string>> PathPartsOf(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kCall ||
      graph.kind(graph.callable(node)) != NodeKind::kGlobal) {
    return std::nullopt;
  }
  const std::string_view module = graph.module(graph.callable(node));
  const std::string_view name = graph.name(graph.callable(node));
  if ((module != "pathlib" && module != "pathlib._local") || !name.ends_with("Path")) {
    return std::nullopt;
  }
  const bool is_windows = name.find("Windows") != std::string_view::npos;
  std::vector<std::string> parts;
  for (const NodeId piece : CallArgs(graph, node)) {
    if (graph.kind(piece) != NodeKind::kText) return std::nullopt;
    std::string_view text = graph.text(piece);
    if (is_windows) {
      parts.emplace_back(text);
      continue;
    }
    if (text.starts_with('/')) parts.assign(1, "/");  // an absolute part replaces what came before
    while (!text.empty()) {
      const std::string_view part = text.substr(0, text.find('/'));
      if (!part.empty() && part != ".") parts.emplace_back(part);
      text.remove_prefix(std::min(text.size(), part.size() + 1));
    }
  }
  return parts;
}

std::optional<std::string> IsoFormatOf(const Graph& graph, NodeId node) {
  const bool is_datetime = IsCallOf(graph, node, "datetime", "datetime");
  if (!is_datetime && !IsCallOf(graph, node, "datetime", "date")) return std::nullopt;
  const std::span<const NodeId> args = CallArgs(graph, node);
  if (args.empty() || args.size() > (is_datetime ? 2U : 1U)) return std::nullopt;
  const std::size_t packed_bytes = is_datetime ? 10 : 4;
  const std::optional<std::string> packed = BytesUpTo(graph, args[0], packed_bytes);
  if (!packed || packed->size() != packed_bytes) return std::nullopt;
  const std::uint32_t year = Byte(*packed, 0) << 8 | Byte(*packed, 1);
  // The highest bit of the month is Python's `fold`.
  std::string text =
      fmt::format("{:04}-{:02}-{:02}", year, Byte(*packed, 2) & 0x7F, Byte(*packed, 3));
  if (!is_datetime) return text;
  text += fmt::format("T{:02}:{:02}:{:02}", Byte(*packed, 4), Byte(*packed, 5), Byte(*packed, 6));
  const std::uint32_t micros = Byte(*packed, 7) << 16 | Byte(*packed, 8) << 8 | Byte(*packed, 9);
  if (micros != 0) text += fmt::format(".{:06}", micros);
  if (args.size() == 1) return text;
  const std::optional<std::string> offset = UtcOffsetOf(graph, args[1]);
  if (!offset) return std::nullopt;
  return text + *offset;
}

}  // namespace ckpt::pickle
