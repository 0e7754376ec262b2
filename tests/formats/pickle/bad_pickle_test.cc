// Pickles that are cut, malformed or too large: each is refused with its kind, its byte and its
// file.
#include <ostream>
#include <string>
#include <string_view>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "formats/pickle/internal/builder.h"
#include "formats/pickle/reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::pickle {
namespace {

using ::ckpt::testing::FailsWith;
using ::ckpt::testing::IsOk;
using ::testing::HasSubstr;
using namespace std::string_literals;

Result<ParsedPickle> ParseBad(std::string_view text) { return ParsePickle(AsBytes(text), "a.pkl"); }

std::string MessageOf(const Result<ParsedPickle>& parsed) {
  return parsed.ok() ? "OK" : parsed.status().ToString();
}

struct BadCase {
  const char* name;
  std::string bytes;
  ErrorKind kind;
  const char* says;
};
void PrintTo(const BadCase& c, std::ostream* os) { *os << c.name; }

class BadPickleTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadPickleTest, IsRefusedWithItsByte) {
  const auto parsed = ParseBad(GetParam().bytes);
  EXPECT_THAT(parsed, FailsWith(GetParam().kind));
  EXPECT_THAT(MessageOf(parsed), HasSubstr(GetParam().says));
  EXPECT_THAT(MessageOf(parsed), HasSubstr("a.pkl"));
}

INSTANTIATE_TEST_SUITE_P(
    Cases, BadPickleTest,
    ::testing::Values(
        BadCase{"Empty", "", ErrorKind::kBadMetadata, "empty file"},
        BadCase{"Text", "hello there\n", ErrorKind::kBadMetadata, "not a pickle"},
        BadCase{"UnknownOpcode", "\x80\x02N\xFF."s, ErrorKind::kBadMetadata,
                "unknown pickle opcode 0xff at byte 3"},
        BadCase{"MemoNotSet", "\x80\x02h\x07."s, ErrorKind::kBadMetadata,
                "memo slot 7 not set at byte 2"},
        BadCase{"MemoReadBeforeItIsSet", "\x80\x02h\x01Nq\x01."s, ErrorKind::kBadMetadata,
                "memo slot 1 not set"},
        BadCase{"Underflow", "\x80\x02\x86."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"PopsBelowAMark", "\x80\x02N(\x85."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"NoMark", "\x80\x02Nt."s, ErrorKind::kBadMetadata, "no mark"},
        BadCase{"NoMarkToAppend", "\x80\2]e."s, ErrorKind::kBadMetadata, "no mark"},
        BadCase{"NoMarkToSet", "\x80\2}u."s, ErrorKind::kBadMetadata, "no mark"},
        BadCase{"NoMarkToAdd", "\x80\4\x8F\x90."s, ErrorKind::kBadMetadata, "no mark"},
        BadCase{"NoMarkToPop", "\x80\2\x31."s, ErrorKind::kBadMetadata, "no mark"},
        BadCase{"NoStop", "\x80\x02N"s, ErrorKind::kBadMetadata,
                "ends early, without a STOP at byte 3"},
        BadCase{"CutArgument", "\x80\x02M\x01"s, ErrorKind::kBadMetadata,
                "ends early, in the opcode at byte 2"},
        BadCase{"CutText",
                "\x80\x02X\x03\x00\x00\x00"
                "ab"s,
                ErrorKind::kBadMetadata, "ends early"},
        BadCase{"HugeLength",
                "\x80\x04\x8D\x00\x00\x00\x00\x00\x00\x00\x10"
                "ab"s,
                ErrorKind::kResource, "1152921504606846976 bytes is announced"},
        BadCase{"LengthOfTheWholeFile", "\x80\4\x8D\x0B\0\0\0\0\0\0\0"s, ErrorKind::kBadMetadata,
                "ends early"},
        BadCase{"LengthPastTheWholeFile", "\x80\4\x8D\x0C\0\0\0\0\0\0\0"s, ErrorKind::kResource,
                "12 bytes is announced"},
        BadCase{"Inst", "(S'ls'\niposix\nsystem\n."s, ErrorKind::kUnsafePickle, "posix.system"},
        BadCase{"Obj", "\x80\x02(cposix\nsystem\no."s, ErrorKind::kUnsafePickle, "OBJ"},
        BadCase{"Ext", "\x80\x02\x82\x01."s, ErrorKind::kUnsupported, "EXT"},
        BadCase{"Ext2", "\x80\2\x83\1\1."s, ErrorKind::kUnsupported, "EXT"},
        BadCase{"Ext4", "\x80\2\x84\1\1\1\1."s, ErrorKind::kUnsupported, "EXT"},
        BadCase{"ReadonlyBuffer", "\x80\5\x98."s, ErrorKind::kUnsupported, "out-of-band"},
        BadCase{"InstCutInItsModule", "\x80\2(iposix"s, ErrorKind::kBadMetadata, "ends early"},
        BadCase{"InstCutInItsClass", "\x80\2(iposix\nsys"s, ErrorKind::kBadMetadata, "ends early"},
        BadCase{"PersId", "\x80\x02P1\n."s, ErrorKind::kUnsupported, "PERSID"},
        BadCase{"Buffer", "\x80\x05\x97."s, ErrorKind::kUnsupported, "out-of-band"},
        BadCase{"NewerProtocol", "\x80\x06N."s, ErrorKind::kUnsupported, "protocol 6"},
        BadCase{"BadUtf8", "\x80\x02X\x01\x00\x00\x00\xFF."s, ErrorKind::kBadMetadata, "UTF-8"},
        BadCase{"AppendToDict", "\x80\x02}Na."s, ErrorKind::kBadMetadata, "appended to a dict"},
        BadCase{"OddDict", "\x80\x02}(Nu."s, ErrorKind::kBadMetadata, "key without its value"},
        BadCase{"StateOfAnInt", "\x80\x02K\x01}b."s, ErrorKind::kBadMetadata, "a state for a int"},
        BadCase{"CallWithoutTuple",
                "\x80\x02"
                "ca\nb\nNR."s,
                ErrorKind::kBadMetadata, "not a tuple"},
        BadCase{"TwoValues", "\x80\x02NN."s, ErrorKind::kBadMetadata, "several values"},
        BadCase{"OpenMark", "\x80\x02(N(."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"MarkLeft", "\x80\x02(N."s, ErrorKind::kBadMetadata, "several values"},
        BadCase{"NoValue", "\x80\x02."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"DuplicatesNothing", "\x80\x02\x32."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"PopsNothing", "\x80\x02\x30."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"RemembersNothing", "\x80\x04\x94."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"PersistsNothing", "\x80\x02Q."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"BuildsNothing", "\x80\x02Nb."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"CallsNothing", "\x80\x02)R."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"InstanceOfNothing", "\x80\x02)\x81."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"HalfAName", "\x80\x04\x8C\1a\x93."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"AppendsToNothing", "\x80\x02Na."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"AppendsAllToNothing", "\x80\x02(Ne."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"SetsInNothing", "\x80\x02NNs."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"SetsAllInNothing", "\x80\x02(NNu."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"AddsToNothing", "\x80\x04(N\x90."s, ErrorKind::kBadMetadata, "stack underflow"},
        BadCase{"AddToList", "\x80\x04](N\x90."s, ErrorKind::kBadMetadata, "items added to a list"},
        BadCase{"EntryOfList", "\x80\x02]NNs."s, ErrorKind::kBadMetadata, "entries set in a list"},
        BadCase{"OddDictByMark", "\x80\x02(Nd."s, ErrorKind::kBadMetadata, "key without its value"},
        BadCase{"StateOfAByteArray", "\x80\5\x96\0\0\0\0\0\0\0\0}b."s, ErrorKind::kBadMetadata,
                "a state for a bytearray"},
        BadCase{"StateOfAPersistentId", "\x80\2NQ}b."s, ErrorKind::kBadMetadata,
                "a state for a persistent id"},
        BadCase{"SecondState", "\x80\2cm\nf\n)\x81}b}b."s, ErrorKind::kBadMetadata,
                "a second state"},
        BadCase{"InstanceOfAnInt", "\x80\2K\1)\x81."s, ErrorKind::kBadMetadata, "not a class"},
        BadCase{"InstanceWithoutTuple", "\x80\2cm\nf\nN\x81."s, ErrorKind::kBadMetadata,
                "arguments of a class that are not a tuple"},
        BadCase{"KeywordsInAList", "\x80\4cm\nf\n)]\x92."s, ErrorKind::kBadMetadata,
                "keyword arguments that are not a dict"},
        BadCase{"ClassNamedByAnInt", "\x80\4\x8C\1aK\1\x93."s, ErrorKind::kBadMetadata,
                "a class whose name is not text"},
        BadCase{"ModuleNamedByAnInt", "\x80\4K\1\x8C\1a\x93."s, ErrorKind::kBadMetadata,
                "a class whose name is not text"},
        BadCase{"ModuleInNoEncoding", "\x80\2c\xFF\na\n."s, ErrorKind::kBadMetadata,
                "a name that is not UTF-8"},
        BadCase{"ClassInNoEncoding", "\x80\2ca\n\xFF\n."s, ErrorKind::kBadMetadata,
                "a name that is not UTF-8"},
        BadCase{"NoDecimal", "\x80\2L\n."s, ErrorKind::kBadMetadata, "not a decimal number"},
        BadCase{"NoFloat", "\x80\2F1x\n."s, ErrorKind::kBadMetadata, "not a number"},
        BadCase{"EmptyFloat", "\x80\2F\n."s, ErrorKind::kBadMetadata, "not a number"},
        BadCase{"NoLiteral", "\x80\2Sa\n."s, ErrorKind::kBadMetadata, "not a string literal"},
        BadCase{"NoEscape", "\x80\2V\\u12\n."s, ErrorKind::kBadMetadata, "a malformed \\u escape"},
        BadCase{"SlotOfText", "\x80\2Npx\n."s, ErrorKind::kBadMetadata,
                "slot that is not a number"},
        BadCase{"SlotWithARest", "\x80\2Np1x\n."s, ErrorKind::kBadMetadata,
                "slot that is not a number"},
        BadCase{"SlotPastTheFile", "\x80\2Np9\n."s, ErrorKind::kBadMetadata,
                "slot that is not a number"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(PickleReaderTest, AnswersEveryCutOfAPickleWithAnError) {
  const std::string whole =
      "\x80\x04\x95\x20\x00\x00\x00\x00\x00\x00\x00}\x94(\x8C\x01"
      "a\x94K\x01\x8C\x01"
      "b\x94"
      "G?\xF8\x00\x00\x00\x00\x00\x00\x8C\x01m\x8C\x01n\x93)\x81}bu."s;
  // The last text is a key without value.
  const std::string good = whole.substr(0, whole.size() - 2) + "Nu.";
  ASSERT_THAT(ParseBad(good), IsOk());
  for (std::size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ParseBad(std::string_view(good).substr(0, length)).ok()) << length;
  }
}

TEST(PickleReaderTest, AnswersEveryCutOfEveryOpcodeWithAnError) {
  for (const std::string& whole : {"I12\n."s,
                                   "L12L\n."s,
                                   "F1.5\n."s,
                                   "S'a'\n."s,
                                   "Va\n."s,
                                   "K\1."s,
                                   "M\1\1."s,
                                   "J\1\1\1\1."s,
                                   "\x8A\2\1\1."s,
                                   "\x8B\2\0\0\0\1\1."s,
                                   "GABCDEFGH."s,
                                   "U\1a."s,
                                   "T\1\0\0\0a."s,
                                   "X\1\0\0\0a."s,
                                   "\x8C\1a."s,
                                   "\x8D\1\0\0\0\0\0\0\0a."s,
                                   "C\1a."s,
                                   "B\1\0\0\0a."s,
                                   "\x8E\1\0\0\0\0\0\0\0a."s,
                                   "\x96\1\0\0\0\0\0\0\0a."s,
                                   "Nq\1h\1\x86."s,
                                   "Nr\1\0\0\0j\1\0\0\0\x86."s,
                                   "Np1\ng1\n\x86."s,
                                   "cm\nf\n."s}) {
    ASSERT_THAT(ParseBad("\x80\5" + whole), IsOk());
    for (std::size_t length = 0; length < whole.size(); ++length) {
      EXPECT_THAT(ParseBad("\x80\5" + whole.substr(0, length)), FailsWith(ErrorKind::kBadMetadata))
          << whole << " cut to " << length;
    }
  }
}

TEST(PickleReaderTest, StopsAtItsLimits) {
  const auto limited = [](std::string_view bytes, const PickleOptions& options) {
    return ParsePickle(AsBytes(bytes), "a.pkl", options);
  };
  // One list on top of the nodes that always exist.
  EXPECT_THAT(limited("].", {.max_nodes = kFirstFreeNode + 1}), IsOk());
  EXPECT_THAT(limited("\x80\2].", {.max_nodes = kFirstFreeNode}), FailsWith(ErrorKind::kResource));
  EXPECT_THAT(MessageOf(limited("\x80\2].", {.max_nodes = kFirstFreeNode})),
              HasSubstr("more than 260 objects"));
  // A slot is at most as large as the file.
  EXPECT_THAT(limited("\x80\2Np7\n.", {}), IsOk());
  // Values and marks.
  EXPECT_THAT(limited("NNN00.", {.max_stack = 3}), IsOk());
  EXPECT_THAT(limited("((((1111N.", {.max_stack = 4}), IsOk());
  for (const char* bytes : {"\x80\2NNNN000.", "\x80\2((((1111N."}) {
    const auto parsed = limited(bytes, {.max_stack = 3});
    EXPECT_THAT(parsed, FailsWith(ErrorKind::kResource));
    EXPECT_THAT(MessageOf(parsed), HasSubstr("a stack of more than 3"));
  }
}

TEST(PickleReaderTest, BoundsIntegersAndNames) {
  const auto integer = [](std::uint32_t length) {
    std::string bytes = "\x80\2\x8B\0\0\0\0"s + std::string(length, '\1') + ".";
    StoreLe<std::uint32_t>(length, reinterpret_cast<std::byte*>(&bytes[3]));
    return ParseBad(bytes);
  };
  EXPECT_THAT(integer(1 << 20), IsOk());
  EXPECT_THAT(integer((1 << 20) + 1), FailsWith(ErrorKind::kResource));
  // The same long text as the module of class after class: 1 MiB for all is free.
  const auto classes = [](int count) {
    std::string bytes = "\x80\4\x8C\xFF" + std::string(255, 'm') + "\x94";
    for (int i = 0; i < count; ++i) {
      bytes += "0h\0\x8C\2"s + static_cast<char>('0' + i / 64) + static_cast<char>('0' + i % 64);
      bytes += "\x93";
    }
    return ParseBad(bytes + ".");
  };
  EXPECT_THAT(classes(4080), IsOk());
  EXPECT_THAT(classes(4081), FailsWith(ErrorKind::kResource));
}

TEST(PickleReaderTest, RefusesAMemoizeWhoseSlotReadersDisagreeAbout) {
  // Slot 5 is set, slots 0 to 4 are not: Python's MEMOIZE takes slot 1.
  const auto parsed = ParseBad(
      "\x80\x04K\x01q\x05"
      "0K\x02\x94"
      "0h\x06."s);
  EXPECT_THAT(parsed, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(MessageOf(parsed), HasSubstr("MEMOIZE behind a gap"));
  // Without a gap both count the same.
  EXPECT_THAT(ParseBad("\x80\x04K\x01q\x00"
                       "0K\x02\x94"
                       "0h\x01."s),
              IsOk());
}

TEST(PickleReaderTest, RefusesAFrameThatIsLongerThanTheRest) {
  EXPECT_THAT(ParseBad("\x80\x04\x95\x02\x00\x00\x00\x00\x00\x00\x00N."s), IsOk());
  EXPECT_THAT(ParseBad("\x80\x04\x95\x03\x00\x00\x00\x00\x00\x00\x00N."s),
              FailsWith(ErrorKind::kBadMetadata));
}

}  // namespace
}  // namespace ckpt::pickle
