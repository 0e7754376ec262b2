#include "formats/pickle/internal/literal_reader.h"

#include <cstring>

#include "core/base/endian.h"
#include "formats/pickle/opcodes.h"

namespace ckpt::pickle {
namespace {

// A name and any value except a text take less. The length of a text of up to 255 bytes is checked
// separately.
constexpr std::ptrdiff_t kLookahead = 160;

// Opcodes that follow each other.
template <Op... ops>
bool Skip(const std::byte*& at) {
  constexpr std::array<std::byte, sizeof...(ops)> kWanted = {static_cast<std::byte>(ops)...};
  if (std::memcmp(at, kWanted.data(), kWanted.size()) != 0) return false;
  at += kWanted.size();
  return true;
}

Op OpAt(const std::byte* at) { return static_cast<Op>(*at); }

// The slot of a GET.
bool TakeGet(const std::byte*& at, std::uint64_t* slot) {
  if (OpAt(at) == Op::kBinGet) {
    *slot = std::to_integer<std::uint64_t>(at[1]);
    at += 2;
    return true;
  }
  if (OpAt(at) == Op::kLongBinGet) {
    *slot = LoadLe<std::uint32_t>(at + 1);
    at += 5;
    return true;
  }
  return false;
}

// An integer of at most 64 bits.
bool TakeInt(const std::byte*& at, std::int64_t* value) {
  switch (OpAt(at)) {
    case Op::kBinInt1:
      *value = std::to_integer<std::uint8_t>(at[1]);
      at += 2;
      return true;
    case Op::kBinInt2:
      *value = LoadLe<std::uint16_t>(at + 1);
      at += 3;
      return true;
    case Op::kBinInt:
      *value = LoadLe<std::int32_t>(at + 1);
      at += 5;
      return true;
    case Op::kLong1: {
      const auto length = std::to_integer<unsigned>(at[1]);
      if (length == 0 || length > 8) return false;
      // The sign is the highest bit of the bytes that are there.
      const unsigned unused = 64 - 8 * length;
      *value = static_cast<std::int64_t>(LoadLe<std::uint64_t>(at + 2) << unused) >> unused;
      at += 2 + length;
      return true;
    }
    default:
      return false;
  }
}

bool IsAscii(const std::byte* at, std::size_t length) {
  std::byte seen{0};
  for (std::size_t i = 0; i < length; ++i) seen |= at[i];
  return (seen & std::byte{0x80}) == std::byte{0};
}

}  // namespace

bool LiteralReader::Read(NodeId cls, ByteSpan bytes, std::uint64_t memo_size) {
  const std::byte* at = bytes.data();
  const std::byte* const end = at + bytes.size();
  if (end - at < kLookahead || !Skip<Op::kEmptyTuple, Op::kNewObj>(at)) return false;
  cls_ = cls;
  num_fields_ = 0;
  num_memoized_ = 0;
  SkipMemoize(at);
  if (!Skip<Op::kEmptyDict>(at)) return false;
  SkipMemoize(at);
  if (!Skip<Op::kMark>(at)) return false;
  while (!Skip<Op::kSetItems, Op::kBuild>(at)) {
    if (num_fields_ == kMaxFields || end - at < kLookahead) return false;
    if (!ReadField(at, end, fields_[num_fields_])) return false;
    ++num_fields_;
    if (end - at < 2) return false;
  }
  size_bytes_ = static_cast<std::size_t>(at - bytes.data());
  return memo_->NextRead(memo_size) >= memo_size + num_memoized_;
}

void LiteralReader::SkipMemoize(const std::byte*& at) {
  if (OpAt(at) != Op::kMemoize) return;
  ++at;
  ++num_memoized_;
}

bool LiteralReader::ReadField(const std::byte*& at, const std::byte* end, LiteralField& field) {
  std::uint64_t slot = 0;
  if (!TakeGet(at, &slot)) return false;
  field.name = memo_->Get(slot);
  if (field.name == kNoNode || graph_->kind(field.name) != NodeKind::kText) return false;
  Literal& value = field.value;
  switch (OpAt(at)) {
    case Op::kNone:
      value.kind = Literal::Kind::kNone;
      ++at;
      return true;
    case Op::kShortBinUnicode:
      return ReadText(at, end, value);
    case Op::kBinGet:
    case Op::kLongBinGet:
      return ReadFromMemo(at, value);
    default:
      value.kind = Literal::Kind::kInt;
      return TakeInt(at, &value.integer);
  }
}

bool LiteralReader::ReadText(const std::byte*& at, const std::byte* end, Literal& value) {
  const auto length = std::to_integer<std::uint8_t>(at[1]);
  const std::byte* const text = at + 2;
  if (end - text <= length || !IsAscii(text, length)) return false;
  value.kind = Literal::Kind::kText;
  value.text = AsText(ByteSpan(text, length));
  at = text + length;
  SkipMemoize(at);
  return true;
}

bool LiteralReader::ReadFromMemo(const std::byte*& at, Literal& value) {
  std::uint64_t slot = 0;
  if (!TakeGet(at, &slot)) return false;
  value.node = memo_->Get(slot);
  if (value.node == kNoNode) return false;
  switch (graph_->kind(value.node)) {
    case NodeKind::kGlobal:
      return ReadCall(at, value);
    case NodeKind::kText:
    case NodeKind::kTuple:
    case NodeKind::kRecord:
      value.kind = Literal::Kind::kNode;
      return true;
    default:
      // Everything else is left to the machine, above all objects that can still change.
      return false;
  }
}

bool LiteralReader::ReadCall(const std::byte*& at, Literal& value) {
  std::array<std::int64_t, kMaxIntegers>& integers = integers_[num_fields_];
  const bool has_mark = Skip<Op::kMark>(at);
  std::size_t count = 0;
  while (count < kMaxIntegers && TakeInt(at, &integers[count])) ++count;
  // Short tuples have opcodes of their own.
  constexpr std::array<Op, 4> kBySize = {Op::kEmptyTuple, Op::kTuple1, Op::kTuple2, Op::kTuple3};
  if (!has_mark && count >= kBySize.size()) return false;
  if (OpAt(at) != (has_mark ? Op::kTuple : kBySize[count])) return false;
  ++at;
  SkipMemoize(at);
  if (!Skip<Op::kTuple1>(at)) return false;
  SkipMemoize(at);
  if (!Skip<Op::kReduce>(at)) return false;
  SkipMemoize(at);
  value.kind = Literal::Kind::kCall;
  value.integers = std::span<const std::int64_t>(integers).first(count);
  return true;
}

}  // namespace ckpt::pickle
