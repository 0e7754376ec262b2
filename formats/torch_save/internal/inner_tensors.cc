#include "formats/torch_save/internal/inner_tensors.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "formats/pickle/python_str.h"
#include "formats/torch_save/internal/distributed_tensor.h"
#include "formats/torch_save/internal/module_states.h"
#include "formats/torch_save/tensor_rebuild.h"

namespace ckpt::torch_save {
namespace {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

constexpr std::size_t kMaxPathBytes = std::size_t{1} << 28;
// How many frames are walked to find paths. Parts without names take time, too.
constexpr std::size_t kMaxWalked = std::size_t{1} << 24;

// A step of the walk: to the value of a key, to an item of a list, to a part of an object without a
// name, or to the mesh and the placements of a DTensor.
struct Step {
  enum class Kind : std::uint8_t { kKey, kItem, kPart, kSpec };
  Kind kind = Kind::kPart;
  NodeId key = kNoNode;
  std::uint32_t position = 0;
  NodeId node = kNoNode;
};

bool IsMapping(const Graph& graph, NodeId node) {
  if (graph.kind(node) == NodeKind::kDict) return true;
  return graph.kind(node) != NodeKind::kList && graph.kind(node) != NodeKind::kTuple &&
         graph.entries(node) != kNoNode;
}

class InnerWalk {
 public:
  InnerWalk(const Graph& graph, const WholeNodes& whole)
      : graph_(graph), whole_(whole), is_seen_(graph.size(), false), module_states_(graph) {}

  Result<std::vector<InnerTensor>> Run(NodeId root) && {
    CKPT_RETURN_IF_ERROR(Visit({.node = root}, false));
    while (!stack_.empty()) {
      Frame& frame = stack_.back();
      if (frame.next == frame.steps.size()) {
        if (holder_depth_ == stack_.size()) holder_depth_ = 0;
        stack_.pop_back();
        continue;
      }
      CKPT_RETURN_IF_ERROR(Visit(frame.steps[frame.next++], frame.of_mesh));
    }
    return std::move(found_);
  }

 private:
  struct Frame {
    NodeId node;
    std::vector<Step> steps;
    std::size_t next;
    bool of_mesh;
  };

  Status Visit(const Step& step, bool is_below_mesh) {
    const NodeId node = step.node;
    if (is_seen_[node]) return OkStatus();
    is_seen_[node] = true;
    const bool of_mesh = is_below_mesh || step.kind == Step::Kind::kSpec;
    const bool is_tensor = TensorFormOf(graph_, node) == TensorForm::kDense;
    if (is_tensor || graph_.kind(node) == NodeKind::kPersistent) {
      CKPT_RETURN_IF_ERROR(AddFound(node, of_mesh));
    }
    std::vector<Step> steps = StepsFrom(node, is_tensor);
    if (steps.empty()) return OkStatus();
    stack_.push_back({.node = node, .steps = std::move(steps), .next = 0, .of_mesh = of_mesh});
    const bool is_holder = IsOpaque(node) || whole_.contains(node);
    if (holder_depth_ == 0 && is_holder) holder_depth_ = stack_.size();
    return OkStatus();
  }

  // Whether the path cannot go on here through mappings, lists and modules.
  bool IsOpaque(NodeId node) {
    const NodeKind kind = graph_.kind(node);
    if (kind != NodeKind::kCall && kind != NodeKind::kInstance) return false;
    return !IsMapping(graph_, node) && graph_.appended(node) == kNoNode &&
           module_states_.Of(node) == kNoNode;
  }

  std::vector<Step> StepsFrom(NodeId node, bool is_tensor) const {
    std::vector<Step> steps;
    if (const auto distributed = DistributedTensorOf(graph_, node)) {
      if (!is_tensor) Add({.node = distributed->local}, steps);
      Add({.kind = Step::Kind::kSpec, .node = distributed->spec}, steps);
    }
    if (is_tensor || !steps.empty()) return steps;
    const NodeKind kind = graph_.kind(node);
    if (kind == NodeKind::kDict) {
      AddPairs(node, steps);
    } else if (kind == NodeKind::kCall || kind == NodeKind::kInstance) {
      for (const NodeId part :
           {graph_.args(node), graph_.kwargs(node), graph_.appended(node), graph_.entries(node)}) {
        Add({.node = part}, steps);
      }
      AddState(graph_.state(node), steps);
    } else if (kind >= NodeKind::kTuple && kind <= NodeKind::kFrozenSet) {
      AddItems(node, steps);
    }
    return steps;
  }

  void Add(Step step, std::vector<Step>& steps) const {
    if (step.node == kNoNode) return;
    const NodeKind kind = graph_.kind(step.node);
    const bool may_hold = kind >= NodeKind::kTuple && kind != NodeKind::kGlobal;
    if (may_hold && !is_seen_[step.node]) steps.push_back(step);
  }

  void AddPairs(NodeId dict, std::vector<Step>& steps) const {
    const std::span<const NodeId> items = graph_.items(dict);
    for (std::size_t i = 0; i + 1 < items.size(); i += 2) {
      Add({.kind = Step::Kind::kKey, .key = items[i], .node = items[i + 1]}, steps);
    }
  }

  void AddItems(NodeId list, std::vector<Step>& steps) const {
    std::uint32_t position = 0;
    for (const NodeId item : graph_.items(list)) {
      Add({.kind = Step::Kind::kItem, .position = position++, .node = item}, steps);
    }
  }

  // A dict of attributes, or a tuple of two dicts, of which the second one is for slots.
  void AddState(NodeId state, std::vector<Step>& steps) const {
    if (state == kNoNode) return;
    if (graph_.kind(state) != NodeKind::kTuple) return Add({.node = state}, steps);
    for (const NodeId part : graph_.items(state)) Add({.node = part}, steps);
  }

  Status AddFound(NodeId node, bool of_mesh) {
    InnerTensor tensor{.node = node, .of_mesh = of_mesh};
    for (std::size_t depth = 0; depth < stack_.size(); ++depth) {
      const Frame& frame = stack_[depth];
      if (depth + 1 == holder_depth_) tensor.holder_key = std::exchange(tensor.path, {});
      const Step& step = frame.steps[frame.next - 1];
      if (step.kind == Step::Kind::kPart || step.kind == Step::Kind::kSpec) continue;
      if (!tensor.path.empty()) tensor.path += '.';
      tensor.path += step.kind == Step::Kind::kItem ? std::to_string(step.position)
                                                    : pickle::PythonStr(graph_, step.key);
    }
    if (holder_depth_ != 0) {
      tensor.holder = stack_[holder_depth_ - 1].node;
    } else if (graph_.kind(node) == NodeKind::kPersistent || whole_.contains(node)) {
      tensor.holder = node;
      tensor.holder_key = std::exchange(tensor.path, {});
    }
    path_bytes_ += tensor.path.size() + tensor.holder_key.size();
    walked_ += stack_.size();
    if (path_bytes_ > kMaxPathBytes || walked_ > kMaxWalked) {
      return Error(ErrorKind::kResource, "the object names more tensors than can be listed");
    }
    found_.push_back(std::move(tensor));
    return OkStatus();
  }

  const Graph& graph_;
  const WholeNodes& whole_;
  std::vector<bool> is_seen_;
  ModuleStates module_states_;
  std::vector<Frame> stack_;
  std::size_t holder_depth_ = 0;  // number of frames down to the holder; 0: there is no holder
  std::vector<InnerTensor> found_;
  std::size_t path_bytes_ = 0;
  std::size_t walked_ = 0;
};

}  // namespace

Result<std::vector<InnerTensor>> FindInnerTensors(const Graph& graph, NodeId root,
                                                  const WholeNodes& whole) {
  return InnerWalk(graph, whole).Run(root);
}

}  // namespace ckpt::torch_save
