// The opcodes of Python's pickle, protocols 0 to 5.
#ifndef CKPT_FORMATS_PICKLE_OPCODES_H_
#define CKPT_FORMATS_PICKLE_OPCODES_H_

#include <array>
#include <cstdint>

namespace ckpt::pickle {

enum class Op : std::uint8_t {
  kMark = '(',
  kStop = '.',
  kPop = '0',
  kPopMark = '1',
  kDup = '2',
  kBinBytes = 'B',
  kShortBinBytes = 'C',
  kFloat = 'F',
  kBinFloat = 'G',
  kInt = 'I',
  kBinInt = 'J',
  kBinInt1 = 'K',
  kLong = 'L',
  kBinInt2 = 'M',
  kNone = 'N',
  kPersId = 'P',
  kBinPersId = 'Q',
  kReduce = 'R',
  kString = 'S',
  kBinString = 'T',
  kShortBinString = 'U',
  kUnicode = 'V',
  kBinUnicode = 'X',
  kAppend = 'a',
  kBuild = 'b',
  kGlobal = 'c',
  kDict = 'd',
  kEmptyDict = '}',
  kAppends = 'e',
  kGet = 'g',
  kBinGet = 'h',
  kInst = 'i',
  kLongBinGet = 'j',
  kList = 'l',
  kEmptyList = ']',
  kObj = 'o',
  kPut = 'p',
  kBinPut = 'q',
  kLongBinPut = 'r',
  kSetItem = 's',
  kTuple = 't',
  kEmptyTuple = ')',
  kSetItems = 'u',
  kProto = 0x80,
  kNewObj = 0x81,
  kExt1 = 0x82,
  kExt2 = 0x83,
  kExt4 = 0x84,
  kTuple1 = 0x85,
  kTuple2 = 0x86,
  kTuple3 = 0x87,
  kNewTrue = 0x88,
  kNewFalse = 0x89,
  kLong1 = 0x8A,
  kLong4 = 0x8B,
  kShortBinUnicode = 0x8C,
  kBinUnicode8 = 0x8D,
  kBinBytes8 = 0x8E,
  kEmptySet = 0x8F,
  kAddItems = 0x90,
  kFrozenSet = 0x91,
  kNewObjEx = 0x92,
  kStackGlobal = 0x93,
  kMemoize = 0x94,
  kFrame = 0x95,
  kByteArray8 = 0x96,
  kNextBuffer = 0x97,
  kReadonlyBuffer = 0x98,
};

// What follows an opcode in the stream.
enum class Argument : std::uint8_t {
  kUnknown,  // no such opcode
  kNothing,
  kByte,
  kTwoBytes,
  kFourBytes,
  kEightBytes,
  kCounted1,  // a length in this many bytes, then as many bytes
  kCounted4,
  kCounted8,
  kLine,  // up to a line feed
  kTwoLines,
};

namespace internal {

constexpr std::array<Argument, 256> MakeArguments() {
  std::array<Argument, 256> table{};
  const auto set = [&table](Argument argument, auto... ops) {
    ((table[static_cast<std::uint8_t>(ops)] = argument), ...);
  };
  using enum Op;
  set(Argument::kNothing, kMark, kStop, kPop, kPopMark, kDup, kNone, kBinPersId, kReduce, kAppend,
      kBuild, kDict, kEmptyDict, kAppends, kList, kEmptyList, kObj, kSetItem, kTuple, kEmptyTuple,
      kSetItems, kNewObj, kTuple1, kTuple2, kTuple3, kNewTrue, kNewFalse, kEmptySet, kAddItems,
      kFrozenSet, kNewObjEx, kStackGlobal, kMemoize, kNextBuffer, kReadonlyBuffer);
  set(Argument::kByte, kBinInt1, kBinGet, kBinPut, kProto, kExt1);
  set(Argument::kTwoBytes, kBinInt2, kExt2);
  set(Argument::kFourBytes, kBinInt, kLongBinGet, kLongBinPut, kExt4);
  set(Argument::kEightBytes, kBinFloat, kFrame);
  set(Argument::kCounted1, kShortBinBytes, kShortBinString, kLong1, kShortBinUnicode);
  set(Argument::kCounted4, kBinBytes, kBinString, kBinUnicode, kLong4);
  set(Argument::kCounted8, kBinUnicode8, kBinBytes8, kByteArray8);
  set(Argument::kLine, kFloat, kInt, kLong, kPersId, kString, kUnicode, kGet, kPut);
  set(Argument::kTwoLines, kGlobal, kInst);
  return table;
}

}  // namespace internal

inline constexpr std::array<Argument, 256> kArguments = internal::MakeArguments();

}  // namespace ckpt::pickle

#endif  // CKPT_FORMATS_PICKLE_OPCODES_H_
