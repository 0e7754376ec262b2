// Values of Python's and numpy's own, as their pickles spell them: what is understood, and what only looks like it.
#include "formats/torch_save/python_values.h"

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "formats/torch_save/numpy_values.h"
#include "formats/torch_save/pickle_reader.h"
#include "formats/torch_save/pickle_writer.h"
#include "formats/torch_save/python_str.h"
#include "tests/testing/matchers.h"

namespace ckpt::pickle {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;
using namespace std::string_literals;

using Write = std::function<void(PickleWriter&)>;

ParsedPickle Parse(const Write& write) {
  PickleWriter writer(Dialect::kProtocol4);
  write(writer);
  auto parsed = ParsePickle(writer.Take(), "p");
  EXPECT_THAT(parsed, ckpt::testing::IsOk());
  return std::move(parsed).value();
}

// What one of the functions under test makes of a value.
template <typename Function>
auto Of(Function function, const Write& write) {
  const ParsedPickle parsed = Parse(write);
  return function(parsed.graph, parsed.root);
}

// module.name(*args)
Write Call(const std::string& module, const std::string& name, const Write& args) {
  return [=](PickleWriter& w) {
    w.Global(module, name).BeginTuple();
    args(w);
    w.EndTuple().Reduce();
  };
}
const Write kNothing = [](PickleWriter&) {};
Write Text(const std::string& text) {
  return [=](PickleWriter& w) { w.Text(text); };
}
Write Int(std::int64_t value) {
  return [=](PickleWriter& w) { w.Int(value); };
}
Write Raw(const std::string& bytes) {
  return [=](PickleWriter& w) { w.BytesValue(AsBytes(bytes)); };
}
Write Float(double value) {
  return [=](PickleWriter& w) { w.Float(value); };
}
Write Then(const std::vector<Write>& parts) {
  return [=](PickleWriter& w) {
    for (const Write& part : parts) part(w);
  };
}
Write Tuple(const std::vector<Write>& parts) {
  return [=](PickleWriter& w) {
    w.BeginTuple();
    Then(parts)(w);
    w.EndTuple();
  };
}
Write List(const std::vector<Write>& parts) {
  return [=](PickleWriter& w) {
    w.BeginList();
    Then(parts)(w);
    w.EndList();
  };
}

// Expected texts are CPython's.
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

TEST(PythonValuesTest, BytesOfEveryProtocol) {
  EXPECT_THAT(Of(BytesOf, Raw("a\xFF")), Optional("a\xFF"s));
  EXPECT_THAT(Of(BytesOf, Call("builtins", "bytes", kNothing)), Optional(""s));
  for (const char* encoding : {"latin1", "latin-1", "iso-8859-1"}) {
    EXPECT_THAT(Of(BytesOf, Call("_codecs", "encode", Then({Text("aÿ\u00bf"), Text(encoding)}))),
                Optional("a\xFF\xBF"s));
  }
  for (const Write& args :
       {Then({Text("a")}), Then({Text("a"), Text("utf-8")}), Then({Text("a"), Int(1)}),
        Then({Int(1), Text("latin1")}), Then({Text("\u0100"), Text("latin1")})}) {
    EXPECT_EQ(Of(BytesOf, Call("_codecs", "encode", args)), std::nullopt);
  }
  EXPECT_EQ(Of(BytesOf, Call("builtins", "bytes", Int(5))), std::nullopt);
  EXPECT_EQ(Of(BytesOf, Int(5)), std::nullopt);
}

TEST(PythonValuesTest, ByteArraysOfEveryProtocol) {
  const auto make = [](const Write& args) { return Call("builtins", "bytearray", args); };
  EXPECT_THAT(Of(ByteArrayOf, make(kNothing)), Optional(""s));
  EXPECT_THAT(Of(ByteArrayOf, make(Raw("ab"))), Optional("ab"s));
  EXPECT_THAT(Of(ByteArrayOf, make(Then({Text("ÿ"), Text("latin-1")}))), Optional("\xFF"s));
  for (const Write& args :
       {Then({Text("a"), Text("utf-8")}), Then({Int(1), Text("latin1")}), Then({Text("a"), Int(1)}),
        Then({Text("a"), Text("latin1"), Int(1)}), Int(5)}) {
    EXPECT_EQ(Of(ByteArrayOf, make(args)), std::nullopt);
  }
  EXPECT_EQ(Of(ByteArrayOf, Raw("ab")), std::nullopt);
  // BYTEARRAY8, which only protocol 5 has.
  const auto parsed = ParsePickle(AsBytes("\x80\x05\x96\x02\0\0\0\0\0\0\0ab."s), "p");
  ASSERT_THAT(parsed, ckpt::testing::IsOk());
  EXPECT_THAT(ByteArrayOf(parsed->graph, parsed->root), Optional("ab"s));
}

TEST(PythonValuesTest, ComplexNumbers) {
  const auto value = Of(ComplexOf, Call("builtins", "complex", Then({Float(1.5), Int(-2)})));
  ASSERT_TRUE(value.has_value());
  EXPECT_EQ(value->real, 1.5);
  EXPECT_EQ(value->imag, -2);
  for (const Write& args : {Float(1), Then({Float(1), Text("x")}), Then({Text("x"), Float(1)})}) {
    EXPECT_FALSE(Of(ComplexOf, Call("builtins", "complex", args)).has_value());
  }
  EXPECT_FALSE(Of(ComplexOf, Float(1)).has_value());
}

TEST(PythonValuesTest, SetsBuiltByCall) {
  const auto count = [](const Write& write) -> std::optional<std::size_t> {
    const auto set = Of(SetItemsOf, write);
    if (!set) return std::nullopt;
    return set->items.size();
  };
  EXPECT_THAT(count(Call("builtins", "set", kNothing)), Optional(0U));
  EXPECT_THAT(count(Call("builtins", "set", List({Int(1), Int(2)}))), Optional(2U));
  EXPECT_THAT(count(Call("builtins", "frozenset", Tuple({Int(1)}))), Optional(1U));
  EXPECT_TRUE(Of(SetItemsOf, Call("builtins", "frozenset", kNothing))->is_frozen);
  EXPECT_EQ(count(Call("builtins", "set", Text("ab"))), std::nullopt);
  EXPECT_EQ(count(Call("builtins", "set", Then({List({}), List({})}))), std::nullopt);
  EXPECT_EQ(count(Call("builtins", "tuple", kNothing)), std::nullopt);
  EXPECT_EQ(count(Int(1)), std::nullopt);
  // Those of opcodes: EMPTY_SET ADDITEMS, FROZENSET.
  for (const std::string& pickle : {"\x80\x04\x8F(K\x01K\x02\x90."s, "\x80\x04(K\x01K\x02\x91."s}) {
    const auto parsed = ParsePickle(AsBytes(pickle), "p");
    ASSERT_THAT(parsed, ckpt::testing::IsOk());
    const auto set = SetItemsOf(parsed->graph, parsed->root);
    ASSERT_TRUE(set.has_value());
    EXPECT_EQ(set->items.size(), 2U);
    EXPECT_EQ(set->is_frozen, pickle.find('\x91') != std::string::npos);
  }
}

TEST(PythonValuesTest, PathsOfEveryVersion) {
  const auto parts = [](const std::string& module, const std::string& name, const Write& args) {
    return Of(PathPartsOf, Call(module, name, args));
  };
  EXPECT_THAT(parts("pathlib", "PosixPath", Then({Text("/"), Text("a"), Text("b")})),
              Optional(ElementsAre("/", "a", "b")));
  EXPECT_THAT(parts("pathlib._local", "PurePosixPath", Text("a/./b//c")),
              Optional(ElementsAre("a", "b", "c")));
  EXPECT_THAT(parts("pathlib", "PosixPath", Then({Text("a"), Text("/b")})),
              Optional(ElementsAre("/", "b")));
  EXPECT_THAT(parts("pathlib", "WindowsPath", Then({Text("C:\\"), Text("a/b")})),
              Optional(ElementsAre("C:\\", "a/b")));
  EXPECT_EQ(parts("pathlib", "PosixPath", Int(1)), std::nullopt);
  EXPECT_EQ(parts("pathlib", "PosixFlavour", Text("a")), std::nullopt);
  EXPECT_EQ(parts("os", "PosixPath", Text("a")), std::nullopt);
  EXPECT_EQ(Of(PathPartsOf, Text("a")), std::nullopt);
}

// 2024-02-29, 23:59:58.000007 if microseconds are asked for.
std::string PackedTime(bool with_micros) {
  return "\x07\xE8\x02\x1D\x17\x3B\x3A\0\0"s + (with_micros ? '\x07' : '\0');
}

Write Zone(const std::vector<Write>& delta) {
  return Call("datetime", "timezone", Call("datetime", "timedelta", Then(delta)));
}

TEST(PythonValuesTest, DatesAndTimes) {
  const auto time = [](const Write& args) {
    return Of(IsoFormatOf, Call("datetime", "datetime", args));
  };
  EXPECT_THAT(Of(IsoFormatOf, Call("datetime", "date", Raw("\x07\xE8\x02\x1D"))),
              Optional("2024-02-29"s));
  EXPECT_THAT(time(Raw(PackedTime(false))), Optional("2024-02-29T23:59:58"s));
  EXPECT_THAT(time(Raw(PackedTime(true))), Optional("2024-02-29T23:59:58.000007"s));
  const auto aware = [&](const Write& zone) { return time(Then({Raw(PackedTime(false)), zone})); };
  EXPECT_THAT(aware([](PickleWriter& w) { w.None(); }), Optional("2024-02-29T23:59:58"s));
  EXPECT_THAT(aware(Zone({})), Optional("2024-02-29T23:59:58+00:00"s));
  EXPECT_THAT(aware(Zone({Int(0), Int(19800), Int(0)})), Optional("2024-02-29T23:59:58+05:30"s));
  EXPECT_THAT(aware(Zone({Int(-1), Int(68400)})), Optional("2024-02-29T23:59:58-05:00"s));
  EXPECT_THAT(aware(Zone({Int(0), Int(1)})), Optional("2024-02-29T23:59:58+00:00:01"s));
}

TEST(PythonValuesTest, WhatIsNoDateOrTime) {
  const auto time = [](const Write& args) {
    return Of(IsoFormatOf, Call("datetime", "datetime", args));
  };
  EXPECT_EQ(Of(IsoFormatOf, Int(1)), std::nullopt);
  EXPECT_EQ(Of(IsoFormatOf, Call("datetime", "date", Raw("abc"))), std::nullopt);
  EXPECT_EQ(Of(IsoFormatOf, Call("datetime", "date", Then({Int(2024), Int(2), Int(29)}))),
            std::nullopt);
  EXPECT_EQ(time(kNothing), std::nullopt);
  EXPECT_EQ(time(Int(1)), std::nullopt);
  EXPECT_EQ(time(Raw("short")), std::nullopt);
  const auto aware = [&](const Write& zone) { return time(Then({Raw(PackedTime(false)), zone})); };
  EXPECT_EQ(aware(Text("Europe/Berlin")), std::nullopt);
  EXPECT_EQ(aware(Call("datetime", "timezone", kNothing)), std::nullopt);
  EXPECT_EQ(aware(Call("datetime", "timezone", Int(1))), std::nullopt);
  for (const std::vector<Write>& delta : {std::vector<Write>{Int(0), Int(0), Int(0), Int(0)},
                                          {Text("x")},
                                          {Int(-2), Int(0)},
                                          {Int(1), Int(0)},
                                          {Int(0), Int(-1)},
                                          {Int(0), Int(86400)},
                                          {Int(0), Int(0), Int(1)}}) {
    EXPECT_EQ(aware(Zone(delta)), std::nullopt);
  }
}

// numpy.dtype(code, False, True), with the state (3, order, …) if an order is given.
Write DTypeOf(const std::string& code, const std::string& order) {
  return [=](PickleWriter& w) {
    w.Global("numpy", "dtype").BeginTuple().Text(code).Bool(false).Bool(true).EndTuple().Reduce();
    if (!order.empty()) w.BeginTuple().Int(3).Text(order).None().EndTuple().Build();
  };
}

Write ScalarOf(const Write& dtype, const Write& bytes) {
  return Call("numpy._core.multiarray", "scalar", Then({dtype, bytes}));
}

TEST(NumpyValuesTest, Scalars) {
  const auto dtype = [](const Write& write) -> std::string {
    const auto scalar = Of(NumpyScalarOf, write);
    return scalar ? scalar->dtype : "none";
  };
  EXPECT_EQ(dtype(ScalarOf(DTypeOf("f8", "<"), Raw("12345678"))), "<f8");
  EXPECT_EQ(dtype(ScalarOf(DTypeOf("i2", ">"), Raw("12"))), ">i2");
  EXPECT_EQ(dtype(ScalarOf(DTypeOf("i4", "="), Raw("1234"))), "<i4");
  EXPECT_EQ(dtype(ScalarOf(DTypeOf("u1", "|"), Raw("1"))), "|u1");
  EXPECT_EQ(dtype(ScalarOf(DTypeOf("i4", ""), Raw("1234"))), "<i4");
  EXPECT_EQ(dtype(ScalarOf(DTypeOf("u1", ""), Raw("1"))), "|u1");
  EXPECT_EQ(dtype(ScalarOf(DTypeOf("U2", "<"), Raw("12345678"))), "<U2");
  EXPECT_EQ(dtype(Call("numpy.core.multiarray", "scalar", Then({DTypeOf("u1", ""), Raw("1")}))),
            "|u1");
}

TEST(NumpyValuesTest, WhatIsNoScalar) {
  const auto is_scalar = [](const Write& write) { return Of(NumpyScalarOf, write).has_value(); };
  const Write good = DTypeOf("u1", "|");
  EXPECT_FALSE(is_scalar(Int(1)));
  EXPECT_FALSE(is_scalar(Call("numpy._core.multiarray", "scalar", good)));
  EXPECT_FALSE(is_scalar(ScalarOf(good, Raw("12"))));
  EXPECT_FALSE(is_scalar(ScalarOf(good, Text("1"))));
  EXPECT_FALSE(is_scalar(ScalarOf(Text("u1"), Raw("1"))));
  for (const char* code : {"O8", "V4", "f", "fx", "f8x", "f99999999999999999999", "f2000000"}) {
    EXPECT_FALSE(is_scalar(ScalarOf(DTypeOf(code, "<"), Raw("12345678")))) << code;
  }
  EXPECT_FALSE(is_scalar(ScalarOf(DTypeOf("u1", "<<"), Raw("1"))));
  EXPECT_FALSE(is_scalar(ScalarOf(Call("numpy", "dtype", kNothing), Raw("1"))));
  EXPECT_FALSE(is_scalar(ScalarOf(Call("numpy", "dtype", Int(1)), Raw("1"))));
  for (const Write& state : {Int(1), Tuple({Int(3)}), Tuple({Int(3), Int(4)})}) {
    const Write dtype = [=](PickleWriter& w) {
      w.Global("numpy", "dtype").BeginTuple().Text("u1").EndTuple().Reduce();
      state(w);
      w.Build();
    };
    EXPECT_FALSE(is_scalar(ScalarOf(dtype, Raw("1"))));
  }
}

// _frombuffer(bytes, dtype, shape, order), as protocol 5 spells arrays.
Write BufferOf(const Write& bytes, const Write& shape, const Write& order) {
  return Call("numpy._core.numeric", "_frombuffer",
              Then({bytes, DTypeOf("u1", "|"), shape, order}));
}

// _reconstruct(ndarray, (0,), b'b') with the state (version, shape, dtype, is Fortran order, bytes).
Write ArrayOf(const Write& state) {
  return [=](PickleWriter& w) {
    w.Global("numpy._core.multiarray", "_reconstruct").BeginTuple();
    w.Global("numpy", "ndarray").BeginTuple().Int(0).EndTuple().BytesValue(AsBytes("b"));
    w.EndTuple().Reduce();
    state(w);
    w.Build();
  };
}
Write StateOf(const Write& shape, const Write& is_fortran, const Write& bytes) {
  return Tuple({Int(1), shape, DTypeOf("u1", "|"), is_fortran, bytes});
}
const Write kTrue = [](PickleWriter& w) { w.Bool(true); };
const Write kFalse = [](PickleWriter& w) { w.Bool(false); };

TEST(NumpyValuesTest, ArraysComeOutInCOrder) {
  const Write shape = Tuple({Int(2), Int(3)});
  const auto bytes = [](const Write& write) -> std::string {
    const auto array = Of(NumpyArrayOf, write);
    return array ? array->bytes : "none";
  };
  EXPECT_EQ(bytes(BufferOf(Raw("abcdef"), shape, Text("C"))), "abcdef");
  EXPECT_EQ(bytes(BufferOf(Raw("adbecf"), shape, Text("F"))), "abcdef");
  EXPECT_EQ(bytes(BufferOf(Call("builtins", "bytearray", Raw("abcdef")), shape, Text("C"))),
            "abcdef");
  EXPECT_EQ(bytes(ArrayOf(StateOf(shape, kFalse, Raw("abcdef")))), "abcdef");
  EXPECT_EQ(bytes(Call("numpy.core.numeric", "_frombuffer",
                       Then({Raw("ab"), DTypeOf("u1", "|"), Tuple({Int(2)}), Text("C")}))),
            "ab");
  EXPECT_EQ(bytes(ArrayOf(StateOf(shape, kTrue, Raw("adbecf")))), "abcdef");
  EXPECT_EQ(bytes(ArrayOf(StateOf(Tuple({Int(3)}), kTrue, Raw("abc")))), "abc");
  EXPECT_EQ(bytes(ArrayOf(StateOf(Tuple({Int(0), Int(2)}), kTrue, Raw("")))), "");
}

TEST(NumpyValuesTest, WhatIsNoArray) {
  const auto is_array = [](const Write& write) { return Of(NumpyArrayOf, write).has_value(); };
  const Write shape = Tuple({Int(2)});
  EXPECT_FALSE(is_array(Int(1)));
  EXPECT_FALSE(is_array(BufferOf(Raw("abc"), shape, Text("C"))));
  EXPECT_FALSE(is_array(BufferOf(Text("ab"), shape, Text("C"))));
  EXPECT_FALSE(is_array(BufferOf(Raw("ab"), Int(2), Text("C"))));
  EXPECT_FALSE(is_array(BufferOf(Raw("ab"), Tuple({Int(-2)}), Text("C"))));
  EXPECT_FALSE(is_array(BufferOf(Raw("ab"), Tuple({Text("2")}), Text("C"))));
  EXPECT_FALSE(is_array(BufferOf(Raw("ab"), Tuple(std::vector<Write>(65, Int(1))), Text("C"))));
  EXPECT_FALSE(is_array(BufferOf(Raw("ab"), shape, Int(1))));
  const Write huge = Int(std::int64_t{1} << 62);
  EXPECT_FALSE(is_array(BufferOf(Raw("ab"), Tuple({huge, huge}), Text("C"))));
  EXPECT_FALSE(is_array(Call("numpy._core.numeric", "_frombuffer",
                             Then({Raw(""), DTypeOf("f8", "<"), Tuple({huge}), Text("C")}))))
      << "the bytes overflow to none";
  const auto state_of_no_arguments = [](PickleWriter& w) {
    w.Global("numpy._core.multiarray", "_reconstruct").EmptyTuple().Reduce();
    w.BeginTuple().EndTuple().Build();
  };
  EXPECT_FALSE(is_array(state_of_no_arguments));
  EXPECT_FALSE(is_array(Call("numpy._core.numeric", "_frombuffer", Raw("ab"))));
  EXPECT_FALSE(is_array(ArrayOf(Int(1))));
  EXPECT_FALSE(is_array(ArrayOf(Tuple({Int(1)}))));
  EXPECT_FALSE(is_array(ArrayOf(StateOf(shape, Int(1), Raw("ab")))));
  EXPECT_FALSE(is_array(ArrayOf(StateOf(shape, kFalse, List({})))));
  EXPECT_FALSE(is_array(Call("numpy._core.multiarray", "_reconstruct", kNothing)));
  EXPECT_FALSE(is_array([](PickleWriter& w) {
    w.Global("numpy._core.multiarray", "_reconstruct").BeginTuple().Global("numpy", "matrix");
    w.EndTuple().Reduce().BeginTuple().EndTuple().Build();
  }));
}

}  // namespace
}  // namespace ckpt::pickle
