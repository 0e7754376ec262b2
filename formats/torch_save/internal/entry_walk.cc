#include "formats/torch_save/internal/entry_walk.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "formats/pickle/globals.h"
#include "formats/pickle/python_str.h"
#include "formats/pickle/repeated_keys.h"
#include "formats/torch_save/internal/module_states.h"

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

constexpr std::size_t kMaxTensors = std::size_t{1} << 22;
constexpr std::size_t kMaxValues = std::size_t{1} << 20;
constexpr std::size_t kMaxKeyBytes = std::size_t{1} << 28;
// A container that holds something named is entered once for each path that leads to it.
constexpr std::size_t kMaxPlacesAgain = std::size_t{1} << 24;
// A mapping with more values than this, and nothing else, is one value: a vocabulary, say.
constexpr std::size_t kMaxValuesOfMapping = 10'000;

// The name is made only when something is found below, because keys can be long and shared.
struct Child {
  NodeId key = kNoNode;  // kNoNode: an item of a list
  std::uint32_t position = 0;
  NodeId node = kNoNode;
  bool is_attribute = false;
};

// The dict that stands for a mapping: itself, or the entries of an OrderedDict and the like.
NodeId AsDict(const Graph& graph, NodeId node) {
  if (graph.kind(node) == NodeKind::kDict) return node;
  if (graph.kind(node) == NodeKind::kCall || graph.kind(node) == NodeKind::kInstance) {
    return graph.entries(node);
  }
  return kNoNode;
}

bool IsContainer(NodeKind kind) {
  return kind == NodeKind::kList || kind == NodeKind::kTuple || kind == NodeKind::kDict ||
         kind == NodeKind::kCall || kind == NodeKind::kInstance;
}

// What a container holds, and how many places were visited to find that out.
struct Children {
  std::vector<Child> list;    // containers: they alone can be tensors or hold tensors
  std::vector<Child> values;  // of a mapping, what is no container
  bool is_mapping = false;
  std::size_t places = 0;
};

void AddChild(const Graph& graph, Child child, Children& children) {
  ++children.places;
  if (IsContainer(graph.kind(child.node))) {
    children.list.push_back(child);
  } else if (child.key != kNoNode) {
    children.values.push_back(child);
  }
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

// The items of a list, a tuple, or an object of a subclass of list. REQUIRES: a container.
std::span<const NodeId> SequenceOf(const Graph& graph, NodeId node) {
  const NodeKind kind = graph.kind(node);
  if (kind == NodeKind::kList || kind == NodeKind::kTuple) return graph.items(node);
  if (HoldsMapping(graph, node)) return {};
  const NodeId appended = graph.appended(node);
  return appended == kNoNode ? std::span<const NodeId>() : graph.items(appended);
}

// REQUIRES: a container.
Children ChildrenOf(const Graph& graph, NodeId node) {
  Children children;
  const NodeKind kind = graph.kind(node);
  const bool is_sequence = kind == NodeKind::kList || kind == NodeKind::kTuple;
  if (!is_sequence && HoldsMapping(graph, node)) {
    children.is_mapping = true;
    AddEntries(graph, node, children);
    return children;
  }
  std::uint32_t position = 0;
  for (const NodeId item : SequenceOf(graph, node)) {
    AddChild(graph, {.key = kNoNode, .position = position++, .node = item}, children);
  }
  return children;
}

// The attributes of an OrderedDict, a dict; kNoNode if it has none, and of every other value: what
// a class of a program's own keeps is known to that program.
NodeId AttributesOf(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kCall ||
      !graph.IsGlobal(graph.callable(node), "collections", "OrderedDict")) {
    return kNoNode;
  }
  const NodeId state = graph.state(node);
  return state != kNoNode && graph.kind(state) == NodeKind::kDict ? state : kNoNode;
}

bool HasOwnClass(const Graph& graph, NodeId container) {
  const NodeKind kind = graph.kind(container);
  if (kind != NodeKind::kCall && kind != NodeKind::kInstance) return false;
  return !graph.IsGlobal(graph.callable(container), "collections", "OrderedDict");
}

// Of a key that is told apart from its str; nothing: of any other one.
std::optional<PathStep> StepOfKey(const Graph& graph, NodeId key) {
  switch (graph.kind(key)) {
    case NodeKind::kNone:
      return PathStep(ConstantKey::kNone);
    case NodeKind::kBool:
      return PathStep(graph.boolean(key) ? ConstantKey::kTrue : ConstantKey::kFalse);
    case NodeKind::kInt:
      return PathStep(NumberKey{graph.integer(key)});
    default:
      return std::nullopt;
  }
}

bool IsSuspiciousCall(const Graph& graph, NodeId node) {
  if (graph.kind(node) != NodeKind::kCall) return false;
  const NodeId function = graph.callable(node);
  return graph.kind(function) != NodeKind::kGlobal ||
         !pickle::IsHarmlessCall(graph.module(function), graph.name(function));
}

// How a path is written: "a.b.0", or "['a']['b'][0]", which no two places share.
enum class Spelling : std::uint8_t { kJoined, kSubscripts };

enum class Values : std::uint8_t { kSkip, kName };

enum class Places : std::uint8_t { kSkip, kTell };

struct Walked {
  std::vector<NamedNode> found;
  OwnClasses own_classes;
};

// A depth-first walk without recursion, because a pickle may be nested to any depth.
class EntryWalk {
 public:
  EntryWalk(const Graph& graph, const WholeNodes& whole, Values values, Spelling spelling,
            Places places)
      : graph_(graph),
        whole_(whole),
        values_(values),
        spelling_(spelling),
        places_(places),
        marks_(graph.size(), Mark::kNew),
        module_states_(graph),
        repeated_keys_(graph),
        places_left_(kMaxPlacesAgain) {}

  Result<Walked> Run(NodeId root) && {
    if (IsContainer(graph_.kind(root))) CKPT_RETURN_IF_ERROR(Visit(root));
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      const bool is_done = frame.next == frame.children.list.size();
      CKPT_RETURN_IF_ERROR(is_done ? Leave() : Visit(frame.children.list[frame.next++].node));
    }
    const bool is_empty = graph_.kind(root) == NodeKind::kDict && graph_.items(root).empty();
    if (values_ == Values::kName && found_.empty() && !is_empty) {
      found_.push_back({.key = "", .node = root, .is_value = true});
    }
    return Walked{.found = std::move(found_), .own_classes = std::move(own_classes_)};
  }

 private:
  enum class Mark : std::uint8_t { kNew, kOpen, kBarren, kAgain };
  struct Frame {
    NodeId node;
    bool is_module;
    std::size_t found_before;
    std::size_t tensors_before;
    Children children;  // with a barren container among the values, once it was left
    std::size_t next;

    // REQUIRES: one was visited.
    [[nodiscard]] const Child& Current() const { return children.list[next - 1]; }
  };

  // REQUIRES: a container.
  Status Visit(NodeId node) {
    if (!stack_.empty() && whole_.contains(node)) {
      return AddFound({.key = {}, .node = node, .is_value = true}, ChildOfTop());
    }
    // What contains itself is not entered again.
    if (marks_[node] == Mark::kOpen || marks_[node] == Mark::kBarren) {
      AddValueToParent();
      return OkStatus();
    }
    const TensorForm form = TensorFormOf(graph_, node);
    if (form != TensorForm::kNone || IsSuspiciousCall(graph_, node)) {
      ++tensors_;
      return AddFound({.key = {}, .node = node, .form = form}, ChildOfTop());
    }
    const NodeId state = module_states_.Of(node);
    CKPT_ASSIGN_OR_RETURN(Children children, EnterChildren(node, state));
    marks_[node] = Mark::kOpen;
    stack_.push_back({.node = node,
                      .is_module = state != kNoNode,
                      .found_before = found_.size(),
                      .tensors_before = tensors_,
                      .children = std::move(children),
                      .next = 0});
    return OkStatus();
  }

  // A container in which nothing is named is a value of the one around it, and is not entered
  // again. So sharing costs time only for names.
  Status Leave() {
    Frame& frame = stack_.back();
    const Children& children = frame.children;
    const bool holds_tensors = tensors_ > frame.tensors_before;
    // torch takes a list apart for a mapping inside it, and no other sequence.
    const bool is_list = graph_.kind(frame.node) == NodeKind::kList;
    if (!holds_tensors && !children.is_mapping && !is_list) found_.resize(frame.found_before);
    const bool holds_entries = found_.size() > frame.found_before;
    const bool is_short = children.is_mapping && children.values.size() <= kMaxValuesOfMapping;
    const bool has_values = values_ == Values::kName && !frame.is_module;
    if (has_values && (holds_entries || is_short)) CKPT_RETURN_IF_ERROR(AddValues(frame));
    const bool is_barren = found_.size() == frame.found_before;
    if (has_values && !is_barren) {
      CKPT_RETURN_IF_ERROR(AddAttributes(frame));
      NoteClass(frame.node);
    }
    marks_[frame.node] = is_barren ? Mark::kBarren : Mark::kAgain;
    stack_.pop_back();
    if (key_ends_.size() > stack_.size()) key_ends_.pop_back();
    if (is_barren) AddValueToParent();
    return OkStatus();
  }

  // The values of a mapping or a sequence, each as an entry. REQUIRES: it is on top of the stack.
  Status AddValues(const Frame& frame) {
    for (const Child& value : frame.children.values) {
      CKPT_RETURN_IF_ERROR(AddFound({.key = {}, .node = value.node, .is_value = true}, &value));
    }
    if (frame.children.is_mapping) return OkStatus();
    std::uint32_t position = 0;
    for (const NodeId item : SequenceOf(graph_, frame.node)) {
      const Child child = {.key = kNoNode, .position = position++, .node = item};
      if (IsContainer(graph_.kind(item))) continue;  // found, or a value
      CKPT_RETURN_IF_ERROR(AddFound({.key = {}, .node = item, .is_value = true}, &child));
    }
    return OkStatus();
  }

  // REQUIRES: it is on top of the stack.
  Status AddAttributes(const Frame& frame) {
    const NodeId state = AttributesOf(graph_, frame.node);
    if (state == kNoNode) return OkStatus();
    const std::span<const NodeId> items = graph_.items(state);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      if (graph_.kind(items[i]) != NodeKind::kText) continue;
      const Child child = {
          .key = items[i], .position = 0, .node = items[i + 1], .is_attribute = true};
      CKPT_RETURN_IF_ERROR(AddFound(
          {.key = {}, .node = child.node, .is_value = true, .is_attribute = true}, &child));
    }
    return OkStatus();
  }

  // REQUIRES: it is on top of the stack.
  void NoteClass(NodeId node) {
    if (!HasOwnClass(graph_, node) || own_classes_.count++ > 0) return;
    own_classes_.first = node;
    own_classes_.first_key = KeyOfTop();
  }

  // Where the walk is below the container on top; null at the root.
  [[nodiscard]] const Child* ChildOfTop() const {
    if (stack_.empty()) return nullptr;
    return &stack_.back().Current();
  }

  void AddValueToParent() {
    if (const Child* child = ChildOfTop()) stack_.back().children.values.push_back(*child);
  }

  Result<Children> EnterChildren(NodeId node, NodeId module_state) {
    const NodeId dict = module_state == kNoNode ? AsDict(graph_, node) : module_state;
    if (dict != kNoNode) {
      if (const std::optional<NodeId> key = repeated_keys_.FindIn(dict)) {
        return Error(ErrorKind::kBadMetadata, "a dict has the same key twice")
            .Actual(pickle::PythonRepr(graph_, *key));
      }
    }
    const bool is_module = module_state != kNoNode;
    Children children = is_module ? ModuleChildren(graph_, module_state) : ChildrenOf(graph_, node);
    // First visits are bounded by the size of the pickle. But modules may share their parts, so
    // visits are counted.
    if (marks_[node] == Mark::kAgain || is_module) {
      if (children.places >= places_left_) {
        return Error(ErrorKind::kResource, "the object has more places than can be looked at")
            .Hint("containers that hold tensors are shared: listed one by one they are far more");
      }
      places_left_ -= children.places + 1;
    }
    return children;
  }

  void AppendElement(const Child& child, bool is_first, std::string& path) const {
    const bool is_item = child.key == kNoNode;
    if (spelling_ == Spelling::kJoined || child.is_attribute) {
      if (!is_first || spelling_ == Spelling::kSubscripts) path += '.';
      path += is_item ? std::to_string(child.position) : pickle::PythonStr(graph_, child.key);
    } else {
      path += '[';
      path += is_item ? std::to_string(child.position) : pickle::PythonRepr(graph_, child.key);
      path += ']';
    }
  }

  // A module inside another one is part of its state_dict, which is not nested.
  void AppendStep(const Child& child, std::size_t depth, EntryPath& path) const {
    const bool is_item = child.key == kNoNode;
    if (child.is_attribute) {
      path.emplace_back(AttributeName{std::string(graph_.text(child.key))});
      return;
    }
    if (is_item && depth > 0) {
      path.emplace_back(std::int64_t{child.position});
      return;
    }
    // What a module is called inside another one is a name, whatever its key is.
    if (!is_item && !stack_[depth].is_module) {
      if (std::optional<PathStep> step = StepOfKey(graph_, child.key)) {
        path.push_back(*std::move(step));
        return;
      }
    }
    std::string name =
        is_item ? std::to_string(child.position) : pickle::PythonStr(graph_, child.key);
    if (depth > 0 && stack_[depth].is_module && stack_[depth - 1].is_module) {
      std::get<std::string>(path.back()) += '.' + name;
    } else {
      path.emplace_back(std::move(name));
    }
  }

  // The key of the container on top of the stack. A container gets its key with the first entry
  // that is named in it: keys are long where an object is built to make them so.
  const std::string& KeyOfTop() {
    key_.resize(key_ends_.empty() ? 0 : key_ends_.back());
    for (std::size_t depth = key_ends_.size(); depth < stack_.size(); ++depth) {
      if (depth > 0) AppendElement(stack_[depth - 1].Current(), depth == 1, key_);
      key_ends_.push_back(key_.size());
    }
    return key_;
  }

  // `child`: of the container on top of the stack; null for the root.
  Status AddFound(NamedNode named, const Child* child) {
    named.key = KeyOfTop();
    if (!stack_.empty()) AppendElement(*child, stack_.size() == 1, named.key);
    for (std::size_t depth = 0; places_ == Places::kTell && depth < stack_.size(); ++depth) {
      const Frame& frame = stack_[depth];
      const bool is_last = depth + 1 == stack_.size();
      AppendStep(is_last ? *child : frame.Current(), depth, named.path);
    }
    key_bytes_ += named.key.size() + named.path.size() * sizeof(PathStep);
    if (found_.size() == kMaxTensors || key_bytes_ > kMaxKeyBytes) {
      return Error(ErrorKind::kResource, "the object names more tensors than can be listed");
    }
    if (named.is_value && ++num_values_ > kMaxValues) {
      return Error(ErrorKind::kResource, "the object has more values than can be listed");
    }
    found_.push_back(std::move(named));
    return OkStatus();
  }

  const Graph& graph_;
  const WholeNodes& whole_;
  const Values values_;
  const Spelling spelling_;
  const Places places_;
  std::vector<Mark> marks_;
  ModuleStates module_states_;
  pickle::RepeatedKeys repeated_keys_;
  std::vector<Frame> stack_;
  std::string key_;                    // of the deepest container in key_ends_, and more
  std::vector<std::size_t> key_ends_;  // where the keys of containers in stack_ end in it
  std::vector<NamedNode> found_;
  OwnClasses own_classes_;
  std::size_t tensors_ = 0;  // that were found, and calls
  std::size_t num_values_ = 0;
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

Result<Walked> Find(const Graph& graph, NodeId root, const WholeNodes& whole, Values values,
                    Places places = Places::kSkip) {
  CKPT_ASSIGN_OR_RETURN(Walked walked,
                        EntryWalk(graph, whole, values, Spelling::kJoined, places).Run(root));
  const std::vector<std::size_t> ambiguous = FindAmbiguous(walked.found);
  if (ambiguous.empty()) return walked;
  CKPT_ASSIGN_OR_RETURN(
      Walked spelled,
      EntryWalk(graph, whole, values, Spelling::kSubscripts, Places::kSkip).Run(root));
  for (const std::size_t i : ambiguous) walked.found[i].key = std::move(spelled.found[i].key);
  return walked;
}

// A number is a position in a list, or a key that is a number; kNoNode if nothing is there. An
// attribute is one value without being told so.
NodeId NodeBehind(const Graph& graph, NodeId node, const PathStep& step) {
  if (std::holds_alternative<AttributeName>(step)) return kNoNode;
  const auto* const position = std::get_if<std::int64_t>(&step);
  const PathStep key = position == nullptr ? step : PathStep(NumberKey{*position});
  if (graph.kind(node) == NodeKind::kList) {
    const auto* const number = std::get_if<NumberKey>(&key);
    const std::span<const NodeId> items = graph.items(node);
    const bool is_inside = number != nullptr && number->number >= 0 &&
                           static_cast<std::uint64_t>(number->number) < items.size();
    return is_inside ? items[static_cast<std::size_t>(number->number)] : kNoNode;
  }
  if (graph.kind(node) != NodeKind::kDict) return kNoNode;
  if (const auto* const text = std::get_if<std::string>(&key)) return graph.Find(node, *text);
  const std::span<const NodeId> items = graph.items(node);
  for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
    if (StepOfKey(graph, items[i]) == key) return items[i + 1];
  }
  return kNoNode;
}

}  // namespace

Result<std::vector<NamedNode>> FindTensors(const Graph& graph, NodeId root) {
  CKPT_ASSIGN_OR_RETURN(Walked walked, Find(graph, root, {}, Values::kSkip));
  return std::move(walked.found);
}

Result<Entries> FindEntries(const Graph& graph, NodeId root, const WholeNodes& whole) {
  Result<Walked> all = Find(graph, root, whole, Values::kName);
  if (all.ok()) {
    Entries entries{.list = std::move(all->found), .own_classes = std::move(all->own_classes)};
    const auto first =
        std::stable_partition(entries.list.begin(), entries.list.end(),
                              [](const NamedNode& named) { return !named.is_attribute; });
    entries.attributes.assign(std::move_iterator(first), std::move_iterator(entries.list.end()));
    entries.list.erase(first, entries.list.end());
    return entries;
  }
  if (all.status().kind() != ErrorKind::kResource) return std::move(all).status();
  CKPT_ASSIGN_OR_RETURN(std::vector<NamedNode> tensors, FindTensors(graph, root));
  return Entries{.list = std::move(tensors), .has_values = false};
}

Result<EntryPaths> FindPaths(const Graph& graph, NodeId root, const WholeNodes& whole) {
  CKPT_ASSIGN_OR_RETURN(Walked walked, Find(graph, root, whole, Values::kName, Places::kTell));
  EntryPaths paths;
  for (NamedNode& named : walked.found) {
    if (!named.path.empty()) paths.emplace(std::move(named.key), std::move(named.path));
  }
  return paths;
}

WholeNodes NodesAt(const Graph& graph, NodeId root, std::span<const EntryPath> places) {
  WholeNodes nodes;
  for (const EntryPath& place : places) {
    NodeId node = root;
    for (const PathStep& step : place) {
      if (node != kNoNode) node = NodeBehind(graph, node, step);
    }
    if (node != kNoNode && node != root) nodes.insert(node);
  }
  return nodes;
}

}  // namespace ckpt::torch_save
