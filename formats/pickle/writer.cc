#include "formats/pickle/writer.h"

#include <bit>
#include <limits>
#include <utility>

#include "core/base/check.h"
#include "core/base/endian.h"
#include "formats/pickle/internal/text.h"
#include "formats/pickle/opcodes.h"

namespace ckpt::pickle {

PickleWriter::PickleWriter(Dialect dialect) : dialect_(dialect) {
  Put(Op::kProto);
  AppendLe<std::uint8_t>(dialect == Dialect::kProtocol4 ? 4 : 2, out_);
}

PickleWriter& PickleWriter::Put(Op op) {
  out_.push_back(static_cast<std::byte>(op));
  return *this;
}

PickleWriter& PickleWriter::None() { return Put(Op::kNone); }

PickleWriter& PickleWriter::Bool(bool value) { return Put(value ? Op::kNewTrue : Op::kNewFalse); }

PickleWriter& PickleWriter::Int(std::int64_t value) {
  if (value >= 0 && value <= std::numeric_limits<std::uint8_t>::max()) {
    Put(Op::kBinInt1);
    AppendLe(static_cast<std::uint8_t>(value), out_);
  } else if (value >= 0 && value <= std::numeric_limits<std::uint16_t>::max()) {
    Put(Op::kBinInt2);
    AppendLe(static_cast<std::uint16_t>(value), out_);
  } else if (value == static_cast<std::int32_t>(value)) {
    Put(Op::kBinInt);
    AppendLe(static_cast<std::int32_t>(value), out_);
  } else {
    Bytes bytes;
    AppendLe(value, bytes);
    // Bytes that only repeat the sign are left out.
    while (bytes.size() > 1) {
      const bool sign = (bytes[bytes.size() - 2] & std::byte{0x80}) != std::byte{0};
      if (bytes.back() != (sign ? std::byte{0xFF} : std::byte{0})) break;
      bytes.pop_back();
    }
    BigInt(AsText(bytes));
  }
  return *this;
}

PickleWriter& PickleWriter::BigInt(std::string_view twos_complement) {
  CKPT_CHECK(twos_complement.size() <= std::numeric_limits<std::uint8_t>::max());
  Put(Op::kLong1);
  AppendLe(static_cast<std::uint8_t>(twos_complement.size()), out_);
  Append(twos_complement, out_);
  return *this;
}

PickleWriter& PickleWriter::Float(double value) {
  Put(Op::kBinFloat);
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int shift = 56; shift >= 0; shift -= 8) {
    AppendLe(static_cast<std::uint8_t>(bits >> shift), out_);
  }
  return *this;
}

PickleWriter& PickleWriter::Text(std::string_view utf8) {
  CKPT_CHECK(utf8.size() <= std::numeric_limits<std::uint32_t>::max());
  if (dialect_ == Dialect::kProtocol4 && utf8.size() <= std::numeric_limits<std::uint8_t>::max()) {
    Put(Op::kShortBinUnicode);
    AppendLe(static_cast<std::uint8_t>(utf8.size()), out_);
  } else {
    Put(Op::kBinUnicode);
    AppendLe(static_cast<std::uint32_t>(utf8.size()), out_);
  }
  Append(utf8, out_);
  return *this;
}

PickleWriter& PickleWriter::BytesValue(ByteSpan bytes) {
  if (dialect_ == Dialect::kProtocol4) {
    Put(Op::kBinBytes8);
    AppendLe(static_cast<std::uint64_t>(bytes.size()), out_);
    Append(bytes, out_);
    return *this;
  }
  // Protocol 2 has no opcode for bytes. They are written as text with the same code points.
  std::string text;
  for (const std::byte byte : bytes) AppendCodePoint(std::to_integer<char32_t>(byte), text);
  return Global("_codecs", "encode").BeginTuple().Text(text).Text("latin1").EndTuple().Reduce();
}

PickleWriter& PickleWriter::EmptyTuple() { return Put(Op::kEmptyTuple); }

PickleWriter& PickleWriter::BeginTuple() {
  ++open_;
  return Put(Op::kMark);
}

PickleWriter& PickleWriter::EndTuple() { return End(Op::kTuple); }

PickleWriter& PickleWriter::InTuple() { return Put(Op::kTuple1); }

PickleWriter& PickleWriter::IntTuple(std::span<const std::int64_t> values) {
  constexpr Op kSmall[] = {Op::kEmptyTuple, Op::kTuple1, Op::kTuple2, Op::kTuple3};
  if (values.size() > 3) BeginTuple();
  for (const std::int64_t value : values) Int(value);
  return values.size() > 3 ? EndTuple() : Put(kSmall[values.size()]);
}

PickleWriter& PickleWriter::BeginList() { return Begin(Op::kEmptyList); }

PickleWriter& PickleWriter::EndList() { return End(Op::kAppends); }

PickleWriter& PickleWriter::BeginDict() { return Begin(Op::kEmptyDict); }

PickleWriter& PickleWriter::EndDict() { return End(Op::kSetItems); }

PickleWriter& PickleWriter::BeginEntries() {
  ++open_;
  return Put(Op::kMark);
}

PickleWriter& PickleWriter::Begin(Op opener) {
  ++open_;
  return Put(opener).Put(Op::kMark);
}

PickleWriter& PickleWriter::End(Op closer) {
  CKPT_CHECK(open_ > 0);
  --open_;
  return Put(closer);
}

PickleWriter& PickleWriter::Global(std::string_view module, std::string_view name) {
  if (const auto known = globals_.find(module); known != globals_.end()) {
    if (const auto slot = known->second.find(name); slot != known->second.end()) {
      return Recall(slot->second);
    }
  }
  if (dialect_ == Dialect::kProtocol4) {
    SharedText(module).SharedText(name).Put(Op::kStackGlobal);
  } else {
    Put(Op::kGlobal);
    Append(module == "builtins" ? "__builtin__" : module, out_);
    Append("\n", out_);
    Append(name, out_);
    Append("\n", out_);
  }
  globals_[std::string(module)].emplace(name, Memoize());
  return *this;
}

PickleWriter& PickleWriter::Reduce() { return Put(Op::kReduce); }

PickleWriter& PickleWriter::NewObject() { return Put(Op::kNewObj); }

PickleWriter& PickleWriter::Build() { return Put(Op::kBuild); }

PickleWriter& PickleWriter::PersistentId() { return Put(Op::kBinPersId); }

std::uint32_t PickleWriter::Memoize() {
  const std::uint32_t slot = memo_size_++;
  if (dialect_ == Dialect::kProtocol4) {
    Put(Op::kMemoize);
  } else if (slot <= std::numeric_limits<std::uint8_t>::max()) {
    Put(Op::kBinPut);
    AppendLe(static_cast<std::uint8_t>(slot), out_);
  } else {
    Put(Op::kLongBinPut);
    AppendLe(slot, out_);
  }
  return slot;
}

PickleWriter& PickleWriter::Recall(std::uint32_t slot) {
  CKPT_CHECK(slot < memo_size_);
  if (slot <= std::numeric_limits<std::uint8_t>::max()) {
    Put(Op::kBinGet);
    AppendLe(static_cast<std::uint8_t>(slot), out_);
  } else {
    Put(Op::kLongBinGet);
    AppendLe(slot, out_);
  }
  return *this;
}

PickleWriter& PickleWriter::SharedText(std::string_view utf8) {
  if (const auto it = texts_.find(utf8); it != texts_.end()) return Recall(it->second);
  Text(utf8);
  texts_.emplace(utf8, Memoize());
  return *this;
}

Bytes PickleWriter::Take() {
  CKPT_CHECK(open_ == 0);
  Put(Op::kStop);
  return std::move(out_);
}

}  // namespace ckpt::pickle
