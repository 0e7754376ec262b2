#include "formats/pickle/internal/memo.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

#include "core/base/endian.h"
#include "formats/pickle/opcodes.h"

namespace ckpt::pickle {
namespace {

// What kind of argument follows each opcode. That of STOP counts as unknown, so that a scan ends
// there.
constexpr std::array<Argument, 256> kScanned = [] {
  std::array<Argument, 256> arguments = kArguments;
  arguments[static_cast<std::uint8_t>(Op::kStop)] = Argument::kUnknown;
  return arguments;
}();

// The length of an opcode's argument at `at`, or more than `left` where it does not fit.
std::uint64_t ArgumentBytes(Argument argument, const std::byte* at, std::uint64_t left) {
  constexpr std::uint64_t kTooLong = ~0ULL;
  const auto counted = [left](std::uint64_t width, std::uint64_t length) {
    return length > left - width ? kTooLong : width + length;
  };
  switch (argument) {
    case Argument::kNothing:
      return 0;
    case Argument::kByte:
      return 1;
    case Argument::kTwoBytes:
      return 2;
    case Argument::kFourBytes:
      return 4;
    case Argument::kEightBytes:
      return 8;
    case Argument::kCounted1:
      return left < 1 ? kTooLong : counted(1, std::to_integer<std::uint64_t>(*at));
    case Argument::kCounted4:
      return left < 4 ? kTooLong : counted(4, LoadLe<std::uint32_t>(at));
    case Argument::kCounted8:
      return left < 8 ? kTooLong : counted(8, LoadLe<std::uint64_t>(at));
    case Argument::kLine:
    case Argument::kTwoLines: {
      const std::byte* from = at;
      for (int lines = argument == Argument::kLine ? 1 : 2; lines > 0; --lines) {
        const auto* end = static_cast<const std::byte*>(
            std::memchr(from, '\n', left - static_cast<std::uint64_t>(from - at)));
        if (end == nullptr) return kTooLong;
        from = end + 1;
      }
      return static_cast<std::uint64_t>(from - at);
    }
    case Argument::kUnknown:
      return kTooLong;
  }
  return kTooLong;
}

}  // namespace

Memo::Memo(ByteSpan bytes, std::uint64_t start, const std::function<void(std::uint64_t)>& consumed)
    : max_slot_(bytes.size()) {
  const std::byte* const begin = bytes.data();
  const std::byte* const end = begin + bytes.size();
  for (const std::byte* at = begin + std::min<std::uint64_t>(start, bytes.size()); at != end;) {
    const auto left = static_cast<std::uint64_t>(end - at);
    const std::byte* const stretch_end = at + std::min(left, kReportEveryBytes);
    at = Scan(at, stretch_end, end);
    if (at < stretch_end) break;
    if (consumed) consumed(static_cast<std::uint64_t>(at - begin));
  }
  ranks_.reserve(read_.size());
  std::uint32_t rank = 0;
  for (const std::uint64_t word : read_) {
    ranks_.push_back(rank);
    rank += static_cast<std::uint32_t>(std::popcount(word));
  }
  nodes_.assign(rank, kNoNode);
}

const std::byte* Memo::Scan(const std::byte* at, const std::byte* stretch_end,
                            const std::byte* end) {
  while (at < stretch_end) {
    const auto op = static_cast<Op>(*at);
    const auto left = static_cast<std::uint64_t>(end - at - 1);
    const Argument argument = kScanned[std::to_integer<std::uint8_t>(*at)];
    // A large pickle consists mostly of these. They are separate cases with constant lengths, so
    // that the processor can predict where the next opcode begins.
    if (argument == Argument::kNothing) {
      ++at;
      continue;
    }
    if (argument == Argument::kByte && left >= 1) {
      if (op == Op::kBinGet) MarkRead(std::to_integer<std::uint64_t>(at[1]));
      at += 2;
      continue;
    }
    if (argument == Argument::kFourBytes && left >= 4) {
      if (op == Op::kLongBinGet) MarkRead(LoadLe<std::uint32_t>(at + 1));
      at += 5;
      continue;
    }
    const std::uint64_t length = ArgumentBytes(argument, at + 1, left);
    if (length > left) return at;
    if (op == Op::kGet) {
      std::uint64_t slot = 0;
      const char* text = reinterpret_cast<const char*>(at + 1);
      if (std::from_chars(text, text + length, slot).ec == std::errc()) MarkRead(slot);
    }
    at += 1 + length;
  }
  return at;
}

std::uint64_t Memo::NextRead(std::uint64_t slot) {
  if (slot >= quiet_from_ && slot <= quiet_until_) return quiet_until_;
  quiet_from_ = slot;
  quiet_until_ = ~0ULL;
  for (std::uint64_t word = slot / 64; word < read_.size(); ++word) {
    std::uint64_t bits = read_[word];
    if (word == slot / 64) bits &= ~0ULL << (slot % 64);
    if (bits == 0) continue;
    quiet_until_ = word * 64 + static_cast<std::uint64_t>(std::countr_zero(bits));
    break;
  }
  return quiet_until_;
}

void Memo::AddRead(std::uint64_t slot) {
  // Each slot that is set takes at least a byte of the pickle, so no slot has a number above its
  // size.
  if (slot > max_slot_) return;
  if (slot / 64 >= read_.size()) {
    read_.resize(std::max<std::size_t>(slot / 64 + 1, read_.size() * 2), 0);
  }
  read_[slot / 64] |= 1ULL << (slot % 64);
}

}  // namespace ckpt::pickle
