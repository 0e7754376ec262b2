#include "formats/pickle/internal/machine.h"

#include <cstring>

#include <fmt/format.h>

#include "formats/pickle/globals.h"
#include "formats/pickle/internal/text.h"

namespace ckpt::pickle {
namespace {

constexpr std::uint64_t kMaxIntBytes = 1ULL << 20;
// Names of globals are copied from text that many may share. A small file may have this many bytes
// of names.
constexpr std::uint64_t kFreeGlobalBytes = 1ULL << 20;
constexpr std::size_t kMaxNameBytes = 4096;  // of a class, or of its module

// Protocols 0 to 2 still use the names of Python 2. These functions give today's.
std::string_view ModernModule(std::string_view module) {
  if (module == "__builtin__") return "builtins";
  if (module == "copy_reg") return "copyreg";
  return module;
}

std::string_view ModernName(std::string_view module, std::string_view name) {
  if (module != "__builtin__") return name;
  if (name == "unicode") return "str";
  if (name == "long") return "int";
  if (name == "xrange") return "range";
  if (name == "unichr") return "chr";
  return name;
}

// Objects keep the items that are appended to them or set in them, apart from their state.
bool IsObject(NodeKind kind) { return kind == NodeKind::kInstance || kind == NodeKind::kCall; }

// Whether the call only names a class inside a class of the usual frameworks, which is no reason to
// warn. REQUIRES: `args` is a tuple.
bool NamesInnerClass(const Graph& graph, NodeId callable, NodeId args) {
  const std::span<const NodeId> parts = graph.items(args);
  if (!graph.IsGlobal(callable, "builtins", "getattr") || parts.size() != 2 ||
      graph.kind(parts[0]) != NodeKind::kGlobal || graph.kind(parts[1]) != NodeKind::kText ||
      graph.text(parts[1]).size() > kMaxNameBytes) {
    return false;
  }
  return IsFrameworkClass(graph.module(parts[0]),
                          fmt::format("{}.{}", graph.name(parts[0]), graph.text(parts[1])));
}

// The class in the persistent id ("module", the class, …); kNoNode if the id is another one.
NodeId ClassInId(const Graph& graph, NodeId id) {
  if (graph.kind(id) != NodeKind::kTuple) return kNoNode;
  const std::span<const NodeId> parts = graph.items(id);
  if (parts.size() < 2 || graph.kind(parts[0]) != NodeKind::kText ||
      graph.text(parts[0]) != "module") {
    return kNoNode;
  }
  // A class inside a class is a call of getattr.
  const NodeKind kind = graph.kind(parts[1]);
  return kind == NodeKind::kGlobal || kind == NodeKind::kCall ? parts[1] : kNoNode;
}

}  // namespace

Machine::Machine(ByteSpan bytes, const PickleOptions& options)
    : options_(options),
      pickle_bytes_(bytes.size()),
      builder_(bytes.size()),
      memo_(bytes, options.start, options.consumed),
      literals_(builder_.graph(), memo_) {}

bool Machine::Fail(ErrorKind kind, std::string what) {
  failure_ = {kind, std::move(what)};
  return false;
}

bool Machine::PastLimits() {
  if (builder_.next() > options_.max_nodes) {
    return Fail(ErrorKind::kResource, fmt::format("more than {} objects", options_.max_nodes));
  }
  return Fail(ErrorKind::kResource, fmt::format("a stack of more than {}", options_.max_stack));
}

std::span<const NodeId> Machine::PopNodes(std::size_t count, NodeId* base) {
  const std::size_t first = stack_.size() - count;
  if (base != nullptr) *base = count == 0 ? builder_.next() : stack_[first].base;
  scratch_.resize(count);
  for (std::size_t i = 0; i < count; ++i) scratch_[i] = stack_[first + i].node;
  stack_.resize(first);
  return scratch_;
}

bool Machine::PopToMark(std::span<const NodeId>* items, NodeId* base) {
  if (marks_.empty()) return Malformed("no mark on the pickle stack");
  *items = PopNodes(stack_.size() - marks_.back(), base);
  marks_.pop_back();
  return true;
}

bool Machine::PushLong(std::string_view bytes) {
  if (bytes.size() > kMaxIntBytes) return Fail(ErrorKind::kResource, "an integer past a megabyte");
  // Drops bytes that only repeat the sign.
  while (bytes.size() > 1) {
    const auto last = static_cast<unsigned char>(bytes.back());
    const bool sign = (static_cast<unsigned char>(bytes[bytes.size() - 2]) & 0x80) != 0;
    if (last != (sign ? 0xFF : 0x00)) break;
    bytes.remove_suffix(1);
  }
  if (bytes.size() > sizeof(std::int64_t)) {
    return Push(builder_.AddText(NodeKind::kBigInt, bytes));
  }
  std::uint64_t value = 0;
  if (!bytes.empty()) {
    if ((bytes.back() & 0x80) != 0) value = ~0ULL;
    std::memcpy(&value, bytes.data(), bytes.size());
  }
  return PushInt(static_cast<std::int64_t>(value));
}

bool Machine::PushText(NodeKind text_kind, std::string_view text) {
  if (text_kind == NodeKind::kText && !IsPickledUtf8(text)) {
    return Malformed("a text that is not UTF-8");
  }
  return Push(builder_.AddText(text_kind, text));
}

bool Machine::PushPython2Text(std::string_view text) {
  return Push(builder_.AddText(IsPickledUtf8(text) ? NodeKind::kText : NodeKind::kBytes, text));
}

bool Machine::PushGlobal(std::string_view module, std::string_view name) {
  // The name is checked here once, because every reader of the node uses it.
  if (module.size() > kMaxNameBytes || name.size() > kMaxNameBytes) {
    return Fail(ErrorKind::kResource,
                fmt::format("a class's name of more than {} bytes", kMaxNameBytes));
  }
  if (!IsPickledUtf8(module) || !IsPickledUtf8(name)) return Malformed("a name that is not UTF-8");
  const NodeId global = builder_.AddGlobal(ModernModule(module), ModernName(module, name));
  if (builder_.global_bytes() > std::max(pickle_bytes_, kFreeGlobalBytes)) {
    return Fail(ErrorKind::kResource, "names of classes take more room than the pickle");
  }
  return Push(global);
}

bool Machine::PushFromMark(NodeKind container) {
  std::span<const NodeId> items;
  NodeId base = 0;
  if (!PopToMark(&items, &base)) return false;
  if (container == NodeKind::kDict && items.size() % 2 != 0) {
    return Malformed("a key without its value");
  }
  if (container == NodeKind::kTuple && items.empty()) return PushExisting(kEmptyTupleNode);
  Push(builder_.AddContainer(container, items), base);
  return true;
}

bool Machine::PushTuple(std::size_t count) {
  if (!Need(count)) return false;
  NodeId base = 0;
  const std::span<const NodeId> items = PopNodes(count, &base);
  Push(builder_.AddContainer(NodeKind::kTuple, items), base);
  return true;
}

bool Machine::Append() { return Need(2) && Extend(NodeKind::kList, "appended", PopNodes(1)); }

bool Machine::AppendAll() {
  std::span<const NodeId> items;
  return PopToMark(&items) && Extend(NodeKind::kList, "appended", items);
}

bool Machine::Extend(NodeKind container, std::string_view done, std::span<const NodeId> items) {
  if (!Need(1)) return false;
  NodeId target = stack_.back().node;
  const NodeKind target_kind = kind(target);
  if (IsObject(target_kind)) {
    target = builder_.AppendedOf(target);
  } else if (target_kind != container) {
    return Malformed(fmt::format("items {} to a {}", done, NodeKindName(target_kind)));
  }
  builder_.Append(target, items);
  return true;
}

bool Machine::SetItem() { return Need(3) && SetItemsOf(PopNodes(2)); }

bool Machine::SetAllItems() {
  std::span<const NodeId> items;
  return PopToMark(&items) && SetItemsOf(items);
}

bool Machine::SetItemsOf(std::span<const NodeId> items) {
  if (!Need(1)) return false;
  if (items.size() % 2 != 0) return Malformed("a key without its value");
  NodeId target = stack_.back().node;
  const NodeKind target_kind = kind(target);
  if (IsObject(target_kind)) {
    target = builder_.EntriesOf(target);
  } else if (target_kind != NodeKind::kDict) {
    return Malformed(fmt::format("entries set in a {}", NodeKindName(target_kind)));
  }
  builder_.Append(target, items);
  return true;
}

bool Machine::AddAllItems() {
  std::span<const NodeId> items;
  return PopToMark(&items) && Extend(NodeKind::kSet, "added", items);
}

bool Machine::StackGlobal() {
  if (!Need(2)) return false;
  const Slot name = stack_.back();
  const Slot module = stack_[stack_.size() - 2];
  if (kind(name.node) != NodeKind::kText || kind(module.node) != NodeKind::kText) {
    return Malformed("a class whose name is not text");
  }
  // These are copies because the graph's text moves when it grows.
  const std::string module_text(builder_.graph().text(module.node).substr(0, kMaxNameBytes + 1));
  const std::string name_text(builder_.graph().text(name.node).substr(0, kMaxNameBytes + 1));
  stack_.resize(stack_.size() - 2);
  if (!PushGlobal(module_text, name_text)) return false;
  stack_.back().base = module.base;
  return true;
}

bool Machine::Call() {
  if (!Need(2)) return false;
  const NodeId args = stack_.back().node;
  const Slot callable = stack_[stack_.size() - 2];
  if (kind(args) != NodeKind::kTuple) return Malformed("arguments of a call that are not a tuple");
  stack_.resize(stack_.size() - 2);
  if (kind(callable.node) == NodeKind::kGlobal &&
      !NamesInnerClass(builder_.graph(), callable.node, args)) {
    builder_.MarkCalled(callable.node);
  }
  if (options_.reducer != nullptr) {
    if (const auto record = options_.reducer->OnCall(builder_.graph(), callable.node, args)) {
      if (memo_high_ < callable.base && floor_ <= callable.base) builder_.Rollback(callable.base);
      Push(builder_.AddRecord(*record), callable.base);
      return true;
    }
  }
  Push(builder_.AddObject(NodeKind::kCall, callable.node, args), callable.base);
  return true;
}

bool Machine::NewObject(bool with_kwargs) {
  const std::size_t parts = with_kwargs ? 3 : 2;
  if (!Need(parts)) return false;
  const Slot* top = stack_.data() + stack_.size() - parts;
  const Slot cls = top[0];
  const NodeId args = top[1].node;
  const NodeId kwargs = with_kwargs ? top[2].node : kNoNode;
  if (kind(args) != NodeKind::kTuple) return Malformed("arguments of a class that are not a tuple");
  // Protocols below 4 have no name for a class inside a class: they call getattr for it.
  if (kind(cls.node) != NodeKind::kGlobal && kind(cls.node) != NodeKind::kCall) {
    return Malformed("an instance of something that is not a class");
  }
  if (with_kwargs && kind(kwargs) != NodeKind::kDict) {
    return Malformed("keyword arguments that are not a dict");
  }
  stack_.resize(stack_.size() - parts);
  const NodeId object = builder_.AddObject(NodeKind::kInstance, cls.node, args);
  if (with_kwargs && !builder_.graph().items(kwargs).empty()) builder_.SetKwargs(object, kwargs);
  Push(object, cls.base);
  return true;
}

bool Machine::Build() {
  if (!Need(2)) return false;
  const NodeId state = stack_.back().node;
  stack_.pop_back();
  const NodeId object = stack_.back().node;
  const NodeKind object_kind = kind(object);
  if (!IsObject(object_kind)) {
    return Malformed(fmt::format("a state for a {}", NodeKindName(object_kind)));
  }
  if (builder_.graph().state(object) != kNoNode) {
    return Malformed("a second state for the same object");
  }
  if (object_kind == NodeKind::kInstance && options_.reducer != nullptr) {
    if (const auto record = options_.reducer->OnBuilt(builder_.graph(), object, state)) {
      // The object keeps its number because the memo may refer to it.
      builder_.Replace(object, *record);
      const NodeId first = object + 1;
      if (memo_high_ < first && floor_ < first) builder_.Rollback(first);
      return true;
    }
  }
  builder_.SetState(object, state);
  return true;
}

bool Machine::PersistentId() {
  if (!Need(1)) return false;
  const Slot id = stack_.back();
  stack_.pop_back();
  const NodeId cls = options_.has_module_ids ? ClassInId(builder_.graph(), id.node) : kNoNode;
  if (cls != kNoNode) {
    // The id may have come back from the memo, and the call in it can be changed from now on.
    if (kind(cls) == NodeKind::kCall) ForbidRollback();
    Push(cls, id.base);
    return true;
  }
  Push(builder_.AddPersistent(id.node), id.base);
  return true;
}

bool Machine::Pop() {
  if (!marks_.empty() && marks_.back() == stack_.size()) {
    marks_.pop_back();
    return true;
  }
  if (!Need(1)) return false;
  stack_.pop_back();
  return true;
}

bool Machine::PopMark() {
  std::span<const NodeId> items;
  return PopToMark(&items);
}

bool Machine::Duplicate() {
  if (!Need(1)) return false;
  ForbidRollback();
  return PushExisting(stack_.back().node);
}

bool Machine::Memoize() {
  // Python gives the next slot the number of slots that are set. Here that number is taken already,
  // so readers would disagree about the meaning of a GET.
  if (memo_has_gap_) return Malformed("MEMOIZE behind a gap in the memo");
  return Remember(memo_size_);
}

bool Machine::Recall(std::uint64_t slot, ByteSpan rest, std::size_t* used) {
  *used = 0;
  const NodeId node = memo_.Get(slot);
  if (node == kNoNode) return Malformed(fmt::format("pickle memo slot {} not set", slot));
  switch (kind(node)) {
    case NodeKind::kGlobal:
      if (options_.reducer != nullptr && TakeLiteral(node, rest, used)) return true;
      break;
    case NodeKind::kList:
    case NodeKind::kDict:
    case NodeKind::kSet:
    case NodeKind::kCall:
    case NodeKind::kInstance:
      ForbidRollback();
      break;
    default:
      break;
  }
  return PushExisting(node);
}

// Reads a whole instance of `cls` at once. The result is as if its opcodes had run, except that a
// record stands for the instance and its parts have no nodes. That is the same for the rest of the
// pickle, which reads no slot that the instance sets, and the instance changes nothing older.
bool Machine::TakeLiteral(NodeId cls, ByteSpan rest, std::size_t* used) {
  if (memo_has_gap_ || !literals_.Read(cls, rest, memo_size_)) return false;
  const InstanceLiteral instance = literals_.instance();
  const auto record = options_.reducer->OnLiteral(builder_.graph(), instance);
  if (!record) return false;
  for (const LiteralField& field : instance.fields) {
    if (field.value.kind == Literal::Kind::kCall) builder_.MarkCalled(field.value.node);
  }
  *used = literals_.size_bytes();
  memo_size_ += literals_.num_memoized();
  return Push(builder_.AddRecord(*record));
}

bool Machine::Finish() {
  if (!Need(1)) return false;
  return (stack_.size() == 1 && marks_.empty()) || Malformed("a pickle that leaves several values");
}

}  // namespace ckpt::pickle
