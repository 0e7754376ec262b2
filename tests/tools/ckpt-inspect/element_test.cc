#include "tools/ckpt-inspect/element.h"

#include <ostream>

#include <gtest/gtest.h>

#include "core/base/bytes.h"

namespace ckpt::inspect {
namespace {

struct ElementCase {
  const char* name;
  DType dtype;
  std::vector<int> bytes;
  const char* want;
};
void PrintTo(const ElementCase& c, std::ostream* os) { *os << c.name; }

class ElementTest : public ::testing::TestWithParam<ElementCase> {};

TEST_P(ElementTest, PrintsExactly) {
  Bytes bytes;
  for (const int byte : GetParam().bytes) bytes.push_back(static_cast<std::byte>(byte));
  std::string text;
  AppendElement(GetParam().dtype, bytes.data(), text);
  EXPECT_EQ(text, GetParam().want);
}

// Values by torch 2.15: tensor.view(dtype).to(torch.float64).
INSTANTIATE_TEST_SUITE_P(
    Types, ElementTest,
    ::testing::Values(
        ElementCase{"Bool", DType::kBool, {1}, "true"},
        ElementCase{"Int8", DType::kInt8, {0xFF}, "-1"},
        ElementCase{"Uint64Max", DType::kUint64, std::vector<int>(8, 0xFF), "18446744073709551615"},
        ElementCase{"Float16", DType::kFloat16, {0x01, 0x00}, "5.960464477539063e-08"},
        ElementCase{"Bfloat16", DType::kBfloat16, {0xCD, 0x3D}, "0.10009765625"},
        ElementCase{"NegativeZero", DType::kFloat32, {0, 0, 0, 0x80}, "-0.0"},
        ElementCase{"Nan", DType::kFloat32, {0, 0, 0xC0, 0x7F}, R"({"$float": "nan"})"},
        ElementCase{"MinusInf", DType::kBfloat16, {0x80, 0xFF}, R"({"$float": "-inf"})"},
        ElementCase{"E4m3fnMax", DType::kFloat8E4m3fn, {0x7E}, "448.0"},
        ElementCase{"E4m3fnNan", DType::kFloat8E4m3fn, {0xFF}, R"({"$float": "nan"})"},
        ElementCase{"E4m3fnSmallest", DType::kFloat8E4m3fn, {0x01}, "0.001953125"},
        ElementCase{"E5m2Max", DType::kFloat8E5m2, {0x7B}, "57344.0"},
        ElementCase{"E5m2Inf", DType::kFloat8E5m2, {0x7C}, R"({"$float": "inf"})"},
        ElementCase{"E4m3fnuzMax", DType::kFloat8E4m3fnuz, {0x7F}, "240.0"},
        ElementCase{"E4m3fnuzNan", DType::kFloat8E4m3fnuz, {0x80}, R"({"$float": "nan"})"},
        ElementCase{"E5m2fnuzMax", DType::kFloat8E5m2fnuz, {0x7F}, "57344.0"},
        ElementCase{"E8m0One", DType::kFloat8E8m0fnu, {127}, "1.0"},
        ElementCase{"E8m0Nan", DType::kFloat8E8m0fnu, {0xFF}, R"({"$float": "nan"})"},
        ElementCase{"Float4LowNibbleFirst", DType::kFloat4E2m1fnX2, {0xF1}, "[0.5, -6.0]"},
        ElementCase{"Complex32", DType::kComplex32, {0, 0x3C, 0, 0xC0}, "[1.0, -2.0]"},
        ElementCase{"Bcomplex32", DType::kBcomplex32, {0x80, 0x3F, 0, 0xC0}, "[1.0, -2.0]"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace ckpt::inspect
