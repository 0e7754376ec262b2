// Scalars and arrays of numpy, as their pickles spell them: what is understood, and what only looks
// like it.
#include "formats/pickle/internal/numpy_values.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/formats/pickle/written_values.h"

namespace ckpt::pickle {
namespace {

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
  EXPECT_EQ(dtype(ScalarOf(DTypeOf("S1048576", "|"), Raw(std::string(1 << 20, 'x')))), "|S1048576");
  const Write with_short_state = [](PickleWriter& w) {
    w.Global("numpy", "dtype").BeginTuple().Text("i2").EndTuple().Reduce();
    w.BeginTuple().Int(3).Text(">").EndTuple().Build();
  };
  EXPECT_EQ(dtype(ScalarOf(with_short_state, Raw("12"))), ">i2");
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

// _reconstruct(ndarray, (0,), b'b') with the state (version, shape, dtype, is Fortran order,
// bytes).
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
  EXPECT_EQ(bytes(BufferOf(Raw("a"), Tuple(std::vector<Write>(64, Int(1))), Text("C"))), "a");
  EXPECT_EQ(bytes(Call("numpy._core.numeric", "_frombuffer",
                       Then({Raw(""), DTypeOf("S0", "|"), shape, Text("F")}))),
            "")
      << "elements of no bytes";
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
