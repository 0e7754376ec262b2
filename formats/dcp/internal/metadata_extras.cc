#include "formats/dcp/internal/metadata_extras.h"

#include <span>
#include <unordered_set>
#include <utility>

#include "core/base/warning.h"
#include "formats/pickle/object_json.h"

namespace ckpt::dcp {

using pickle::Graph;
using pickle::kNoNode;
using pickle::NodeId;
using pickle::NodeKind;

namespace {

// A value that is larger and is not planner_data was made to exhaust memory.
constexpr std::uint64_t kMaxPlannerBytes = 16ULL << 20;

// A small pickle may let many keys share one path or dict of a million entries, or many steps share
// one text of a megabyte. These limits bound what is copied for each of them.
constexpr std::size_t kMaxPathSteps = 256;
constexpr std::uint64_t kMaxTimesCopied = 64;
constexpr std::size_t kMaxOriginalFields = 64;

std::optional<std::string> TextOf(const Graph& graph, NodeId node) {
  if (node == kNoNode || graph.kind(node) != NodeKind::kText) return std::nullopt;
  return std::string(graph.text(node));
}

// Counts the bytes of text that are copied from a graph, and allows only a multiple of the graph's
// own.
class TextCopies {
 public:
  explicit TextCopies(const Graph& graph)
      : graph_(graph), left_bytes_(kMaxTimesCopied * graph.text_bytes()) {}

  std::optional<std::string> Copy(NodeId text) {
    const std::string_view view = graph_.text(text);
    if (view.size() > left_bytes_) return std::nullopt;
    left_bytes_ -= view.size();
    return std::string(view);
  }

 private:
  const Graph& graph_;
  std::uint64_t left_bytes_;
};

std::optional<PlannerEntry> PlannerEntryOf(const Graph& graph, NodeId key, NodeId path,
                                           TextCopies& copies) {
  const NodeKind kind = graph.kind(path);
  if (graph.kind(key) != NodeKind::kText || (kind != NodeKind::kTuple && kind != NodeKind::kList)) {
    return std::nullopt;
  }
  if (graph.items(path).size() > kMaxPathSteps) return std::nullopt;
  std::optional<std::string> name = copies.Copy(key);
  if (!name) return std::nullopt;
  PlannerEntry entry;
  entry.key = *std::move(name);
  for (const NodeId step : graph.items(path)) {
    if (graph.kind(step) == NodeKind::kText) {
      std::optional<std::string> text = copies.Copy(step);
      if (!text) return std::nullopt;
      entry.path.emplace_back(*std::move(text));
    } else if (graph.kind(step) == NodeKind::kInt) {
      entry.path.emplace_back(graph.integer(step));
    } else {
      return std::nullopt;
    }
  }
  return entry;
}

// Why planner_data is not used. Rendering it shows whether it is too large or only of another type.
Problem PlannerWarning(const Graph& graph, NodeId planner, const std::string& file,
                       std::string message) {
  const Result<std::string> rendered =
      pickle::RenderJson(graph, planner, {.tensor = nullptr, .max_bytes = kMaxPlannerBytes});
  const ErrorKind kind = rendered.ok() ? ErrorKind::kBadMetadata : rendered.status().kind();
  if (!rendered.ok()) message += ": " + rendered.status().first().message;
  return Warning(kind, std::move(message), file);
}

void ReadPlannerData(const Graph& graph, NodeId planner, const std::string& file,
                     MetadataExtras& extras, std::vector<Problem>& warnings) {
  if (planner == kNoNode || graph.kind(planner) == NodeKind::kNone) return;
  if (graph.kind(planner) != NodeKind::kDict) {
    warnings.push_back(
        PlannerWarning(graph, planner, file, "planner_data is not a dict of paths and is ignored"));
    return;
  }
  std::vector<PlannerEntry> entries;
  const std::span<const NodeId> pairs = graph.items(planner);
  entries.reserve(pairs.size() / 2);
  TextCopies copies(graph);
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    std::optional<PlannerEntry> entry = PlannerEntryOf(graph, pairs[i], pairs[i + 1], copies);
    if (!entry) {
      warnings.push_back(PlannerWarning(
          graph, planner, file, "planner_data holds something that is not a path and is ignored"));
      return;
    }
    entries.push_back(*std::move(entry));
  }
  if (!extras.planner_data) {
    extras.planner_data = std::move(entries);
    return;
  }
  // Ranks that each saved alone repeat what they have in common. The lowest rank's value is used.
  std::unordered_set<std::string> known;
  for (const PlannerEntry& entry : *extras.planner_data) known.insert(entry.key);
  for (PlannerEntry& entry : entries) {
    if (known.insert(entry.key).second) extras.planner_data->push_back(std::move(entry));
  }
}

void ReadOriginalShapes(const Graph& graph, NodeId mcore_data, MetadataReducer& reducer,
                        const DimsPool& dims, std::map<std::string, Dims>& shapes) {
  if (mcore_data == kNoNode || graph.kind(mcore_data) != NodeKind::kDict) return;
  const std::span<const NodeId> pairs = graph.items(mcore_data);
  std::unordered_set<NodeId> known;
  for (std::size_t i = 0; i < pairs.size(); i += 2) {
    if (!known.insert(pairs[i]).second) continue;
    if (graph.kind(pairs[i]) != NodeKind::kText || graph.kind(pairs[i + 1]) != NodeKind::kDict) {
      continue;
    }
    if (graph.items(pairs[i + 1]).size() > kMaxOriginalFields) continue;
    const NodeId shape = graph.Find(pairs[i + 1], "nd_reformulated_orig_global_shape");
    if (const std::optional<DimsId> id = reducer.DimsOf(graph, shape)) {
      const DimsView view = dims.Get(*id);
      shapes.try_emplace(std::string(graph.text(pairs[i])), view.begin(), view.end());
    }
  }
}

// The state of an instance; kNoNode if the node is not an instance.
NodeId StateOf(const Graph& graph, NodeId node) {
  if (node == kNoNode || graph.kind(node) != NodeKind::kInstance) return kNoNode;
  const NodeId state = graph.state(node);
  return state != kNoNode && graph.kind(state) == NodeKind::kDict ? state : kNoNode;
}

}  // namespace

void ReadExtras(const Graph& graph, NodeId state, const std::string& file, MetadataReducer& reducer,
                const DimsPool& dims, MetadataExtras& extras, std::vector<Problem>& warnings) {
  ReadPlannerData(graph, graph.Find(state, "planner_data"), file, extras, warnings);
  ReadOriginalShapes(graph, graph.Find(state, "mcore_data"), reducer, dims, extras.original_shapes);
  if (!extras.version) extras.version = TextOf(graph, graph.Find(state, "version"));
  const NodeId meta = StateOf(graph, graph.Find(state, "storage_meta"));
  if (meta == kNoNode) return;
  // torch's own writer leaves a pathlib object here. It repeats the path that the user gave.
  if (!extras.checkpoint_id)
    extras.checkpoint_id = TextOf(graph, graph.Find(meta, "checkpoint_id"));
  if (!extras.save_id) extras.save_id = TextOf(graph, graph.Find(meta, "save_id"));
}

}  // namespace ckpt::dcp
