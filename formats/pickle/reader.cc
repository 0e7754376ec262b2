#include "formats/pickle/reader.h"

#include <bit>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/endian.h"
#include "core/base/quote.h"
#include "core/base/text_number.h"
#include "formats/pickle/internal/machine.h"
#include "formats/pickle/internal/text.h"
#include "formats/pickle/opcodes.h"

namespace ckpt::pickle {
namespace {

// Decodes opcodes and their arguments and hands them to the machine. Functions return false after
// one of them has failed.
class Reader {
 public:
  Reader(ByteSpan bytes, std::string_view name, const PickleOptions& options)
      : bytes_(bytes),
        name_(name),
        options_(options),
        at_(options.start),
        machine_(bytes, options) {}

  Result<ParsedPickle> Run();

 private:
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

  bool Step(Op op);
  bool StepText(Op op);
  bool StepRefused(Op op);
  bool Decimal(std::string_view line);
  bool FloatLine(std::string_view line);
  bool Recall(std::uint64_t slot) {
    std::size_t used = 0;
    const bool ok = machine_.Recall(slot, bytes_.subspan(at_), &used);
    at_ += used;
    return ok;
  }

  bool Fail(ErrorKind kind, std::string what) { return machine_.Fail(kind, std::move(what)); }
  bool Malformed(std::string what) { return Fail(ErrorKind::kBadMetadata, std::move(what)); }
  bool EndsEarly() { return Malformed("the pickle ends early, in the opcode"); }

  ByteSpan bytes_;
  std::string_view name_;
  const PickleOptions& options_;
  std::uint64_t at_;
  std::uint64_t op_at_ = 0;
  int protocol_ = 0;
  Machine machine_;
};

bool Reader::Take(std::uint64_t length, const std::byte** out) {
  if (length > bytes_.size() - at_) return EndsEarly();
  *out = bytes_.data() + at_;
  at_ += length;
  return true;
}

bool Reader::TakeCounted(std::uint64_t length, std::string_view* out) {
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

bool Reader::TakeLine(std::string_view* out) {
  const std::string_view rest = AsText(bytes_.subspan(at_));
  const std::size_t end = rest.find('\n');
  if (end == std::string_view::npos) return EndsEarly();
  *out = rest.substr(0, end);
  at_ += end + 1;
  return true;
}

bool Reader::Decimal(std::string_view line) {
  if (!line.empty() && line.back() == 'L') line.remove_suffix(1);
  const std::optional<std::string> bytes = DecodeDecimal(line);
  if (!bytes) return Malformed("an integer that is not a decimal number");
  return machine_.PushLong(*bytes);
}

bool Reader::FloatLine(std::string_view line) {
  const std::optional<double> value = ParseNumber<double>(line);
  return value ? machine_.PushFloat(*value) : Malformed("a float that is not a number");
}

// Opcodes with text arguments: protocol 0, and names.
bool Reader::StepText(Op op) {
  std::string_view line;
  if (!TakeLine(&line)) return false;
  switch (op) {
    case Op::kGlobal: {
      std::string_view name;
      return TakeLine(&name) && machine_.PushGlobal(line, name);
    }
    case Op::kInt:
      if (line == "00" || line == "01") {
        return machine_.PushExisting(line == "01" ? kTrueNode : kFalseNode);
      }
      return Decimal(line);
    case Op::kLong:
      return Decimal(line);
    case Op::kFloat:
      return FloatLine(line);
    case Op::kString: {
      const std::optional<std::string> text = DecodeStringLiteral(line);
      return text ? machine_.PushPython2Text(*text)
                  : Malformed("a text that is not a string literal");
    }
    case Op::kUnicode: {
      const std::optional<std::string> text = DecodeRawUnicodeEscape(line);
      return text ? machine_.PushText(NodeKind::kText, *text) : Malformed("a malformed \\u escape");
    }
    default: {  // kGet, kPut
      const std::optional<std::uint64_t> slot = ParseNumber<std::uint64_t>(line);
      if (!slot || *slot > bytes_.size()) {
        return Malformed("a pickle memo slot that is not a number");
      }
      return op == Op::kGet ? Recall(*slot) : machine_.Remember(*slot);
    }
  }
}

bool Reader::StepRefused(Op op) {
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

bool Reader::Step(Op op) {
  std::string_view text;
  switch (op) {
    // Scalars.
    case Op::kNone:
      return machine_.PushExisting(kNoneNode);
    case Op::kNewTrue:
      return machine_.PushExisting(kTrueNode);
    case Op::kNewFalse:
      return machine_.PushExisting(kFalseNode);
    case Op::kBinInt1: {
      std::uint8_t value = 0;
      return TakeNumber(&value) && machine_.PushInt(value);
    }
    case Op::kBinInt2: {
      std::uint16_t value = 0;
      return TakeNumber(&value) && machine_.PushInt(value);
    }
    case Op::kBinInt: {
      std::int32_t value = 0;
      return TakeNumber(&value) && machine_.PushInt(value);
    }
    case Op::kLong1:
      return TakeText<std::uint8_t>(&text) && machine_.PushLong(text);
    case Op::kLong4:
      return TakeText<std::uint32_t>(&text) && machine_.PushLong(text);
    case Op::kBinFloat: {
      const std::byte* at = nullptr;
      return Take(8, &at) && machine_.PushFloat(std::bit_cast<double>(LoadBe<std::uint64_t>(at)));
    }
    // Text and bytes.
    case Op::kShortBinUnicode:
      return TakeText<std::uint8_t>(&text) && machine_.PushText(NodeKind::kText, text);
    case Op::kBinUnicode:
      return TakeText<std::uint32_t>(&text) && machine_.PushText(NodeKind::kText, text);
    case Op::kBinUnicode8:
      return TakeText<std::uint64_t>(&text) && machine_.PushText(NodeKind::kText, text);
    case Op::kShortBinString:
      return TakeText<std::uint8_t>(&text) && machine_.PushPython2Text(text);
    case Op::kBinString:
      return TakeText<std::uint32_t>(&text) && machine_.PushPython2Text(text);
    case Op::kShortBinBytes:
      return TakeText<std::uint8_t>(&text) && machine_.PushText(NodeKind::kBytes, text);
    case Op::kBinBytes:
      return TakeText<std::uint32_t>(&text) && machine_.PushText(NodeKind::kBytes, text);
    case Op::kBinBytes8:
      return TakeText<std::uint64_t>(&text) && machine_.PushText(NodeKind::kBytes, text);
    case Op::kByteArray8:
      return TakeText<std::uint64_t>(&text) && machine_.PushText(NodeKind::kByteArray, text);
    // Containers.
    case Op::kMark:
      machine_.Mark();
      return true;
    case Op::kEmptyTuple:
      return machine_.PushExisting(kEmptyTupleNode);
    case Op::kTuple1:
      return machine_.PushTuple(1);
    case Op::kTuple2:
      return machine_.PushTuple(2);
    case Op::kTuple3:
      return machine_.PushTuple(3);
    case Op::kTuple:
      return machine_.PushFromMark(NodeKind::kTuple);
    case Op::kEmptyList:
      return machine_.PushEmpty(NodeKind::kList);
    case Op::kList:
      return machine_.PushFromMark(NodeKind::kList);
    case Op::kEmptyDict:
      return machine_.PushEmpty(NodeKind::kDict);
    case Op::kDict:
      return machine_.PushFromMark(NodeKind::kDict);
    case Op::kEmptySet:
      return machine_.PushEmpty(NodeKind::kSet);
    case Op::kFrozenSet:
      return machine_.PushFromMark(NodeKind::kFrozenSet);
    case Op::kAppend:
      return machine_.Append();
    case Op::kAppends:
      return machine_.AppendAll();
    case Op::kSetItem:
      return machine_.SetItem();
    case Op::kSetItems:
      return machine_.SetAllItems();
    case Op::kAddItems:
      return machine_.AddAllItems();
    // Objects.
    case Op::kStackGlobal:
      return machine_.StackGlobal();
    case Op::kReduce:
      return machine_.Call();
    case Op::kNewObj:
      return machine_.NewObject(/*with_kwargs=*/false);
    case Op::kNewObjEx:
      return machine_.NewObject(/*with_kwargs=*/true);
    case Op::kBuild:
      return machine_.Build();
    case Op::kBinPersId:
      return machine_.PersistentId();
    // Memo and stack.
    case Op::kMemoize:
      return machine_.Memoize();
    case Op::kBinPut: {
      std::uint8_t slot = 0;
      return TakeNumber(&slot) && machine_.Remember(slot);
    }
    case Op::kLongBinPut: {
      std::uint32_t slot = 0;
      return TakeNumber(&slot) && machine_.Remember(slot);
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
      return machine_.Pop();
    case Op::kPopMark:
      return machine_.PopMark();
    case Op::kDup:
      return machine_.Duplicate();
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

Result<ParsedPickle> Reader::Run() {
  if (at_ >= bytes_.size()) {
    return Error(ErrorKind::kBadMetadata, at_ == 0 ? "an empty file where a pickle is expected"
                                                   : "the file ends where a pickle is expected")
        .File(name_);
  }
  const bool has_header = static_cast<Op>(bytes_[at_]) == Op::kProto;
  std::uint64_t report_at = at_ + kReportEveryBytes;
  while (true) {
    op_at_ = at_;
    if (at_ == bytes_.size()) {
      (void)Malformed("the pickle ends early, without a STOP");
      break;
    }
    const auto op = static_cast<Op>(bytes_[at_++]);
    if (op == Op::kStop) {
      if (!machine_.Finish()) break;
      auto [graph, root] = std::move(machine_).Take();
      return ParsedPickle{
          .graph = std::move(graph), .root = root, .end = at_, .protocol = protocol_};
    }
    if (!Step(op) || !machine_.CheckLimits()) break;
    if (at_ >= report_at && options_.consumed) {
      options_.consumed(at_);
      report_at = at_ + kReportEveryBytes;
    }
  }
  const Failure& failure = machine_.failure();
  if (!has_header && failure.kind == ErrorKind::kBadMetadata) {
    return Error(ErrorKind::kBadMetadata, "not a pickle")
        .File(name_)
        .Actual(Quote(AsText(bytes_.subspan(options_.start)), 32));
  }
  return Error(failure.kind, fmt::format("{} at byte {}", failure.what, op_at_)).File(name_);
}

}  // namespace

Result<ParsedPickle> ParsePickle(ByteSpan bytes, std::string_view name,
                                 const PickleOptions& options) {
  return Reader(bytes, name, options).Run();
}

}  // namespace ckpt::pickle
