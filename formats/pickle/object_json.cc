#include "formats/pickle/object_json.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/hash.h"
#include "core/base/quote.h"
#include "core/json/json_writer.h"
#include "formats/pickle/globals.h"
#include "formats/pickle/internal/numpy_values.h"
#include "formats/pickle/internal/python_values.h"
#include "formats/pickle/internal/text.h"
#include "formats/pickle/python_str.h"

namespace ckpt::pickle {
namespace {

// JSON readers keep integers exactly up to here.
constexpr std::int64_t kMaxPlainInt = 1LL << 53;

// Text as JSON. A lone surrogate, which UTF-8 cannot express, becomes the escape that Python
// writes.
std::string JsonText(std::string_view text) {
  if (IsUtf8(text)) return JsonQuote(text);
  std::string out = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const std::string_view piece = text.substr(i, length);
    if (length == 3 && !IsUtf8(piece)) {
      const auto byte = [&](std::size_t k) { return static_cast<unsigned char>(piece[k]) & 0x3FU; };
      out += fmt::format("\\u{:04x}", (lead & 0x0FU) << 12 | byte(1) << 6 | byte(2));
    } else {
      const std::string quoted = JsonQuote(piece);
      out.append(quoted, 1, quoted.size() - 2);
    }
    i += length;
  }
  return out + '"';
}

std::string JsonFloat(double value) {
  if (std::isfinite(value)) return JsonNumber(value);
  return fmt::format(R"({{"$float":"{}"}})", std::isnan(value) ? "nan"
                                             : value > 0       ? "inf"
                                                               : "-inf");
}

// Whether a node is a member of an enum: a call of a class with one plain value. Classes of the
// standard library are called like that, too, but are not enums. REQUIRES: a kCall.
bool IsEnumCall(const Graph& graph, NodeId node) {
  if (graph.state(node) != kNoNode || graph.appended(node) != kNoNode ||
      graph.entries(node) != kNoNode || graph.kind(graph.callable(node)) != NodeKind::kGlobal) {
    return false;
  }
  const std::string_view module = graph.module(graph.callable(node));
  const std::string_view name = graph.name(graph.callable(node));
  for (const std::string_view other :
       {"builtins", "collections", "datetime", "decimal", "fractions", "io", "uuid", "types"}) {
    if (module == other) return false;
  }
  const std::string_view last = name.substr(name.rfind('.') + 1);
  const std::size_t first = last.find_first_not_of('_');
  if (first == std::string_view::npos || last[first] < 'A' || last[first] > 'Z' ||
      !IsHarmlessCall(module, name)) {
    return false;
  }
  const std::span<const NodeId> args = CallArgs(graph, node);
  if (args.size() != 1) return false;
  const NodeKind kind = graph.kind(args[0]);
  return kind == NodeKind::kInt || kind == NodeKind::kText;
}

bool IsRebuildCall(const Graph& graph, NodeId node, std::string_view name) {
  return IsCallOf(graph, node, "torch._utils", name);
}

}  // namespace

std::string ClassName(const Graph& graph, NodeId node) {
  if (graph.kind(node) == NodeKind::kPersistent) {
    const NodeId id = graph.persistent_id(node);
    const bool has_class = graph.kind(id) == NodeKind::kTuple && graph.items(id).size() > 1;
    return has_class ? graph.QualifiedName(graph.items(id)[1]) : "persistent id";
  }
  if (graph.kind(node) == NodeKind::kCall) {
    const std::span<const NodeId> args = CallArgs(graph, node);
    if (IsCallOf(graph, node, "copyreg", "_reconstructor") && !args.empty()) {
      return graph.QualifiedName(args[0]);
    }
    if (IsCallOf(graph, node, "torch._tensor", "_rebuild_from_type_v2") && args.size() > 1) {
      return graph.QualifiedName(args[1]);
    }
    const std::string name = graph.QualifiedName(node);
    if (name.starts_with("torch._utils._rebuild_")) return "torch.Tensor";
    if (name.ends_with("multiarray._reconstruct")) return "numpy.ndarray";
    return name.empty() ? "call" : name;
  }
  std::string name = graph.QualifiedName(node);
  return name.empty() && graph.kind(node) == NodeKind::kInstance ? "instance" : name;
}

std::string OpaqueJson(const Graph& graph, NodeId node) {
  const std::string name = ClassName(graph, node);
  return fmt::format(R"({{"$opaque":{}}})",
                     JsonText(name.empty() ? PythonTypeName(graph, node) : name));
}

namespace {

std::string DeviceText(const Graph& graph, NodeId node) {
  std::string text;
  for (const NodeId arg : CallArgs(graph, node)) {
    if (!text.empty()) text += ':';
    text += PythonStr(graph, arg);
  }
  return text;
}

// Writes one value after the other into one text; recursion is bounded by `max_depth`.
class ObjectRenderer {
 public:
  ObjectRenderer(const Graph& graph, const RenderOptions& options)
      : graph_(graph), options_(options) {}

  Result<std::string> Run(NodeId node) {
    CKPT_RETURN_IF_ERROR(Render(node, 0));
    return std::move(out_);
  }
  [[nodiscard]] bool hides_attributes() const { return hides_attributes_; }

 private:
  Status Render(NodeId node, int depth);
  Status RenderCall(NodeId node, int depth);
  Status RenderDict(NodeId node, int depth);
  Status RenderPairs(std::string_view head, NodeId dict, int depth);
  Status RenderList(std::string_view head, std::span<const NodeId> items, std::string_view tail,
                    int depth);
  Status RenderSet(SetItems set, int depth);
  Status RenderState(NodeId node, NodeId state, int depth);
  Status RenderTensor(NodeId node, bool* done);
  Status Put(std::string_view text);
  Status PutBytes(std::string_view tag, std::string_view bytes);
  Status PutObject(NodeId node, std::string_view state);
  Status PutOpaque(NodeId node) { return Put(OpaqueJson(graph_, node)); }

  const Graph& graph_;
  const RenderOptions& options_;
  std::string out_;
  bool hides_attributes_ = false;
  // Tensors and arrays that were rendered already, because a list may refer to one of them a
  // million times.
  std::unordered_map<NodeId, std::string> digested_;
};

Status ObjectRenderer::Put(std::string_view text) {
  if (text.size() > options_.max_bytes - out_.size()) {
    return Error(
        ErrorKind::kResource,
        fmt::format("the object takes more than {} bytes when written out", options_.max_bytes));
  }
  out_ += text;
  return OkStatus();
}

Status ObjectRenderer::PutBytes(std::string_view tag, std::string_view bytes) {
  if (bytes.size() > options_.max_bytes / 2) return Put(std::string(options_.max_bytes + 1, ' '));
  return Put(fmt::format(R"({{"{}":"{}"}})", tag, HexOf(AsBytes(bytes))));
}

Status ObjectRenderer::PutObject(NodeId node, std::string_view state) {
  std::string name = graph_.QualifiedName(node);
  // Python 3.13 keeps the classes of pathlib in a module of their own.
  if (name.starts_with("pathlib._local.")) name.replace(0, 15, "pathlib.");
  return Put(fmt::format(R"({{"$object":{{"class":{},"state":{}}}}})", JsonText(name), state));
}

Status ObjectRenderer::RenderList(std::string_view head, std::span<const NodeId> items,
                                  std::string_view tail, int depth) {
  CKPT_RETURN_IF_ERROR(Put(head));
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) CKPT_RETURN_IF_ERROR(Put(","));
    CKPT_RETURN_IF_ERROR(Render(items[i], depth + 1));
  }
  return Put(tail);
}

Status ObjectRenderer::RenderPairs(std::string_view head, NodeId dict, int depth) {
  CKPT_RETURN_IF_ERROR(Put(head));
  const std::span<const NodeId> pairs =
      dict == kNoNode ? std::span<const NodeId>() : graph_.items(dict);
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (i > 0) CKPT_RETURN_IF_ERROR(Put(","));
    CKPT_RETURN_IF_ERROR(RenderList("[", pairs.subspan(i, 2), "]", depth + 1));
  }
  return Put("]}");
}

Status ObjectRenderer::RenderDict(NodeId node, int depth) {
  const std::span<const NodeId> pairs = graph_.items(node);
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (graph_.kind(pairs[i]) != NodeKind::kText || graph_.text(pairs[i]).starts_with('$')) {
      return RenderPairs(R"({"$dict":[)", node, depth);
    }
  }
  CKPT_RETURN_IF_ERROR(Put("{"));
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (i > 0) CKPT_RETURN_IF_ERROR(Put(","));
    CKPT_RETURN_IF_ERROR(Put(JsonText(graph_.text(pairs[i])) + ":"));
    CKPT_RETURN_IF_ERROR(Render(pairs[i + 1], depth + 1));
  }
  return Put("}");
}

Status ObjectRenderer::RenderSet(SetItems set, int depth) {
  std::uint64_t repr_bytes = 0;
  std::vector<std::pair<std::string, NodeId>> sorted;
  sorted.reserve(set.items.size());
  for (const NodeId item : set.items) {
    sorted.emplace_back(PythonRepr(graph_, item), item);
    repr_bytes += sorted.back().first.size();
    if (repr_bytes > options_.max_bytes) return Put(std::string(options_.max_bytes + 1, ' '));
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  for (std::size_t i = 0; i < sorted.size(); ++i) set.items[i] = sorted[i].second;
  return RenderList(set.is_frozen ? R"({"$frozenset":[)" : R"({"$set":[)", set.items, "]}", depth);
}

Status ObjectRenderer::RenderState(NodeId node, NodeId state, int depth) {
  CKPT_RETURN_IF_ERROR(Put(
      fmt::format(R"({{"$object":{{"class":{},"state":)", JsonText(graph_.QualifiedName(node)))));
  if (state == kNoNode) return Put("{}}}");
  CKPT_RETURN_IF_ERROR(RenderDict(state, depth + 1));
  return Put("}}");
}

Status ObjectRenderer::RenderTensor(NodeId node, bool* done) {
  *done = false;
  if (!options_.tensor) return OkStatus();
  const bool is_parameter = IsRebuildCall(graph_, node, "_rebuild_parameter") ||
                            IsRebuildCall(graph_, node, "_rebuild_parameter_with_state");
  const std::span<const NodeId> args = CallArgs(graph_, node);
  if (is_parameter && (args.size() < 2 || graph_.kind(args[1]) != NodeKind::kBool))
    return OkStatus();
  // Of a subclass only the name is shown.
  if (IsCallOf(graph_, node, "torch._tensor", "_rebuild_from_type_v2") &&
      ClassName(graph_, node) != "torch.Tensor") {
    return OkStatus();
  }
  CKPT_ASSIGN_OR_RETURN(const std::optional<TensorDigest> digest,
                        options_.tensor(is_parameter ? args[0] : node));
  if (!digest) return OkStatus();
  *done = true;
  JsonWriter json;
  json.BeginObject().Key(is_parameter ? "$parameter" : "$tensor").BeginObject();
  json.Key("shape").Ints(digest->shape);
  json.Key("dtype").Text(DTypeName(digest->dtype));
  json.Key("sha256").Text(digest->sha256);
  if (is_parameter) json.Key("requires_grad").Bool(graph_.boolean(args[1]));
  return Put(digested_[node] = json.End().End().Take());
}

Status ObjectRenderer::RenderCall(NodeId node, int depth) {
  if (const auto known = digested_.find(node); known != digested_.end()) return Put(known->second);
  const std::span<const NodeId> args = CallArgs(graph_, node);
  if (IsCallOf(graph_, node, "collections", "OrderedDict") && args.empty()) {
    hides_attributes_ = hides_attributes_ || graph_.state(node) != kNoNode;
    return RenderPairs(R"({"$ordered_dict":[)", graph_.entries(node), depth);
  }
  if (IsCallOf(graph_, node, "torch", "Size") && args.size() == 1 &&
      graph_.kind(args[0]) == NodeKind::kTuple) {
    return RenderList(R"({"$size":[)", graph_.items(args[0]), "]}", depth);
  }
  if (IsCallOf(graph_, node, "torch", "device") && !args.empty()) {
    return Put(fmt::format(R"({{"$device":{}}})", JsonText(DeviceText(graph_, node))));
  }
  if (IsCallOf(graph_, node, "torch.serialization", "_get_layout") && args.size() == 1 &&
      graph_.kind(args[0]) == NodeKind::kText) {
    const std::string_view layout = graph_.text(args[0]);
    return Put(fmt::format(R"({{"$layout":{}}})",
                           JsonText(layout.substr(layout.starts_with("torch.") ? 6 : 0))));
  }
  if (const auto bytes = BytesOf(graph_, node)) return PutBytes("$bytes", *bytes);
  if (const auto bytes = ByteArrayOf(graph_, node)) return PutBytes("$bytearray", *bytes);
  if (const auto value = ComplexOf(graph_, node)) {
    return Put(
        fmt::format(R"({{"$complex":[{},{}]}})", JsonFloat(value->real), JsonFloat(value->imag)));
  }
  if (auto set = SetItemsOf(graph_, node)) return RenderSet(*std::move(set), depth);
  if (const auto parts = PathPartsOf(graph_, node)) {
    JsonWriter json;
    json.BeginObject().Key("parts").BeginArray();
    for (const std::string& part : *parts) json.Raw(JsonText(part));
    return PutObject(node, json.End().End().Take());
  }
  if (const auto text = IsoFormatOf(graph_, node)) {
    return PutObject(node, fmt::format(R"({{"isoformat":{}}})", JsonText(*text)));
  }
  if (const auto scalar = NumpyScalarOf(graph_, node)) {
    return Put(fmt::format(R"({{"$numpy_scalar":{{"dtype":{},"bytes":"{}"}}}})",
                           JsonText(scalar->dtype), HexOf(AsBytes(scalar->bytes))));
  }
  if (const auto array = NumpyArrayOf(graph_, node)) {
    JsonWriter json;
    json.BeginObject().Key("$numpy_array").BeginObject();
    json.Key("dtype").Text(array->dtype).Key("shape").Ints(array->shape);
    json.Key("sha256").Text(HashHex(HashAlgorithm::kSha256, AsBytes(array->bytes)));
    return Put(digested_[node] = json.End().End().Take());
  }
  const NodeId state = graph_.state(node);
  const bool has_dict_state = state == kNoNode || graph_.kind(state) == NodeKind::kDict;
  if (IsCallOf(graph_, node, "types", "SimpleNamespace") && args.empty() && has_dict_state) {
    return RenderState(node, state, depth);
  }
  if (IsEnumCall(graph_, node)) {
    CKPT_RETURN_IF_ERROR(Put(fmt::format(R"({{"$object":{{"class":{},"state":{{"value":)",
                                         JsonText(graph_.QualifiedName(node)))));
    CKPT_RETURN_IF_ERROR(Render(args[0], depth + 1));
    return Put("}}}");
  }
  bool is_tensor = false;
  CKPT_RETURN_IF_ERROR(RenderTensor(node, &is_tensor));
  return is_tensor ? OkStatus() : PutOpaque(node);
}

Status ObjectRenderer::Render(NodeId node, int depth) {
  if (depth > options_.max_depth) {
    return Error(ErrorKind::kResource,
                 fmt::format("the object is nested deeper than {} levels, or contains itself",
                             options_.max_depth));
  }
  switch (graph_.kind(node)) {
    case NodeKind::kNone:
      return Put("null");
    case NodeKind::kBool:
      return Put(graph_.boolean(node) ? "true" : "false");
    case NodeKind::kInt: {
      const std::int64_t value = graph_.integer(node);
      if (value >= -kMaxPlainInt && value <= kMaxPlainInt) return Put(std::to_string(value));
      return Put(fmt::format(R"({{"$int":"{}"}})", value));
    }
    case NodeKind::kBigInt:
      if (graph_.text(node).size() > 4096) {
        return Error(ErrorKind::kResource, "an integer of more than 4096 bytes");
      }
      return Put(fmt::format(R"({{"$int":"{}"}})", FormatBigInt(graph_.text(node))));
    case NodeKind::kFloat:
      return Put(JsonFloat(graph_.number(node)));
    case NodeKind::kText:
      return Put(JsonText(graph_.text(node)));
    case NodeKind::kBytes:
      return PutBytes("$bytes", graph_.text(node));
    case NodeKind::kByteArray:
      return PutBytes("$bytearray", graph_.text(node));
    case NodeKind::kTuple:
      return RenderList(R"({"$tuple":[)", graph_.items(node), "]}", depth);
    case NodeKind::kList:
      return RenderList("[", graph_.items(node), "]", depth);
    case NodeKind::kDict:
      return RenderDict(node, depth);
    case NodeKind::kSet:
    case NodeKind::kFrozenSet:
      return RenderSet(*SetItemsOf(graph_, node), depth);
    case NodeKind::kGlobal:
      if (graph_.module(node) == "torch" && IsDTypeName(graph_.name(node))) {
        return Put(fmt::format(R"({{"$dtype":{}}})", JsonText(graph_.name(node))));
      }
      return PutOpaque(node);
    case NodeKind::kCall:
      return RenderCall(node, depth);
    case NodeKind::kInstance: {
      const NodeId state = graph_.state(node);
      const bool is_namespace = graph_.IsGlobal(graph_.callable(node), "argparse", "Namespace") ||
                                graph_.IsGlobal(graph_.callable(node), "types", "SimpleNamespace");
      if (is_namespace && (state == kNoNode || graph_.kind(state) == NodeKind::kDict)) {
        return RenderState(node, state, depth);
      }
      return PutOpaque(node);
    }
    case NodeKind::kPersistent:
    case NodeKind::kRecord:
      return PutOpaque(node);
  }
  return PutOpaque(node);
}

}  // namespace

Result<std::string> RenderJson(const Graph& graph, NodeId node, const RenderOptions& options) {
  return ObjectRenderer(graph, options).Run(node);
}

std::string PythonTypeName(const Graph& graph, NodeId node) {
  switch (graph.kind(node)) {
    case NodeKind::kNone:
      return "NoneType";
    case NodeKind::kGlobal:
      return graph.module(node) == "torch" && IsDTypeName(graph.name(node)) ? "dtype" : "type";
    case NodeKind::kCall:
    case NodeKind::kInstance:
    case NodeKind::kPersistent:
      break;
    case NodeKind::kBool:
    case NodeKind::kInt:
    case NodeKind::kBigInt:
    case NodeKind::kFloat:
    case NodeKind::kText:
    case NodeKind::kBytes:
    case NodeKind::kByteArray:
    case NodeKind::kTuple:
    case NodeKind::kList:
    case NodeKind::kDict:
    case NodeKind::kSet:
    case NodeKind::kFrozenSet:
    case NodeKind::kRecord:
      return std::string(NodeKindName(graph.kind(node)));
  }
  if (BytesOf(graph, node)) return "bytes";
  if (IsCallOf(graph, node, "torch.serialization", "_get_layout")) return "layout";
  if (NumpyScalarOf(graph, node)) return "numpy scalar";
  if (IsRebuildCall(graph, node, "_rebuild_parameter") ||
      IsRebuildCall(graph, node, "_rebuild_parameter_with_state")) {
    return "Parameter";
  }
  const std::string name = ClassName(graph, node);
  return name.substr(name.rfind('.') + 1);
}

Result<RenderedObject> RenderObject(const Graph& graph, NodeId root, const std::string& file,
                                    const std::string& key, const RenderOptions& options) {
  RenderedObject object;
  object.type = PythonTypeName(graph, root);
  ObjectRenderer renderer(graph, options);
  CKPT_ASSIGN_OR_RETURN(object.json, renderer.Run(root));
  object.hides_attributes = renderer.hides_attributes();
  object.warnings = WarnAboutCalls(graph, file, key);
  return object;
}

}  // namespace ckpt::pickle
