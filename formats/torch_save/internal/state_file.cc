#include "formats/torch_save/internal/state_file.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "core/base/hash.h"
#include "core/base/text_number.h"
#include "core/checkpoint/entry_path_json.h"
#include "formats/pickle/copy_value.h"
#include "formats/pickle/reader.h"
#include "formats/pickle/writer.h"
#include "formats/target_tensors.h"
#include "formats/torch_save/internal/archive_records.h"
#include "formats/torch_save/internal/entry_walk.h"
#include "formats/torch_save/internal/whole_paths.h"
#include "formats/torch_save/torch_item.h"

namespace ckpt::torch_save {
namespace {

// A path with more steps is no place that a person nested.
constexpr std::size_t kMaxSteps = 100;
// Where some of a long list was chosen.
constexpr std::uint64_t kMaxHoles = 1 << 20;

// The number of the storage to which an object of its own pickle refers.
std::int64_t NumberOf(const pickle::Graph& graph, pickle::NodeId id) {
  std::string_view text = graph.text(graph.items(id)[2]);
  return TakeNumber<std::int64_t>(text).value_or(0);
}

// Where entries stand: a tree of mappings and lists, whose leaves are entries.
class Tree {
 public:
  struct Node {
    std::map<PathStep, std::size_t> below;
    std::vector<const PathStep*> order;  // keys of `below`, as they came
    std::optional<std::size_t> entry;
  };

  // REQUIRES: MakeOneObject is true of all paths together.
  void Add(const EntryPath& path, std::size_t entry) {
    std::size_t at = 0;
    for (const PathStep& step : path) {
      const auto [found, is_new] = nodes_[at].below.try_emplace(step, nodes_.size());
      if (is_new) nodes_[at].order.push_back(&found->first);
      at = found->second;
      if (is_new) nodes_.emplace_back();
    }
    nodes_[at].entry = entry;
  }

  [[nodiscard]] const Node& root() const { return nodes_.front(); }
  [[nodiscard]] const Node& At(std::size_t node) const { return nodes_[node]; }

  // Positions in lists at which no entry stands, before the last one at which one does.
  [[nodiscard]] std::uint64_t CountHoles() const {
    std::uint64_t holes = 0;
    for (const Node& node : nodes_) {
      if (node.below.empty()) continue;
      const auto* const last = std::get_if<std::int64_t>(&node.below.rbegin()->first);
      if (last != nullptr) holes += static_cast<std::uint64_t>(*last) + 1 - node.below.size();
    }
    return holes;
  }

 private:
  std::vector<Node> nodes_ = std::vector<Node>(1);
};

bool IsList(const Tree::Node& node) {
  return !node.order.empty() && std::holds_alternative<std::int64_t>(*node.order.front());
}

bool IsAttribute(const PathStep* step) { return std::holds_alternative<AttributeName>(*step); }

void WriteConstant(ConstantKey key, pickle::PickleWriter& pickle) {
  if (key == ConstantKey::kNone) {
    pickle.None();
  } else {
    pickle.Bool(key == ConstantKey::kTrue);
  }
}

// `data.pkl`, and the records beside it.
struct Written {
  Bytes pickle;
  OwnRecords own = {};
};

// The entries of a state are numbered: tensors, known tensors, objects.
class StateWriter {
 public:
  explicit StateWriter(const StateFile& state) : state_(state) {
    std::int64_t storages = static_cast<std::int64_t>(state.tensors.size());
    storages += static_cast<std::int64_t>(state.known_tensors.size());
    for (const PickledEntry& object : state.objects) {
      first_storages_.push_back(storages);
      storages += static_cast<std::int64_t>(object.value.storages.size());
    }
  }

  // As nested as the paths say, if a reader finds every entry again; else all of them on top.
  Result<Written> Write() {
    CKPT_RETURN_IF_ERROR(ParseObjects());
    for (const bool is_nested : {true, false}) {
      const std::optional<std::vector<EntryPath>> places = Places(is_nested);
      if (!places) continue;
      Tree tree;
      for (std::size_t entry = 0; entry < places->size(); ++entry) {
        tree.Add((*places)[entry], entry);
      }
      if (tree.CountHoles() > kMaxHoles) continue;
      pickle::PickleWriter writer(pickle::Dialect::kWeightsOnly);
      CKPT_RETURN_IF_ERROR(WriteNode(tree, tree.root(), writer));
      Bytes pickle = writer.Take();
      CKPT_ASSIGN_OR_RETURN(const pickle::ParsedPickle parsed,
                            pickle::ParsePickle(pickle, state_.name));
      const std::set<std::string> missing = NotFound(parsed, {});
      if (missing.empty()) return Written{.pickle = std::move(pickle)};
      const std::vector<EntryPath> whole = ObjectsIn(missing, *places);
      const bool is_found = NotFound(parsed, whole).empty();
      if (is_found && std::ranges::all_of(whole, HasJson)) {
        return Written{.pickle = std::move(pickle), .own = {.whole = FormatWholePaths(whole)}};
      }
    }
    return Error(ErrorKind::kUnsupported, "no reader could tell the entries of the file apart")
        .File(state_.name);
  }

 private:
  [[nodiscard]] std::size_t first_object() const {
    return state_.tensors.size() + state_.known_tensors.size();
  }
  [[nodiscard]] std::size_t num_entries() const { return first_object() + state_.objects.size(); }

  [[nodiscard]] const std::string& KeyOf(std::size_t entry) const {
    if (entry < state_.tensors.size()) return state_.tensors[entry].key;
    if (entry < first_object()) return state_.known_tensors[entry - state_.tensors.size()].key;
    return state_.objects[entry - first_object()].key;
  }

  Status ParseObjects() {
    for (const PickledEntry& object : state_.objects) {
      CKPT_ASSIGN_OR_RETURN(pickle::ParsedPickle parsed,
                            pickle::ParsePickle(object.value.pickle, object.key));
      parsed_.push_back(std::move(parsed));
    }
    return OkStatus();
  }

  // By entry. Nothing if they do not make one object that Python's own list and dict can be.
  [[nodiscard]] std::optional<std::vector<EntryPath>> Places(bool is_nested) const {
    std::vector<EntryPath> places;
    EntryPaths by_key;
    for (std::size_t entry = 0; entry < num_entries(); ++entry) {
      const std::string& key = KeyOf(entry);
      const auto known = state_.paths.find(key);
      const bool is_known = known != state_.paths.end();
      const bool is_attribute =
          is_known && std::holds_alternative<AttributeName>(known->second.back());
      const PathStep on_top = is_attribute ? PathStep(AttributeName{key}) : PathStep(key);
      places.push_back(is_known && is_nested ? known->second : EntryPath{on_top});
      by_key.emplace(key, places.back());
      if (places.back().size() > kMaxSteps) return std::nullopt;
    }
    if (!MakeOneObject(by_key)) return std::nullopt;
    return places;
  }

  Status WriteNode(const Tree& tree, const Tree::Node& node, pickle::PickleWriter& pickle) const {
    if (node.entry) return WriteEntry(*node.entry, pickle);
    if (IsList(node)) {
      pickle.BeginList();
      std::int64_t next = 0;
      for (const auto& [step, child] : node.below) {
        // As torch's own loaders fill a list up to the last position.
        for (; next < std::get<std::int64_t>(step); ++next) pickle.None();
        ++next;
        CKPT_RETURN_IF_ERROR(WriteNode(tree, tree.At(child), pickle));
      }
      pickle.EndList();
      return OkStatus();
    }
    // A dict of Python has no attributes.
    const bool has_attributes = std::ranges::any_of(node.order, IsAttribute);
    if (has_attributes) {
      pickle.Global("collections", "OrderedDict").EmptyTuple().Reduce().BeginEntries();
    } else {
      pickle.BeginDict();
    }
    for (const PathStep* step : node.order) {
      if (!IsAttribute(step)) CKPT_RETURN_IF_ERROR(WriteStep(tree, node, *step, pickle));
    }
    pickle.EndDict();
    if (!has_attributes) return OkStatus();
    pickle.BeginDict();
    for (const PathStep* step : node.order) {
      if (IsAttribute(step)) CKPT_RETURN_IF_ERROR(WriteStep(tree, node, *step, pickle));
    }
    pickle.EndDict().Build();
    return OkStatus();
  }

  // What is behind `step`, under its name.
  Status WriteStep(const Tree& tree, const Tree::Node& node, const PathStep& step,
                   pickle::PickleWriter& pickle) const {
    if (const auto* const text = std::get_if<std::string>(&step)) {
      pickle.Text(*text);
    } else if (const auto* const attribute = std::get_if<AttributeName>(&step)) {
      pickle.Text(attribute->name);
    } else if (const auto* const constant = std::get_if<ConstantKey>(&step)) {
      WriteConstant(*constant, pickle);
    } else {
      pickle.Int(std::get<NumberKey>(step).number);
    }
    return WriteNode(tree, tree.At(node.below.at(step)), pickle);
  }

  Status WriteEntry(std::size_t entry, pickle::PickleWriter& pickle) const {
    const auto number = static_cast<std::int64_t>(entry);
    if (entry < state_.tensors.size()) {
      const TargetTensor& tensor = state_.tensors[entry];
      WriteTensor(number, tensor.dtype, tensor.shape, pickle);
      return OkStatus();
    }
    if (entry < first_object()) {
      const MemoryTensor& tensor = state_.known_tensors[entry - state_.tensors.size()];
      WriteTensor(number, tensor.dtype, tensor.shape, pickle);
      return OkStatus();
    }
    const std::size_t object = entry - first_object();
    const pickle::Graph& graph = parsed_[object].graph;
    const std::int64_t first = first_storages_[object];
    const auto refer = [&](pickle::NodeId persistent, pickle::PickleWriter& out) {
      const pickle::NodeId id = graph.persistent_id(persistent);
      const std::span<const pickle::NodeId> parts = graph.items(id);
      out.BeginTuple().SharedText("storage");
      CKPT_RETURN_IF_ERROR(pickle::CopyGlobal(graph, parts[1], out));
      out.Text(std::to_string(first + NumberOf(graph, id))).SharedText("cpu");
      out.Int(graph.integer(parts[4])).EndTuple().PersistentId();
      return OkStatus();
    };
    Status status = pickle::CopyValue(graph, parsed_[object].root, refer, pickle);
    return status.ok() ? status : std::move(status).Tensor(KeyOf(entry));
  }

  // Keys that a reader does not find, or finds as something else.
  [[nodiscard]] std::set<std::string> NotFound(const pickle::ParsedPickle& parsed,
                                               const std::vector<EntryPath>& whole) const {
    std::set<std::string> keys;
    for (std::size_t entry = 0; entry < num_entries(); ++entry) keys.insert(KeyOf(entry));
    const WholeNodes nodes = NodesAt(parsed.graph, parsed.root, whole);
    const Result<Entries> found = FindEntries(parsed.graph, parsed.root, nodes);
    if (!found.ok()) return keys;
    std::map<std::string_view, bool> is_tensor;
    for (const NamedNode& named : found->list) {
      is_tensor.emplace(named.key, named.form == TensorForm::kDense);
    }
    for (const NamedNode& named : found->attributes) is_tensor.emplace(named.key, false);
    std::set<std::string> missing;
    for (std::size_t entry = 0; entry < num_entries(); ++entry) {
      const auto known = is_tensor.find(KeyOf(entry));
      const bool is_same = known != is_tensor.end() && known->second == (entry < first_object());
      if (!is_same) missing.insert(KeyOf(entry));
    }
    return missing;
  }

  [[nodiscard]] std::vector<EntryPath> ObjectsIn(const std::set<std::string>& keys,
                                                 const std::vector<EntryPath>& places) const {
    std::vector<EntryPath> paths;
    for (std::size_t entry = first_object(); entry < num_entries(); ++entry) {
      if (keys.contains(KeyOf(entry))) paths.push_back(places[entry]);
    }
    return paths;
  }

  const StateFile& state_;
  std::vector<pickle::ParsedPickle> parsed_;  // parallel to the objects
  std::vector<std::int64_t> first_storages_;  // parallel to the objects
};

Status CheckKeys(const StateFile& state) {
  Status status = CountTargetBytes(state.tensors).status();
  std::set<std::string_view> keys;
  for (const TargetTensor& tensor : state.tensors) keys.insert(tensor.key);
  const auto add = [&](std::string_view key) {
    if (keys.insert(key).second) return;
    status.Add(Error(ErrorKind::kAlreadyExists, "the same key twice").Tensor(key));
  };
  for (const MemoryTensor& tensor : state.known_tensors) add(tensor.key);
  for (const PickledEntry& object : state.objects) add(object.key);
  return status;
}

// The storages of a file: those of its tensors, and those whose bytes are known.
std::vector<ForeignStorage> StoragesOf(const std::vector<TargetTensor>& tensors,
                                       std::span<const ForeignStorage> known) {
  std::vector<ForeignStorage> storages;
  storages.reserve(tensors.size() + known.size());
  for (const TargetTensor& tensor : tensors) {
    storages.push_back({.size_bytes = NumBytes(tensor.shape, tensor.dtype)});
  }
  storages.insert(storages.end(), known.begin(), known.end());
  return storages;
}

std::vector<Bytes> TakeKnown(StateFile& state) {
  std::vector<Bytes> known;
  for (MemoryTensor& tensor : state.known_tensors) known.push_back(std::move(tensor.values));
  for (PickledEntry& object : state.objects) {
    for (Bytes& storage : object.value.storages) known.push_back(std::move(storage));
  }
  return known;
}

}  // namespace

Status CheckIsOneFile(const AskedForm& asked) {
  if (asked.is_compressed) {
    return Error(ErrorKind::kUsage, "a torch_save file cannot be compressed")
        .Hint("torch.load reads plain bytes alone; leave ckpt-convert's --compress out");
  }
  if (asked.files > 1 || asked.max_file_bytes != 0) {
    return Error(ErrorKind::kUsage, "a torch_save checkpoint is one file")
        .Hint("leave ckpt-convert's --files and --max-shard-size out");
  }
  return OkStatus();
}

Result<WritePlan> PlanStateFile(StateFile state) {
  CKPT_RETURN_IF_ERROR(CheckKeys(state));
  CKPT_ASSIGN_OR_RETURN(Written written, StateWriter(state).Write());
  WritePlan plan;
  plan.known_tensors = DescribeKnown(state.known_tensors);
  std::vector<Bytes> known_bytes = TakeKnown(state);
  std::vector<ForeignStorage> known;
  known.reserve(known_bytes.size());
  for (const Bytes& bytes : known_bytes) {
    known.push_back({.size_bytes = bytes.size(), .crc32 = Crc32(bytes)});
  }
  plan.tensors = std::move(state.tensors);
  written.own.origin = std::move(state.origin);
  const auto records = std::make_shared<const Written>(std::move(written));
  const auto frame = [records](const std::vector<ForeignStorage>& storages) {
    return FrameStorages(records->pickle, storages, records->own);
  };
  const FramedStorages framed = frame(StoragesOf(plan.tensors, known));
  const zip::Part& last = framed.parts.back();
  plan.files.push_back(
      {.name = std::move(state.name), .size_bytes = last.offset_bytes + last.bytes.size()});
  for (std::uint32_t t = 0; t < plan.tensors.size(); ++t) {
    const std::uint64_t bytes = NumBytes(plan.tensors[t].shape, plan.tensors[t].dtype);
    plan.items.push_back({.tensor = t,
                          .file = 0,
                          .box = WholeBox(plan.tensors[t].shape),
                          .offset_bytes = framed.storage_offsets[t],
                          .payload_offset = framed.storage_offsets[t],
                          .payload_bytes = bytes,
                          .size_bytes = bytes});
  }
  for (std::size_t k = 0; k < known_bytes.size(); ++k) {
    plan.literals.push_back({.file = 0,
                             .offset_bytes = framed.storage_offsets[plan.tensors.size() + k],
                             .bytes = std::move(known_bytes[k])});
  }
  // The directory at the end has the checksums of all storages.
  const auto encode = [frame, known = std::move(known)](const WritePlan& placed,
                                                        std::span<const WrittenItem> items) {
    std::vector<ForeignStorage> storages = StoragesOf(placed.tensors, known);
    for (std::size_t i = 0; i < items.size(); ++i) {
      storages[placed.items[i].tensor].crc32 = items[i].payload_crc32;
    }
    std::vector<WriteLiteral> literals;
    for (zip::Part& part : frame(storages).parts) {
      literals.push_back(
          {.file = 0, .offset_bytes = part.offset_bytes, .bytes = std::move(part.bytes)});
    }
    return literals;
  };
  plan.late_bytes = {.files = {0}, .uses_crc32 = true, .encode = encode};
  return plan;
}

}  // namespace ckpt::torch_save
