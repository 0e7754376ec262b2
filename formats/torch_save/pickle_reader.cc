#include "formats/torch_save/pickle_reader.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/endian.h"
#include "core/base/quote.h"
#include "formats/torch_save/pickle_builder.h"
#include "formats/torch_save/pickle_literal_reader.h"
#include "formats/torch_save/pickle_memo.h"
#include "formats/torch_save/pickle_opcodes.h"
#include "formats/torch_save/pickle_text.h"

namespace ckpt::pickle {
namespace {

constexpr std::uint64_t kReportEvery = 4ULL << 20;
constexpr std::uint64_t kMaxIntBytes = 1ULL << 20;
// Names of globals are copied out of shared text; files with few bytes may still have this much of
// them.
constexpr std::uint64_t kFreeGlobalBytes = 1ULL << 20;

// The names that Python 2 had for what protocols 0 to 2 still call so.
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

}  // namespace

// The pickle virtual machine. Opcode handlers return false after storing an error.
//
// Every stack slot knows `base`, the size of the arena when the making of its value began: all
// nodes that only this value refers to lie from there on. When a reducer turns the value into a
// record, the arena rolls back to its base, unless
//   - a memo slot that is still to be read holds one of those nodes (`memo_high_`), or
//   - an older container may refer to them: it came back from the memo and could have been changed
//   (`floor_`).
class Machine {
 public:
  Machine(ByteSpan bytes, std::string_view name, const PickleOptions& options)
      : bytes_(bytes),
        name_(name),
        options_(options),
        at_(options.start),
        builder_(bytes.size()),
        memo_(bytes, options.start, options.consumed),
        literals_(builder_.graph(), memo_) {}

  Result<ParsedPickle> Run();

 private:
  struct Slot {
    NodeId node;
    NodeId base;
  };

  // The stream.
  bool Take(std::uint64_t length, const std::byte** out);
  bool TakeCounted(std::uint64_t length, std::string_view* out);
  bool TakeLine(std::string_view* out);
  template <typename T>
  bool TakeNumber(T* out) {
    const std::byte* at = nullptr;
    if (!Take(sizeof(T), &at)) return false;
    *out = LoadLe<T>(at);
    return true;
  }
  template <typename Length>
  bool TakeText(std::string_view* out) {
    Length length = 0;
    return TakeNumber(&length) && TakeCounted(length, out);
  }

  // The stack.
  [[nodiscard]] std::size_t fence() const { return marks_.empty() ? 0 : marks_.back(); }
  [[nodiscard]] std::size_t depth() const { return stack_.size() - fence(); }
  bool Need(std::size_t count) { return depth() >= count || Underflow(); }
  void Push(NodeId node, NodeId base) { stack_.push_back({node, base}); }
  // Of a node just added; small integers always exist.
  bool Push(NodeId node) {
    Push(node, node < kFirstFreeNode ? builder_.next() : node);
    return true;
  }
  bool PushExisting(NodeId node) {
    Push(node, builder_.next());
    return true;
  }
  // After every opcode: none adds more than a few nodes.
  bool CheckLimits() {
    const bool ok = builder_.next() <= options_.max_nodes && stack_.size() <= options_.max_stack &&
                    marks_.size() <= options_.max_stack;
    return ok || PastLimits();
  }
  bool PastLimits();
  // The nodes above the last mark; takes the mark away. Valid until the next call.
  bool PopToMark(std::span<const NodeId>* items, NodeId* base);
  // The topmost `count` nodes.
  void PopNodes(std::size_t count, std::span<const NodeId>* items, NodeId* base);

  // Opcodes.
  bool Step(Op op);
  bool StepText(Op op);
  bool StepRefused(Op op);
  bool PushText(NodeKind kind, std::string_view text);
  bool PushPython2Text(std::string_view text);
  bool PushInt(std::string_view twos_complement);
  bool PushDecimal(std::string_view line);
  bool PushFloatLine(std::string_view line);
  bool PushGlobal(std::string_view module, std::string_view name);
  bool PushContainer(NodeKind kind, std::span<const NodeId> items, NodeId base);
  bool PushFromMark(NodeKind kind);
  bool PushTuple(std::size_t count);
  bool StackGlobal();
  bool Call();
  bool NewObject(bool with_kwargs);
  bool Build();
  bool AppendTo(std::span<const NodeId> items);
  bool SetItemsOf(std::span<const NodeId> items);
  bool AddItemsTo(std::span<const NodeId> items);
  bool Pop();
  bool Remember(std::uint64_t slot);
  bool Recall(std::uint64_t slot);
  bool TakeLiteral(NodeId cls);
  void ForbidRollback() { floor_ = builder_.next(); }
  [[nodiscard]] NodeKind kind(NodeId node) const { return builder_.graph().kind(node); }

  // Errors.
  bool Fail(ErrorKind kind, std::string_view what);
  bool Underflow() { return Fail(ErrorKind::kBadMetadata, "pickle stack underflow"); }
  bool Malformed(std::string_view what) { return Fail(ErrorKind::kBadMetadata, what); }
  bool EndsEarly() { return Fail(ErrorKind::kBadMetadata, "the pickle ends early, in the opcode"); }

  ByteSpan bytes_;
  std::string_view name_;
  const PickleOptions& options_;
  std::uint64_t at_;
  std::uint64_t op_at_ = 0;
  int protocol_ = 0;

  GraphBuilder builder_;
  std::vector<Slot> stack_;
  std::vector<std::size_t> marks_;  // stack sizes
  std::vector<NodeId> scratch_;

  Memo memo_;
  LiteralReader literals_;
  std::uint64_t memo_size_ = 0;  // one past the highest slot
  bool memo_has_gap_ = false;    // some slot below may not be set
  NodeId memo_high_ = 0;         // the newest node in a slot that something reads
  NodeId floor_ = 0;             // no rollback to before this
  Status error_;
};

bool Machine::Fail(ErrorKind kind, std::string_view what) {
  error_ = Error(kind, fmt::format("{} at byte {}", what, op_at_)).File(name_);
  return false;
}

bool Machine::Take(std::uint64_t length, const std::byte** out) {
  if (length > bytes_.size() - at_) return EndsEarly();
  *out = bytes_.data() + at_;
  at_ += length;
  return true;
}

bool Machine::TakeCounted(std::uint64_t length, std::string_view* out) {
  if (length > bytes_.size()) {
    return Fail(
        ErrorKind::kResource,
        fmt::format("a length of {} bytes is announced, more than the whole pickle has", length));
  }
  const std::byte* at = nullptr;
  if (!Take(length, &at)) return false;
  if (length >= kNoNode) return Fail(ErrorKind::kResource, "a text of 4 GiB or more");
  *out = AsText(ByteSpan(at, length));
  return true;
}

bool Machine::TakeLine(std::string_view* out) {
  const std::string_view rest = AsText(bytes_.subspan(at_));
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) return EndsEarly();
  *out = rest.substr(0, end);
  at_ += end + 1;
  return true;
}

bool Machine::PastLimits() {
  if (builder_.next() > options_.max_nodes) {
    return Fail(ErrorKind::kResource, fmt::format("more than {} objects", options_.max_nodes));
  }
  return Fail(ErrorKind::kResource, fmt::format("a stack of more than {}", options_.max_stack));
}

void Machine::PopNodes(std::size_t count, std::span<const NodeId>* items, NodeId* base) {
  const std::size_t first = stack_.size() - count;
  *base = count == 0 ? builder_.next() : stack_[first].base;
  scratch_.resize(count);
  for (std::size_t i = 0; i < count; ++i) scratch_[i] = stack_[first + i].node;
  stack_.resize(first);
  *items = scratch_;
}

bool Machine::PopToMark(std::span<const NodeId>* items, NodeId* base) {
  if (marks_.empty()) return Malformed("no mark on the pickle stack");
  PopNodes(stack_.size() - marks_.back(), items, base);
  marks_.pop_back();
  return true;
}

bool Machine::PushText(NodeKind text_kind, std::string_view text) {
  if (text_kind == NodeKind::kText && !IsPickledUtf8(text)) {
    return Malformed("a text that is no UTF-8");
  }
  return Push(builder_.AddText(text_kind, text));
}

bool Machine::PushPython2Text(std::string_view text) {
  return Push(builder_.AddText(IsPickledUtf8(text) ? NodeKind::kText : NodeKind::kBytes, text));
}

bool Machine::PushInt(std::string_view bytes) {
  if (bytes.size() > kMaxIntBytes) return Fail(ErrorKind::kResource, "an integer past a megabyte");
  // Sign extension that says nothing.
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
  return Push(builder_.AddInt(static_cast<std::int64_t>(value)));
}

bool Machine::PushDecimal(std::string_view line) {
  if (!line.empty() && line.back() == 'L') line.remove_suffix(1);
  const std::optional<std::string> bytes = DecodeDecimal(line);
  if (!bytes) return Malformed("an integer that is no decimal number");
  return PushInt(*bytes);
}

bool Machine::PushFloatLine(std::string_view line) {
  double value = 0;
  const auto [rest, code] = std::from_chars(line.data(), line.data() + line.size(), value);
  if (code != std::errc() || rest != line.data() + line.size()) {
    return Malformed("a float that is no number");
  }
  return Push(builder_.AddFloat(value));
}

bool Machine::PushGlobal(std::string_view module, std::string_view name) {
  if (!IsPickledUtf8(module) || !IsPickledUtf8(name)) return Malformed("a name that is no UTF-8");
  const NodeId global = builder_.AddGlobal(ModernModule(module), ModernName(module, name));
  if (builder_.global_bytes() > std::max<std::uint64_t>(bytes_.size(), kFreeGlobalBytes)) {
    return Fail(ErrorKind::kResource, "names of classes take more room than the pickle");
  }
  return Push(global);
}

bool Machine::PushContainer(NodeKind container, std::span<const NodeId> items, NodeId base) {
  Push(builder_.AddContainer(container, items), base);
  return true;
}

bool Machine::PushFromMark(NodeKind container) {
  std::span<const NodeId> items;
  NodeId base = 0;
  if (!PopToMark(&items, &base)) return false;
  if (container == NodeKind::kDict && items.size() % 2 != 0) {
    return Malformed("a key without its value");
  }
  if (container == NodeKind::kTuple && items.empty()) return PushExisting(kEmptyTupleNode);
  return PushContainer(container, items, base);
}

bool Machine::PushTuple(std::size_t count) {
  if (!Need(count)) return false;
  std::span<const NodeId> items;
  NodeId base = 0;
  PopNodes(count, &items, &base);
  return PushContainer(NodeKind::kTuple, items, base);
}

bool Machine::StackGlobal() {
  if (!Need(2)) return false;
  const Slot name = stack_.back();
  const Slot module = stack_[stack_.size() - 2];
  if (kind(name.node) != NodeKind::kText || kind(module.node) != NodeKind::kText) {
    return Malformed("a class whose name is no text");
  }
  // Copies: the graph's text moves when it grows.
  const std::string module_text(builder_.graph().text(module.node));
  const std::string name_text(builder_.graph().text(name.node));
  stack_.resize(stack_.size() - 2);
  if (!PushGlobal(module_text, name_text)) return false;
  stack_.back().base = module.base;
  return true;
}

bool Machine::Call() {
  if (!Need(2)) return false;
  const NodeId args = stack_.back().node;
  const Slot callable = stack_[stack_.size() - 2];
  if (kind(args) != NodeKind::kTuple) return Malformed("arguments of a call that are no tuple");
  stack_.resize(stack_.size() - 2);
  if (kind(callable.node) == NodeKind::kGlobal) builder_.MarkCalled(callable.node);
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
  if (kind(args) != NodeKind::kTuple) return Malformed("arguments of a class that are no tuple");
  if (kind(cls.node) != NodeKind::kGlobal)
    return Malformed("an instance of something that is no class");
  if (with_kwargs && kind(kwargs) != NodeKind::kDict) {
    return Malformed("keyword arguments that are no dict");
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
  const Slot object = stack_.back();
  const NodeKind object_kind = kind(object.node);
  if (object_kind != NodeKind::kInstance && object_kind != NodeKind::kCall) {
    return Malformed(fmt::format("a state for a {}", NodeKindName(object_kind)));
  }
  if (builder_.graph().state(object.node) != kNoNode) {
    return Malformed("a second state for the same object");
  }
  if (object_kind == NodeKind::kInstance && options_.reducer != nullptr) {
    if (const auto record = options_.reducer->OnBuilt(builder_.graph(), object.node, state)) {
      // The object keeps its number: the memo may hold it.
      builder_.Replace(object.node, *record);
      const NodeId first = object.node + 1;
      if (memo_high_ < first && floor_ < first && object.base <= object.node) {
        builder_.Rollback(first);
      }
      return true;
    }
  }
  builder_.SetState(object.node, state);
  return true;
}

bool Machine::AppendTo(std::span<const NodeId> items) {
  if (!Need(1)) return false;
  NodeId target = stack_.back().node;
  const NodeKind target_kind = kind(target);
  if (target_kind == NodeKind::kInstance || target_kind == NodeKind::kCall) {
    target = builder_.AppendedOf(target);
  } else if (target_kind != NodeKind::kList) {
    return Malformed(fmt::format("items appended to a {}", NodeKindName(target_kind)));
  }
  builder_.Append(target, items);
  return true;
}

bool Machine::SetItemsOf(std::span<const NodeId> items) {
  if (!Need(1)) return false;
  if (items.size() % 2 != 0) return Malformed("a key without its value");
  NodeId target = stack_.back().node;
  const NodeKind target_kind = kind(target);
  if (target_kind == NodeKind::kInstance || target_kind == NodeKind::kCall) {
    target = builder_.EntriesOf(target);
  } else if (target_kind != NodeKind::kDict) {
    return Malformed(fmt::format("entries set in a {}", NodeKindName(target_kind)));
  }
  builder_.Append(target, items);
  return true;
}

bool Machine::AddItemsTo(std::span<const NodeId> items) {
  if (!Need(1)) return false;
  NodeId target = stack_.back().node;
  const NodeKind target_kind = kind(target);
  if (target_kind == NodeKind::kInstance || target_kind == NodeKind::kCall) {
    target = builder_.AppendedOf(target);
  } else if (target_kind != NodeKind::kSet) {
    return Malformed(fmt::format("items added to a {}", NodeKindName(target_kind)));
  }
  builder_.Append(target, items);
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

bool Machine::Remember(std::uint64_t slot) {
  if (!Need(1)) return false;
  memo_has_gap_ = memo_has_gap_ || slot > memo_size_;
  memo_size_ = std::max(memo_size_, slot + 1);
  if (memo_.IsRead(slot)) {
    memo_.Set(slot, stack_.back().node);
    memo_high_ = std::max(memo_high_, stack_.back().node);
  }
  return true;
}

bool Machine::Recall(std::uint64_t slot) {
  const NodeId node = memo_.Get(slot);
  if (node == kNoNode) return Malformed(fmt::format("pickle memo slot {} not set", slot));
  switch (kind(node)) {
    case NodeKind::kGlobal:
      if (options_.reducer != nullptr && TakeLiteral(node)) return true;
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

// Reads a whole instance of `cls` at once and leaves everything as its opcodes would: the record in
// place of the instance, and none of its parts. Nothing in between can matter, since no slot that
// the instance sets is read and nothing older changes.
bool Machine::TakeLiteral(NodeId cls) {
  if (memo_has_gap_ || !literals_.Read(cls, bytes_.subspan(at_), memo_size_)) return false;
  const InstanceLiteral instance = literals_.instance();
  const auto record = options_.reducer->OnLiteral(builder_.graph(), instance);
  if (!record) return false;
  for (const LiteralField& field : instance.fields) {
    if (field.value.kind == Literal::Kind::kCall) builder_.MarkCalled(field.value.node);
  }
  at_ += literals_.size_bytes();
  memo_size_ += literals_.num_memoized();
  return Push(builder_.AddRecord(*record));
}

// Opcodes with text arguments: protocol 0, and names.
bool Machine::StepText(Op op) {
  std::string_view line;
  if (!TakeLine(&line)) return false;
  switch (op) {
    case Op::kGlobal: {
      std::string_view name;
      return TakeLine(&name) && PushGlobal(line, name);
    }
    case Op::kInt:
      if (line == "00" || line == "01") {
        return PushExisting(line == "01" ? kTrueNode : kFalseNode);
      }
      return PushDecimal(line);
    case Op::kLong:
      return PushDecimal(line);
    case Op::kFloat:
      return PushFloatLine(line);
    case Op::kString: {
      const std::optional<std::string> text = DecodeStringLiteral(line);
      return text ? PushPython2Text(*text) : Malformed("a text that is no string literal");
    }
    case Op::kUnicode: {
      const std::optional<std::string> text = DecodeRawUnicodeEscape(line);
      return text ? PushText(NodeKind::kText, *text) : Malformed("a malformed \\u escape");
    }
    default: {  // kGet, kPut
      std::uint64_t slot = 0;
      const auto [rest, code] = std::from_chars(line.data(), line.data() + line.size(), slot);
      if (code != std::errc() || rest != line.data() + line.size() || slot > bytes_.size()) {
        return Malformed("a pickle memo slot that is no number");
      }
      return op == Op::kGet ? Recall(slot) : Remember(slot);
    }
  }
}

bool Machine::StepRefused(Op op) {
  switch (op) {
    case Op::kInst: {
      std::string_view module;
      std::string_view name;
      if (!TakeLine(&module) || !TakeLine(&name)) return false;
      return Fail(ErrorKind::kUnsafePickle,
                  fmt::format("opcode INST, a call of {}.{}, is refused", EscapeControls(module),
                              EscapeControls(name)));
    }
    case Op::kObj:
      return Fail(ErrorKind::kUnsafePickle, "opcode OBJ, a call, is refused");
    case Op::kExt1:
    case Op::kExt2:
    case Op::kExt4:
      return Fail(ErrorKind::kUnsupported, "opcode EXT (a registered extension)");
    case Op::kPersId:
      return Fail(ErrorKind::kUnsupported, "opcode PERSID (a persistent id in text)");
    case Op::kNextBuffer:
    case Op::kReadonlyBuffer:
      return Fail(ErrorKind::kUnsupported, "an out-of-band buffer");
    default:
      return Malformed(fmt::format("unknown pickle opcode {:#04x}", static_cast<unsigned>(op)));
  }
}

bool Machine::Step(Op op) {
  std::span<const NodeId> items;
  std::string_view text;
  NodeId base = 0;
  switch (op) {
    // Scalars.
    case Op::kNone:
      return PushExisting(kNoneNode);
    case Op::kNewTrue:
      return PushExisting(kTrueNode);
    case Op::kNewFalse:
      return PushExisting(kFalseNode);
    case Op::kBinInt1: {
      std::uint8_t value = 0;
      return TakeNumber(&value) && PushExisting(kFirstIntNode + value);
    }
    case Op::kBinInt2: {
      std::uint16_t value = 0;
      return TakeNumber(&value) && Push(builder_.AddInt(value));
    }
    case Op::kBinInt: {
      std::int32_t value = 0;
      return TakeNumber(&value) && Push(builder_.AddInt(value));
    }
    case Op::kLong1:
      return TakeText<std::uint8_t>(&text) && PushInt(text);
    case Op::kLong4:
      return TakeText<std::uint32_t>(&text) && PushInt(text);
    case Op::kBinFloat: {
      const std::byte* at = nullptr;
      return Take(8, &at) &&
             Push(builder_.AddFloat(std::bit_cast<double>(LoadBe<std::uint64_t>(at))));
    }
    // Text and bytes.
    case Op::kShortBinUnicode:
      return TakeText<std::uint8_t>(&text) && PushText(NodeKind::kText, text);
    case Op::kBinUnicode:
      return TakeText<std::uint32_t>(&text) && PushText(NodeKind::kText, text);
    case Op::kBinUnicode8:
      return TakeText<std::uint64_t>(&text) && PushText(NodeKind::kText, text);
    case Op::kShortBinString:
      return TakeText<std::uint8_t>(&text) && PushPython2Text(text);
    case Op::kBinString:
      return TakeText<std::uint32_t>(&text) && PushPython2Text(text);
    case Op::kShortBinBytes:
      return TakeText<std::uint8_t>(&text) && PushText(NodeKind::kBytes, text);
    case Op::kBinBytes:
      return TakeText<std::uint32_t>(&text) && PushText(NodeKind::kBytes, text);
    case Op::kBinBytes8:
      return TakeText<std::uint64_t>(&text) && PushText(NodeKind::kBytes, text);
    case Op::kByteArray8:
      return TakeText<std::uint64_t>(&text) && PushText(NodeKind::kByteArray, text);
    // Containers.
    case Op::kMark:
      marks_.push_back(stack_.size());
      return true;
    case Op::kEmptyTuple:
      return PushExisting(kEmptyTupleNode);
    case Op::kTuple1:
      return PushTuple(1);
    case Op::kTuple2:
      return PushTuple(2);
    case Op::kTuple3:
      return PushTuple(3);
    case Op::kTuple:
      return PushFromMark(NodeKind::kTuple);
    case Op::kEmptyList:
      return Push(builder_.AddContainer(NodeKind::kList));
    case Op::kList:
      return PushFromMark(NodeKind::kList);
    case Op::kEmptyDict:
      return Push(builder_.AddContainer(NodeKind::kDict));
    case Op::kDict:
      return PushFromMark(NodeKind::kDict);
    case Op::kEmptySet:
      return Push(builder_.AddContainer(NodeKind::kSet));
    case Op::kFrozenSet:
      return PushFromMark(NodeKind::kFrozenSet);
    case Op::kAppend:
      if (!Need(2)) return false;
      PopNodes(1, &items, &base);
      return AppendTo(items);
    case Op::kAppends:
      return PopToMark(&items, &base) && AppendTo(items);
    case Op::kSetItem:
      if (!Need(3)) return false;
      PopNodes(2, &items, &base);
      return SetItemsOf(items);
    case Op::kSetItems:
      return PopToMark(&items, &base) && SetItemsOf(items);
    case Op::kAddItems:
      return PopToMark(&items, &base) && AddItemsTo(items);
    // Objects.
    case Op::kStackGlobal:
      return StackGlobal();
    case Op::kReduce:
      return Call();
    case Op::kNewObj:
      return NewObject(/*with_kwargs=*/false);
    case Op::kNewObjEx:
      return NewObject(/*with_kwargs=*/true);
    case Op::kBuild:
      return Build();
    case Op::kBinPersId: {
      if (!Need(1)) return false;
      const Slot id = stack_.back();
      stack_.pop_back();
      Push(builder_.AddPersistent(id.node), id.base);
      return true;
    }
    // Memo and stack.
    case Op::kMemoize:
      // Python numbers by how many slots are set: readers would disagree about what a GET means.
      if (memo_has_gap_) return Malformed("MEMOIZE behind a gap in the memo");
      return Remember(memo_size_);
    case Op::kBinPut: {
      std::uint8_t slot = 0;
      return TakeNumber(&slot) && Remember(slot);
    }
    case Op::kLongBinPut: {
      std::uint32_t slot = 0;
      return TakeNumber(&slot) && Remember(slot);
    }
    case Op::kBinGet: {
      std::uint8_t slot = 0;
      return TakeNumber(&slot) && Recall(slot);
    }
    case Op::kLongBinGet: {
      std::uint32_t slot = 0;
      return TakeNumber(&slot) && Recall(slot);
    }
    case Op::kPop:
      return Pop();
    case Op::kPopMark:
      return PopToMark(&items, &base);
    case Op::kDup:
      if (!Need(1)) return false;
      ForbidRollback();
      return PushExisting(stack_.back().node);
    // Framing.
    case Op::kProto: {
      std::uint8_t protocol = 0;
      if (!TakeNumber(&protocol)) return false;
      protocol_ = protocol;
      return protocol <= 5 ||
             Fail(ErrorKind::kUnsupported, fmt::format("pickle protocol {}", protocol));
    }
    case Op::kFrame: {
      // Python reads a frame whole before its opcodes.
      std::uint64_t length = 0;
      return TakeNumber(&length) && (length <= bytes_.size() - at_ || EndsEarly());
    }
    case Op::kGlobal:
    case Op::kInt:
    case Op::kLong:
    case Op::kFloat:
    case Op::kString:
    case Op::kUnicode:
    case Op::kGet:
    case Op::kPut:
      return StepText(op);
    default:
      return StepRefused(op);
  }
}

Result<ParsedPickle> Machine::Run() {
  if (at_ >= bytes_.size()) {
    return Error(ErrorKind::kBadMetadata, at_ == 0 ? "an empty file where a pickle is expected"
                                                   : "the file ends where a pickle is expected")
        .File(name_);
  }
  const bool has_header = static_cast<Op>(bytes_[at_]) == Op::kProto;
  std::uint64_t report_at = at_ + kReportEvery;
  while (true) {
    op_at_ = at_;
    if (at_ == bytes_.size()) {
      (void)Malformed("the pickle ends early, without a STOP");
      break;
    }
    const auto op = static_cast<Op>(bytes_[at_++]);
    if (op == Op::kStop) {
      if (!Need(1)) break;
      if (stack_.size() != 1 || !marks_.empty()) {
        (void)Malformed("a pickle that leaves several values");
        break;
      }
      return ParsedPickle{.graph = std::move(builder_).Take(),
                          .root = stack_.back().node,
                          .end = at_,
                          .protocol = protocol_};
    }
    if (!Step(op) || !CheckLimits()) break;
    if (at_ >= report_at && options_.consumed) {
      options_.consumed(at_);
      report_at = at_ + kReportEvery;
    }
  }
  if (!has_header && error_.kind() == ErrorKind::kBadMetadata) {
    return Error(ErrorKind::kBadMetadata, "not a pickle")
        .File(name_)
        .Actual(Quote(AsText(bytes_.subspan(options_.start)), 32));
  }
  return std::move(error_);
}

Result<ParsedPickle> ParsePickle(ByteSpan bytes, std::string_view name,
                                 const PickleOptions& options) {
  return Machine(bytes, name, options).Run();
}

}  // namespace ckpt::pickle
