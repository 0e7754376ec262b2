// What Python's str() and repr() say of a key; expected texts are CPython's.
#include "formats/pickle/python_str.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include <gmock/gmock.h>

#include "tests/formats/pickle/written_values.h"

namespace ckpt::pickle {
namespace {

using namespace std::string_literals;

TEST(PythonStrTest, SpellsNumbersAsPythonDoes) {
  const auto str = [](double value) { return Of(PythonStr, Float(value)); };
  EXPECT_EQ(str(std::nan("")), "nan");
  EXPECT_EQ(str(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(str(-std::numeric_limits<double>::infinity()), "-inf");
  EXPECT_EQ(str(0), "0.0");
  EXPECT_EQ(str(-1), "-1.0");
  EXPECT_EQ(str(0.5), "0.5");
  EXPECT_EQ(str(0.0001), "0.0001");
  EXPECT_EQ(str(0.00001), "1e-05");
  EXPECT_EQ(str(1e16), "1e+16");
  EXPECT_EQ(str(123456789.125), "123456789.125");
  EXPECT_EQ(Of(PythonStr, Int(-70000)), "-70000");
  EXPECT_EQ(Of(PythonStr, [](PickleWriter& w) { w.BigInt("\0\0\0\0\0\0\0\0\1"s); }),
            "18446744073709551616");
  const auto big = [](std::size_t bytes) {
    return Of(PythonStr, [=](PickleWriter& w) { w.BigInt(std::string(bytes, '\1')); });
  };
  EXPECT_EQ(big(64).size(), 152U);
  EXPECT_EQ(big(65), "<int>");
}

TEST(PythonStrTest, SpellsOtherKeysAsPythonDoes) {
  EXPECT_EQ(Of(PythonStr, [](PickleWriter& w) { w.None(); }), "None");
  EXPECT_EQ(Of(PythonStr, [](PickleWriter& w) { w.Bool(true); }), "True");
  EXPECT_EQ(Of(PythonStr, [](PickleWriter& w) { w.Bool(false); }), "False");
  EXPECT_EQ(Of(PythonStr, Text("a'b")), "a'b");
  EXPECT_EQ(Of(PythonStr, Raw("\xFF\n\x01z'"s)), R"(b"\xff\n\x01z'")");
  EXPECT_EQ(Of(PythonStr, Raw("\x7F\x80")), R"(b'\x7f\x80')");
  // As protocols 0 to 2 spell bytes: each is the character of its number.
  EXPECT_EQ(Of(PythonStr, Call("_codecs", "encode", Then({Text("\u007f\u0080'"), Text("latin1")}))),
            R"(b"\x7f\x80'")");
  EXPECT_EQ(Of(PythonStr, Call("builtins", "bytes", Then({}))), "b''");
  EXPECT_EQ(Of(PythonStr, Call("_codecs", "encode", Then({Text("a"), Text("rot13")}))),
            "<_codecs.encode>");
  EXPECT_EQ(Of(PythonStr, Tuple({})), "()");
  EXPECT_EQ(Of(PythonStr, Tuple({Int(1)})), "(1,)");
  EXPECT_EQ(Of(PythonStr, Tuple({Int(1), Text("a"), Tuple({Float(2)})})), "(1, 'a', (2.0,))");
  EXPECT_EQ(Of(PythonStr, [](PickleWriter& w) { w.Global("torch", "float32"); }), "torch.float32");
  EXPECT_EQ(Of(PythonStr, [](PickleWriter& w) { w.Global("collections", "OrderedDict"); }),
            "<collections.OrderedDict>");
  EXPECT_THAT(Of(PythonStr, List({})), ::testing::StartsWith("<"));
  EXPECT_EQ(Of(PythonStr, Call("uuid", "UUID", kNothing)), "<uuid.UUID>");
  const auto of_pickle = [](std::string_view pickle) {
    const auto parsed = ParsePickle(AsBytes(pickle), "p");
    EXPECT_THAT(parsed, ckpt::testing::IsOk());
    return PythonStr(parsed->graph, parsed->root);
  };
  EXPECT_EQ(of_pickle("}."), "<dict>");
  EXPECT_EQ(of_pickle("NQ."), "<persistent id>");
  EXPECT_EQ(of_pickle("cm\nC\n)\x81."), "<m.C>");
  EXPECT_EQ(of_pickle("\x80\5\x96\1\0\0\0\0\0\0\0a."s), "<bytearray>");
  EXPECT_EQ(of_pickle("\x80\4\x8F."), "<set>");
  EXPECT_EQ(of_pickle("\x80\4(\x91."), "<frozenset>");
}

TEST(PythonStrTest, QuotesTextAsPythonDoes) {
  EXPECT_EQ(Of(PythonRepr, Text("a")), "'a'");
  EXPECT_EQ(Of(PythonRepr, Text("it's")), R"("it's")");
  EXPECT_EQ(Of(PythonRepr, Text("it's \"it\"")), R"('it\'s "it"')");
  EXPECT_EQ(Of(PythonRepr, Text("\\\n\r\t\x01\x7F")), R"('\\\n\r\t\x01\x7f')");
  EXPECT_EQ(Of(PythonRepr, Text("é")), "'é'");
}

TEST(PythonStrTest, IsBounded) {
  Write deep = Int(1);
  for (int i = 0; i < 12; ++i) deep = Tuple({deep});
  EXPECT_THAT(Of(PythonStr, deep), ::testing::HasSubstr("<tuple>"));
  const Write large = Text(std::string(70000, 'x'));
  EXPECT_TRUE(Of(PythonStr, Tuple({large, large, large})) == "<tuple>");
  // One item more than the text of the others allows.
  const auto with_text = [](std::size_t bytes) {
    return Of(PythonStr, Tuple({Text(std::string(bytes, 'x')), Int(1)}));
  };
  EXPECT_EQ(with_text((1 << 16) - 2).size(), (1U << 16) - 2 + 7);
  EXPECT_EQ(with_text((1 << 16) - 1), "<tuple>");
}

}  // namespace
}  // namespace ckpt::pickle
