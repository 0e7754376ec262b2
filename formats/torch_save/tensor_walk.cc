#include "formats/torch_save/tensor_walk.h"

#include <cstdint>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "formats/torch_save/pickle_globals.h"
#include "formats/torch_save/python_str.h"

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

constexpr std::size_t kMaxTensors = std::size_t{1} << 22;
constexpr std::size_t kMaxKeyBytes = std::size_t{1} << 28;

struct Child {
  std::string name;
  NodeId node = kNoNode;
};

// The dict that stands for a mapping: itself, or the entries of an OrderedDict and the like.
NodeId AsDict(const Graph& graph, NodeId node) {
  if (node == kNoNode) return kNoNode;
  if (graph.kind(node) == NodeKind::kDict) return node;
  if (graph.kind(node) == NodeKind::kCall || graph.kind(node) == NodeKind::kInstance) {
    return graph.entries(node);
  }
  return kNoNode;
}

// The state of a pickled nn.Module; kNoNode if it is none.
NodeId ModuleState(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kInstance) return kNoNode;
  const NodeId state = graph.state(node);
  if (state == kNoNode || graph.kind(state) != NodeKind::kDict) return kNoNode;
  const bool is_module = graph.Find(state, "_parameters") != kNoNode &&
                         graph.Find(state, "_buffers") != kNoNode &&
                         graph.Find(state, "_modules") != kNoNode;
  return is_module ? state : kNoNode;
}

void AddEntries(const Graph& graph, NodeId dict, std::vector<Child>& children) {
  if (dict == kNoNode) return;
  const std::span<const NodeId> items = graph.items(dict);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    children.push_back({pickle::PythonStr(graph, items[i]), items[i + 1]});
  }
}

// Names in a set that a pickle may hold as such or as a call of `set` on a list.
std::set<std::string_view> TextsOf(const Graph& graph, NodeId node) {
  std::set<std::string_view> texts;
  if (node == kNoNode) return texts;
  if (graph.kind(node) == NodeKind::kCall && graph.kind(graph.args(node)) == NodeKind::kTuple &&
      graph.items(graph.args(node)).size() == 1) {
    node = graph.items(graph.args(node))[0];
  }
  if (graph.kind(node) != NodeKind::kSet && graph.kind(node) != NodeKind::kList) return texts;
  for (const NodeId item : graph.items(node)) {
    if (graph.kind(item) == NodeKind::kText) texts.insert(graph.text(item));
  }
  return texts;
}

std::vector<Child> ModuleChildren(const Graph& graph, NodeId state) {
  std::vector<Child> children;
  AddEntries(graph, AsDict(graph, graph.Find(state, "_parameters")), children);
  std::vector<Child> buffers;
  AddEntries(graph, AsDict(graph, graph.Find(state, "_buffers")), buffers);
  const std::set<std::string_view> transient =
      TextsOf(graph, graph.Find(state, "_non_persistent_buffers_set"));
  for (Child& buffer : buffers) {
    if (!transient.contains(buffer.name)) children.push_back(std::move(buffer));
  }
  AddEntries(graph, AsDict(graph, graph.Find(state, "_modules")), children);
  return children;
}

std::vector<Child> ChildrenOf(const Graph& graph, NodeId node) {
  if (const NodeId state = ModuleState(graph, node); state != kNoNode) {
    return ModuleChildren(graph, state);
  }
  std::vector<Child> children;
  NodeId list = kNoNode;
  if (graph.kind(node) == NodeKind::kList || graph.kind(node) == NodeKind::kTuple) {
    list = node;
  } else if (const NodeId dict = AsDict(graph, node); dict != kNoNode) {
    AddEntries(graph, dict, children);
  } else if (graph.kind(node) == NodeKind::kCall || graph.kind(node) == NodeKind::kInstance) {
    list = graph.appended(node);  // of a subclass of list
  }
  if (list != kNoNode) {
    for (const NodeId item : graph.items(list)) {
      children.push_back({std::to_string(children.size()), item});
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

bool IsContainer(NodeKind kind) {
  return kind == NodeKind::kList || kind == NodeKind::kTuple || kind == NodeKind::kDict ||
         kind == NodeKind::kCall || kind == NodeKind::kInstance;
}

// A depth-first walk with a stack of its own: pickles nest as deep as their writer likes.
class Walk {
 public:
  explicit Walk(const Graph& graph) : graph_(graph), marks_(graph.size(), Mark::kNew) {}

  Result<std::vector<NamedNode>> Run(NodeId root) && {
    CKPT_RETURN_IF_ERROR(Visit(root));
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      path_.resize(frame.path_bytes);
      if (frame.next == frame.children.size()) {
        // What holds no tensor is not entered again, so sharing multiplies nothing but names of tensors.
        marks_[frame.node] = found_.size() == frame.found_before ? Mark::kBarren : Mark::kNew;
        stack_.pop_back();
        continue;
      }
      const Child& child = frame.children[frame.next++];
      if (stack_.size() > 1) path_ += '.';
      path_ += child.name;
      CKPT_RETURN_IF_ERROR(Visit(child.node));
    }
    return std::move(found_);
  }

 private:
  enum class Mark : std::uint8_t { kNew, kOpen, kBarren };
  struct Frame {
    NodeId node;
    std::size_t path_bytes;
    std::size_t found_before;
    std::vector<Child> children;
    std::size_t next;
  };

  Status Visit(NodeId node) {
    if (!IsContainer(graph_.kind(node)) || marks_[node] != Mark::kNew) return OkStatus();
    const TensorForm form = TensorFormOf(graph_, node);
    if (form == TensorForm::kNone && !IsSuspiciousCall(graph_, node)) {
      marks_[node] = Mark::kOpen;
      stack_.push_back({.node = node,
                        .path_bytes = path_.size(),
                        .found_before = found_.size(),
                        .children = ChildrenOf(graph_, node),
                        .next = 0});
      return OkStatus();
    }
    key_bytes_ += path_.size();
    if (found_.size() == kMaxTensors || key_bytes_ > kMaxKeyBytes) {
      return Error(ErrorKind::kResource, "the object names more tensors than can be listed");
    }
    found_.push_back({path_, node, form});
    return OkStatus();
  }

  const Graph& graph_;
  std::vector<Mark> marks_;
  std::vector<Frame> stack_;
  std::vector<NamedNode> found_;
  std::string path_;
  std::size_t key_bytes_ = 0;
};

}  // namespace

Result<std::vector<NamedNode>> FindTensors(const Graph& graph, NodeId root) {
  return Walk(graph).Run(root);
}

}  // namespace ckpt::torch_save
