// Values of Python's own, as their pickles spell them: what is understood, and what only looks like
// it.
#include "formats/pickle/internal/python_values.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/formats/pickle/written_values.h"

namespace ckpt::pickle {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;
using namespace std::string_literals;

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

TEST(PythonValuesTest, BytesUpToALength) {
  const auto up_to_two = [](const Graph& graph, NodeId node) { return BytesUpTo(graph, node, 2); };
  const auto encoded = [](const char* text) {
    return Call("_codecs", "encode", Then({Text(text), Text("latin1")}));
  };
  EXPECT_THAT(Of(up_to_two, Raw("ab")), Optional("ab"s));
  EXPECT_EQ(Of(up_to_two, Raw("abc")), std::nullopt);
  EXPECT_THAT(Of(up_to_two, encoded("ÿÿ")), Optional("\xFF\xFF"s));
  EXPECT_EQ(Of(up_to_two, encoded("abc")), std::nullopt);
  EXPECT_EQ(Of(up_to_two, encoded("abcdefgh")), std::nullopt);
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

}  // namespace
}  // namespace ckpt::pickle
