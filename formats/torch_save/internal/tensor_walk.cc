#include "formats/torch_save/internal/tensor_walk.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "formats/pickle/globals.h"
#include "formats/pickle/python_str.h"
#include "formats/pickle/repeated_keys.h"

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

constexpr std::size_t kMaxTensors = std::size_t{1} << 22;
constexpr std::size_t kMaxKeyBytes = std::size_t{1} << 28;
// A container that holds tensors is entered once for each path that leads to it.
constexpr std::size_t kMaxPlacesAgain = std::size_t{1} << 24;

// The name is made only when a tensor is found below, because keys can be long and shared.
struct Child {
  NodeId key = kNoNode;  // kNoNode: an item of a list
  std::uint32_t position = 0;
  NodeId node = kNoNode;
};

// The dict that stands for a mapping: itself, or the entries of an OrderedDict and the like.
NodeId AsDict(const Graph& graph, NodeId node) {
  if (graph.kind(node) == NodeKind::kDict) return node;
  if (graph.kind(node) == NodeKind::kCall || graph.kind(node) == NodeKind::kInstance) {
    return graph.entries(node);
  }
  return kNoNode;
}

// Whether it is the state of a pickled nn.Module.
bool IsModuleState(const Graph& graph, NodeId state) {
  return graph.kind(state) == NodeKind::kDict && graph.Find(state, "_parameters") != kNoNode &&
         graph.Find(state, "_buffers") != kNoNode && graph.Find(state, "_modules") != kNoNode;
}

bool IsContainer(NodeKind kind) {
  return kind == NodeKind::kList || kind == NodeKind::kTuple || kind == NodeKind::kDict ||
         kind == NodeKind::kCall || kind == NodeKind::kInstance;
}

// What a container holds, and how many places were visited to find that out.
struct Children {
  std::vector<Child> list;
  std::size_t places = 0;
};

// Only containers can be tensors or hold tensors.
void AddChild(const Graph& graph, Child child, Children& children) {
  ++children.places;
  if (IsContainer(graph.kind(child.node))) children.list.push_back(child);
}

// The list of pairs that a Python 2 pickle makes an OrderedDict from.
NodeId PairsOf(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kCall ||
      !graph.IsGlobal(graph.callable(node), "collections", "OrderedDict")) {
    return kNoNode;
  }
  const std::span<const NodeId> args = graph.items(graph.args(node));
  return args.size() == 1 && graph.kind(args[0]) == NodeKind::kList ? args[0] : kNoNode;
}

bool HoldsMapping(const Graph& graph, NodeId node) {
  return AsDict(graph, node) != kNoNode || PairsOf(graph, node) != kNoNode;
}

void AddEntries(const Graph& graph, NodeId mapping, Children& children) {
  if (mapping == kNoNode) return;
  if (const NodeId pairs = PairsOf(graph, mapping); pairs != kNoNode) {
    for (const NodeId pair : graph.items(pairs)) {
      const NodeKind kind = graph.kind(pair);
      if (kind != NodeKind::kList && kind != NodeKind::kTuple) continue;
      const std::span<const NodeId> parts = graph.items(pair);
      if (parts.size() == 2)
        AddChild(graph, {.key = parts[0], .position = 0, .node = parts[1]}, children);
    }
  }
  const NodeId dict = AsDict(graph, mapping);
  if (dict == kNoNode) return;
  const std::span<const NodeId> items = graph.items(dict);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    AddChild(graph, {.key = items[i], .position = 0, .node = items[i + 1]}, children);
  }
}

// Names in a set, which a pickle stores as a set or as a call of `set` with a list.
std::set<std::string_view> TextsOf(const Graph& graph, NodeId node) {
  std::set<std::string_view> texts;
  if (node == kNoNode) return texts;
  if (graph.kind(node) == NodeKind::kCall && graph.items(graph.args(node)).size() == 1) {
    node = graph.items(graph.args(node))[0];
  }
  if (graph.kind(node) != NodeKind::kSet && graph.kind(node) != NodeKind::kList) return texts;
  for (const NodeId item : graph.items(node)) {
    if (graph.kind(item) == NodeKind::kText) texts.insert(graph.text(item));
  }
  return texts;
}

Children ModuleChildren(const Graph& graph, NodeId state) {
  Children children;
  AddEntries(graph, graph.Find(state, "_parameters"), children);
  Children buffers;
  AddEntries(graph, graph.Find(state, "_buffers"), buffers);
  const std::set<std::string_view> transient =
      TextsOf(graph, graph.Find(state, "_non_persistent_buffers_set"));
  for (const Child& buffer : buffers.list) {
    const bool is_text = graph.kind(buffer.key) == NodeKind::kText;
    if (!is_text || !transient.contains(graph.text(buffer.key))) children.list.push_back(buffer);
  }
  children.places += graph.items(state).size() + buffers.places + transient.size();
  AddEntries(graph, graph.Find(state, "_modules"), children);
  return children;
}

// REQUIRES: a container.
Children ChildrenOf(const Graph& graph, NodeId node) {
  Children children;
  NodeId list = kNoNode;
  if (graph.kind(node) == NodeKind::kList || graph.kind(node) == NodeKind::kTuple) {
    list = node;
  } else if (HoldsMapping(graph, node)) {
    AddEntries(graph, node, children);
  } else {
    list = graph.appended(node);  // of a subclass of list
  }
  if (list != kNoNode) {
    std::uint32_t position = 0;
    for (const NodeId item : graph.items(list)) {
      AddChild(graph, {.key = kNoNode, .position = position++, .node = item}, children);
    }
  }
  return children;
}

bool IsSuspiciousCall(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kCall) return false;
  const NodeId function = graph.callable(node);
  return graph.kind(function) != NodeKind::kGlobal ||
         !pickle::IsHarmlessCall(graph.module(function), graph.name(function));
}

// How a path is written: "a.b.0", or "['a']['b'][0]", which no two places share.
enum class Spelling : std::uint8_t { kJoined, kSubscripts };

// A depth-first walk without recursion, because a pickle may be nested to any depth.
class TensorWalk {
 public:
  TensorWalk(const Graph& graph, Spelling spelling)
      : graph_(graph),
        spelling_(spelling),
        marks_(graph.size(), Mark::kNew),
        is_module_state_(graph.size(), Known::kNot),
        repeated_keys_(graph),
        places_left_(kMaxPlacesAgain) {}

  Result<std::vector<NamedNode>> Run(NodeId root) && {
    if (IsContainer(graph_.kind(root))) CKPT_RETURN_IF_ERROR(Visit(root));
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      if (frame.next == frame.children.size()) {
        // A container without tensors is not entered again. So sharing costs time only for names of
        // tensors.
        marks_[frame.node] = found_.size() == frame.found_before ? Mark::kBarren : Mark::kAgain;
        stack_.pop_back();
        continue;
      }
      CKPT_RETURN_IF_ERROR(Visit(frame.children[frame.next++].node));
    }
    return std::move(found_);
  }

 private:
  enum class Mark : std::uint8_t { kNew, kOpen, kBarren, kAgain };
  enum class Known : std::uint8_t { kNot, kYes, kNo };
  struct Frame {
    NodeId node;
    std::size_t found_before;
    std::vector<Child> children;
    std::size_t next;
  };

  // REQUIRES: a container.
  Status Visit(NodeId node) {
    if (marks_[node] == Mark::kOpen || marks_[node] == Mark::kBarren) return OkStatus();
    const TensorForm form = TensorFormOf(graph_, node);
    if (form != TensorForm::kNone || IsSuspiciousCall(graph_, node)) return AddFound(node, form);
    CKPT_ASSIGN_OR_RETURN(std::vector<Child> children, EnterChildren(node));
    marks_[node] = Mark::kOpen;
    stack_.push_back(
        {.node = node, .found_before = found_.size(), .children = std::move(children), .next = 0});
    return OkStatus();
  }

  Result<std::vector<Child>> EnterChildren(NodeId node) {
    const NodeId state = ModuleStateOf(node);
    const NodeId dict = state == kNoNode ? AsDict(graph_, node) : state;
    if (dict != kNoNode) {
      if (const std::optional<NodeId> key = repeated_keys_.FindIn(dict)) {
        return Error(ErrorKind::kBadMetadata, "a dict has the same key twice")
            .Actual(pickle::PythonRepr(graph_, *key));
      }
    }
    Children children = state == kNoNode ? ChildrenOf(graph_, node) : ModuleChildren(graph_, state);
    // First visits are bounded by the size of the pickle. But modules may share their parts, so
    // visits are counted.
    if (marks_[node] == Mark::kAgain || state != kNoNode) {
      if (children.places >= places_left_) {
        return Error(ErrorKind::kResource, "the object has more places than can be looked at")
            .Hint("containers that hold tensors are shared: listed one by one they are far more");
      }
      places_left_ -= children.places + 1;
    }
    return std::move(children.list);
  }

  // The state of a pickled nn.Module; kNoNode for anything else. It is kept, because objects may
  // share one large state.
  NodeId ModuleStateOf(NodeId node) {
    if (graph_.kind(node) != NodeKind::kInstance) return kNoNode;
    const NodeId state = graph_.state(node);
    if (state == kNoNode) return kNoNode;
    Known& known = is_module_state_[state];
    if (known == Known::kNot) known = IsModuleState(graph_, state) ? Known::kYes : Known::kNo;
    return known == Known::kYes ? state : kNoNode;
  }

  void AppendElement(const Child& child, bool is_first, std::string& path) const {
    const bool is_item = child.key == kNoNode;
    if (spelling_ == Spelling::kJoined) {
      if (!is_first) path += '.';
      path += is_item ? std::to_string(child.position) : pickle::PythonStr(graph_, child.key);
    } else {
      path += '[';
      path += is_item ? std::to_string(child.position) : pickle::PythonRepr(graph_, child.key);
      path += ']';
    }
  }

  Status AddFound(NodeId node, TensorForm form) {
    std::string path;
    for (const Frame& frame : stack_) {
      AppendElement(frame.children[frame.next - 1], &frame == &stack_.front(), path);
    }
    key_bytes_ += path.size();
    if (found_.size() == kMaxTensors || key_bytes_ > kMaxKeyBytes) {
      return Error(ErrorKind::kResource, "the object names more tensors than can be listed");
    }
    found_.push_back({std::move(path), node, form});
    return OkStatus();
  }

  const Graph& graph_;
  const Spelling spelling_;
  std::vector<Mark> marks_;
  std::vector<Known> is_module_state_;
  pickle::RepeatedKeys repeated_keys_;
  std::vector<Frame> stack_;
  std::vector<NamedNode> found_;
  std::size_t key_bytes_ = 0;
  std::size_t places_left_;
};

// Positions of the nodes whose key another node has, too.
std::vector<std::size_t> FindAmbiguous(const std::vector<NamedNode>& nodes) {
  std::unordered_map<std::string_view, std::size_t> times;
  for (const NamedNode& node : nodes) ++times[node.key];
  std::vector<std::size_t> ambiguous;
  if (times.size() == nodes.size()) return ambiguous;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (times[nodes[i].key] > 1) ambiguous.push_back(i);
  }
  return ambiguous;
}

}  // namespace

Result<std::vector<NamedNode>> FindTensors(const Graph& graph, NodeId root) {
  CKPT_ASSIGN_OR_RETURN(std::vector<NamedNode> found,
                        TensorWalk(graph, Spelling::kJoined).Run(root));
  const std::vector<std::size_t> ambiguous = FindAmbiguous(found);
  if (ambiguous.empty()) return found;
  CKPT_ASSIGN_OR_RETURN(std::vector<NamedNode> spelled,
                        TensorWalk(graph, Spelling::kSubscripts).Run(root));
  for (const std::size_t i : ambiguous) found[i].key = std::move(spelled[i].key);
  return found;
}

}  // namespace ckpt::torch_save
