#include "converters/quantised/decoded_weights.h"

#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "converters/config/hf_config.h"
#include "core/base/endian.h"
#include "core/checkpoint/copy_index.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/read.h"
#include "core/checkpoint/validate.h"
#include "core/checkpoint/view_source.h"
#include "core/tensor/cast.h"
#include "formats/registry/registry.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr DType kFp8 = DType::kFloat8E4m3fn;
const std::string kWeight = "model.layers.0.mlp.up_proj.weight";
const std::string kScale = kWeight + "_scale_inv";
const std::string kBlocks = "model.layers.0.mlp.experts.down_proj_blocks";
const std::string kScales = "model.layers.0.mlp.experts.down_proj_scales";

Configuration Fp8Config() {
  return {{"quantization_config.quant_method", "fp8"},
          {"quantization_config.fmt", "e4m3"},
          {"quantization_config.activation_scheme", "dynamic"},
          {"quantization_config.weight_block_size", Value::List{128, 128}}};
}
Configuration Mxfp4Config() { return {{"quantization_config.quant_method", "mxfp4"}}; }

MemoryTensor Filled(std::string key, DType dtype, Dims shape, int byte = 0) {
  Bytes values(NumBytes(shape, dtype), static_cast<std::byte>(byte));
  return {.key = std::move(key), .dtype = dtype, .shape = std::move(shape), .values = values};
}

std::shared_ptr<const CheckpointSource> Source(std::vector<MemoryTensor> tensors) {
  auto source = MakeMemorySource(std::move(tensors));
  EXPECT_THAT(source, IsOk());
  return *std::move(source);
}

// A repository that is wrong in one way, and what is said of it.
struct WrongCase {
  std::string name;
  Configuration config;
  std::vector<MemoryTensor> tensors;
  ErrorKind kind;
  std::string tensor;
  std::string expected;
  std::string actual;
};
void PrintTo(const WrongCase& c, std::ostream* os) { *os << c.name; }

Configuration With(Configuration config, const std::string& name, Value value) {
  config["quantization_config." + name] = std::move(value);
  return config;
}

std::vector<WrongCase> WrongCases() {
  const MemoryTensor weight = Filled(kWeight, kFp8, {129, 256});
  const MemoryTensor scale = Filled(kScale, DType::kFloat32, {2, 2});
  const MemoryTensor blocks = Filled(kBlocks, DType::kUint8, {2, 3, 2, 16});
  const MemoryTensor scales = Filled(kScales, DType::kUint8, {2, 3, 2});
  const std::vector<MemoryTensor> fp8 = {weight, scale};
  const std::vector<MemoryTensor> mxfp4 = {blocks, scales};
  return {
      {"NoScale", Fp8Config(), {weight}, ErrorKind::kMissing, kWeight, kScale, "float8_e4m3fn"},
      {"NoWeight", Fp8Config(), {scale}, ErrorKind::kMissing, kScale, kWeight, ""},
      // As many rows as whole blocks: what `rows // scale_rows` would take.
      {"ScaleOfWholeBlocks",
       Fp8Config(),
       {weight, Filled(kScale, DType::kFloat32, {1, 2})},
       ErrorKind::kShapeMismatch,
       kScale,
       "[2, 2]",
       "[1, 2]"},
      {"ScaleOfOneDim",
       Fp8Config(),
       {weight, Filled(kScale, DType::kFloat32, {4})},
       ErrorKind::kShapeMismatch,
       kScale,
       "[2, 2]",
       "[4]"},
      {"ScaleOfTheTensor",
       Fp8Config(),
       {weight, Filled(kScale, DType::kFloat32, {})},
       ErrorKind::kShapeMismatch,
       kScale,
       "[2, 2]",
       "[]"},
      {"ScaleOfAnotherDtype",
       Fp8Config(),
       {weight, Filled(kScale, DType::kFloat64, {2, 2})},
       ErrorKind::kDtypeMismatch,
       kScale,
       "float32, bfloat16 or float16 [2, 2]",
       "float64 [2, 2]"},
      {"ScaleOfAnExponentAlone",
       Fp8Config(),
       {weight, Filled(kScale, DType::kFloat8E8m0fnu, {2, 2})},
       ErrorKind::kDtypeMismatch,
       kScale,
       "float32, bfloat16 or float16 [2, 2]",
       "float8_e8m0fnu [2, 2]"},
      {"PlainWeightWithScale",
       Fp8Config(),
       {Filled(kWeight, DType::kBfloat16, {129, 256}), scale},
       ErrorKind::kDtypeMismatch,
       kWeight,
       "float8_e4m3fn",
       "bfloat16"},
      {"AnotherFloatOf8Bits",
       Fp8Config(),
       {Filled(kWeight, DType::kFloat8E5m2, {129, 256}), scale},
       ErrorKind::kDtypeMismatch,
       kWeight,
       "float8_e4m3fn",
       "float8_e5m2"},
      {"VectorOfFloats8",
       Fp8Config(),
       {Filled(kWeight, kFp8, {129}), Filled(kScale, DType::kFloat32, {2})},
       ErrorKind::kShapeMismatch,
       kWeight,
       "rows, columns",
       "[129]"},
      {"ExcludedModule",
       With(Fp8Config(), "modules_to_not_convert", Value::List{"model.layers.0.mlp"}), fp8,
       ErrorKind::kBadMetadata, kWeight, "without scales", kScale},
      {"ExcludedByAnotherName", With(Fp8Config(), "ignored_layers", Value::List{"up_proj"}), fp8,
       ErrorKind::kBadMetadata, kWeight, "without scales", kScale},
      {"ExcludedIsNoList", With(Fp8Config(), "modules_to_not_convert", "mlp"), fp8,
       ErrorKind::kBadMetadata, "", "", "mlp"},
      {"ExcludedIsNoName", With(Fp8Config(), "modules_to_not_convert", Value::List{1}), fp8,
       ErrorKind::kBadMetadata, "", "", "[1]"},
      {"AnotherFormat", With(Fp8Config(), "fmt", "e5m2"), fp8, ErrorKind::kUnsupported, "", "e4m3",
       "e5m2"},
      {"StaticActivations", With(Fp8Config(), "activation_scheme", "static"), fp8,
       ErrorKind::kUnsupported, "", "dynamic", "static"},
      {"ExpertsOf4Bits", With(Fp8Config(), "expert_dtype", "fp4"), fp8, ErrorKind::kUnsupported, "",
       "fp8", "fp4"},
      {"NoBlockSize", With(Fp8Config(), "weight_block_size", Value()), fp8, ErrorKind::kUnsupported,
       "", "[128, 128]", "none"},
      {"BlockSizeOfOne", With(Fp8Config(), "weight_block_size", Value::List{128}), fp8,
       ErrorKind::kUnsupported, "", "[128, 128]", "[128]"},
      {"NoRowsInABlock", With(Fp8Config(), "weight_block_size", Value::List{0, 128}), fp8,
       ErrorKind::kUnsupported, "", "[128, 128]", "[0, 128]"},
      {"BlockSizeIsText", With(Fp8Config(), "weight_block_size", Value::List{"128", 128}), fp8,
       ErrorKind::kUnsupported, "", "[128, 128]", "128"},
      {"NoConfiguration", {}, fp8, ErrorKind::kMissing, kScale, "quantization_config", ""},
      {"NoScalesOfBlocks", Mxfp4Config(), {blocks}, ErrorKind::kMissing, kBlocks, kScales, "uint8"},
      {"NoBlocks", Mxfp4Config(), {scales}, ErrorKind::kMissing, kScales, kBlocks, ""},
      {"ScalesOfAnotherShape",
       Mxfp4Config(),
       {blocks, Filled(kScales, DType::kUint8, {2, 3, 1})},
       ErrorKind::kShapeMismatch,
       kScales,
       "[2, 3, 2]",
       "[2, 3, 1]"},
      {"ScalesWithTheBlocksBytes",
       Mxfp4Config(),
       {blocks, Filled(kScales, DType::kUint8, {2, 3, 2, 1})},
       ErrorKind::kShapeMismatch,
       kScales,
       "[2, 3, 2]",
       "[2, 3, 2, 1]"},
      {"ScalesOfAnotherDtype",
       Mxfp4Config(),
       {blocks, Filled(kScales, DType::kFloat8E8m0fnu, {2, 3, 2})},
       ErrorKind::kDtypeMismatch,
       kScales,
       "uint8 [2, 3, 2]",
       "float8_e8m0fnu"},
      {"BlocksOf32Bytes",
       Mxfp4Config(),
       {Filled(kBlocks, DType::kUint8, {2, 3, 1, 32}), scales},
       ErrorKind::kShapeMismatch,
       kBlocks,
       "16]",
       "[2, 3, 1, 32]"},
      {"BlocksOfAnotherDtype",
       Mxfp4Config(),
       {Filled(kBlocks, DType::kInt8, {2, 3, 2, 16}), scales},
       ErrorKind::kDtypeMismatch,
       kBlocks,
       "uint8",
       "int8"},
      {"ExcludedExperts", With(Mxfp4Config(), "modules_to_not_convert", Value::List{"model.*.mlp"}),
       mxfp4, ErrorKind::kBadMetadata, kBlocks, "without scales", kScales},
  };
}

class WrongRepository : public ::testing::TestWithParam<WrongCase> {};

TEST_P(WrongRepository, IsRefusedByName) {
  const WrongCase& wrong = GetParam();
  const auto decoded = DecodeWeights(Source(wrong.tensors), wrong.config);
  ASSERT_THAT(decoded, FailsWith(wrong.kind));
  EXPECT_EQ(decoded.status().problems().size(), 1U) << decoded.status().ToString();
  const Problem& problem = decoded.status().first();
  EXPECT_EQ(problem.tensor, wrong.tensor);
  EXPECT_EQ(problem.file.empty(), wrong.tensor.empty());
  EXPECT_THAT(problem.expected, HasSubstr(wrong.expected));
  EXPECT_THAT(problem.actual, HasSubstr(wrong.actual));
}

INSTANTIATE_TEST_SUITE_P(Quantised, WrongRepository, ::testing::ValuesIn(WrongCases()),
                         [](const auto& test) { return test.param.name; });

TEST(DecodedWeights, NamesEverythingThatIsWrongAtOnce) {
  const auto decoded =
      DecodeWeights(Source({Filled("a.weight", kFp8, {4, 4}), Filled("b.weight", kFp8, {4, 4}),
                            Filled("c.weight_scale_inv", DType::kFloat32, {1, 1})}),
                    Fp8Config());
  ASSERT_THAT(decoded, FailsWith(ErrorKind::kMissing));
  EXPECT_EQ(decoded.status().problems().size(), 3U);
}

// What another method stores, and weights that nobody quantised, whatever the configuration says.
TEST(DecodedWeights, LeaveOtherWeightsAlone) {
  const MemoryTensor plain = Filled(kWeight, DType::kBfloat16, {4, 4});
  const MemoryTensor bytes = Filled("rng", DType::kUint8, {16});
  for (const Configuration& config :
       {Configuration(), Fp8Config(), Mxfp4Config(),
        Configuration{{"quantization_config.quant_method", "gptq"}}}) {
    const auto decoded = DecodeWeights(Source({plain, bytes}), config);
    ASSERT_THAT(decoded, IsOk());
    EXPECT_EQ(decoded->source, nullptr);
    EXPECT_EQ(decoded->weights, 0U);
  }
}

// Every value of a tensor with partial blocks in several dims, which is decoded in many parts; each
// element has a code that depends on its place, each block a scale of its own.
TEST(DecodedWeights, AreReadInAnyBox) {
  const Dims shape = {3, 300, 20000};
  const Dims grid = {3, 3, 157};
  Bytes codes(static_cast<std::size_t>(NumElements(shape)));
  const auto code_at = [](std::int64_t i) { return static_cast<std::uint8_t>(i * 7 % 120); };
  for (std::size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<std::byte>(code_at(static_cast<std::int64_t>(i)));
  }
  Bytes scales;
  for (std::int64_t b = 0; b < NumElements(grid); ++b) AppendLe(static_cast<float>(b + 1), scales);
  const auto decoded = DecodeWeights(
      Source({{.key = "e.gate_up_proj", .dtype = kFp8, .shape = shape, .values = codes},
              {.key = "e.gate_up_proj_scale_inv",
               .dtype = DType::kFloat32,
               .shape = grid,
               .values = scales},
              Filled("norm", DType::kBfloat16, {8}, 1)}),
      Fp8Config());
  ASSERT_THAT(decoded, IsOk());
  const CheckpointIndex& index = decoded->source->index();
  ASSERT_EQ(index.tensors().size(), 2U);
  const GlobalTensor& tensor = index.tensors()[0];
  EXPECT_EQ(tensor.dtype, DType::kBfloat16);
  EXPECT_EQ(tensor.shape, shape);
  EXPECT_GT(tensor.num_chunks, 8U);
  std::vector<Box> boxes;
  for (const Chunk& chunk : index.chunks(tensor)) {
    boxes.push_back(index.box(chunk));
    EXPECT_EQ(boxes.back().sizes[2], 20000) << "what lies together is read together";
  }
  EXPECT_TRUE(ProveCover(shape, boxes).exact());
  for (const Box& box : {Box{{1, 100, 19000}, {2, 60, 1000}}, Box{{0, 299, 0}, {3, 1, 20000}},
                         Box{{2, 127, 127}, {1, 2, 2}}}) {
    Bytes values(NumBytes(box.sizes, DType::kBfloat16));
    ASSERT_THAT(ReadBox(*decoded->source, tensor, box, values, 1 << 20), IsOk());
    std::size_t at = 0;
    for (std::int64_t m = box.offsets[0]; m < box.offsets[0] + box.sizes[0]; ++m) {
      for (std::int64_t r = box.offsets[1]; r < box.offsets[1] + box.sizes[1]; ++r) {
        for (std::int64_t c = box.offsets[2]; c < box.offsets[2] + box.sizes[2]; ++c, at += 2) {
          const std::uint8_t code = code_at((m * 300 + r) * 20000 + c);
          const float magnitude =
              code < 8 ? static_cast<float>(code) / 512
                       : std::ldexp(1 + static_cast<float>(code & 7) / 8, (code >> 3) - 7);
          const std::int64_t block = (m * 3 + r / 128) * 157 + c / 128;
          const auto scale = static_cast<float>(block + 1);
          ASSERT_EQ(LoadLe<std::uint16_t>(values.data() + at), ToBf16Bits(magnitude * scale))
              << m << ", " << r << ", " << c;
        }
      }
    }
  }
}

// However long the rows of a matrix are, no more than 32 MiB are decoded at a time.
TEST(DecodedWeights, AreDecodedInPartsOfBoundedSize) {
  const Dims shape = {128, 140000};
  const auto decoded = DecodeWeights(Source({Filled(kWeight, kFp8, shape, 0x38),
                                             Filled(kScale, DType::kFloat32, {1, 1094}, 0x3F)}),
                                     Fp8Config());
  ASSERT_THAT(decoded, IsOk());
  const CheckpointIndex& index = decoded->source->index();
  const GlobalTensor& tensor = index.tensors()[0];
  std::vector<Box> boxes;
  for (const Chunk& chunk : index.chunks(tensor)) {
    const auto located = decoded->source->Locate(tensor, chunk);
    ASSERT_THAT(located, IsOk());
    boxes.push_back(index.box(chunk));
    EXPECT_EQ(located->resident_bytes, NumBytes(boxes.back().sizes, DType::kBfloat16));
    EXPECT_LE(located->resident_bytes, std::uint64_t{32} << 20);
  }
  EXPECT_GT(boxes.size(), 1U);
  EXPECT_TRUE(ProveCover(shape, boxes).exact());
}

Bytes ValuesOf(const CheckpointSource& source, const std::string& key) {
  const GlobalTensor* const tensor = source.index().FindTensor(key);
  EXPECT_NE(tensor, nullptr);
  if (tensor == nullptr) return {};
  Bytes values(NumBytes(tensor->shape, tensor->dtype));
  EXPECT_EQ(tensor->dtype, DType::kBfloat16);
  EXPECT_THAT(ReadBox(source, *tensor, WholeBox(tensor->shape), values, 1 << 20), IsOk());
  return values;
}

// A scale for each code: all that 16 bits can say, in each dtype, beside the same as float32.
TEST(DecodedWeights, MayHaveScalesOf16Bits) {
  const Dims shape = {256, 256};
  Bytes codes(1 << 16);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i * 7 % 251 + 5);
  Bytes patterns;
  Bytes of_bfloat16;
  Bytes of_float16;
  for (std::uint32_t bits = 0; bits < 1 << 16; ++bits) {
    AppendLe(static_cast<std::uint16_t>(bits), patterns);
    AppendLe(FromBf16Bits(static_cast<std::uint16_t>(bits)), of_bfloat16);
    AppendLe(FromFp16Bits(static_cast<std::uint16_t>(bits)), of_float16);
  }
  const auto weight = [&](const std::string& key) {
    return MemoryTensor{.key = key, .dtype = kFp8, .shape = shape, .values = codes};
  };
  const auto scales = [&](const std::string& key, DType dtype, const Bytes& values) {
    return MemoryTensor{
        .key = key + "_scale_inv", .dtype = dtype, .shape = shape, .values = values};
  };
  const auto decoded =
      DecodeWeights(Source({weight("a"), scales("a", DType::kBfloat16, patterns),    //
                            weight("b"), scales("b", DType::kFloat32, of_bfloat16),  //
                            weight("c"), scales("c", DType::kFloat16, patterns),     //
                            weight("d"), scales("d", DType::kFloat32, of_float16)}),
                    With(Fp8Config(), "weight_block_size", Value::List{1, 1}));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->weights, 4U);
  EXPECT_EQ(decoded->source->index().tensors().size(), 4U);
  EXPECT_EQ(ValuesOf(*decoded->source, "a"), ValuesOf(*decoded->source, "b"));
  EXPECT_EQ(ValuesOf(*decoded->source, "c"), ValuesOf(*decoded->source, "d"));
  EXPECT_NE(ValuesOf(*decoded->source, "a"), ValuesOf(*decoded->source, "c"));
}

// What torch 2.15 makes of them: (codes.float() * scales.float()).to(torch.bfloat16), where a NaN
// has other bits.
TEST(DecodedWeights, WithScalesOf16BitsHaveTorchsValues) {
  struct Case {
    DType dtype;
    std::vector<std::uint16_t> scales;
    std::vector<std::uint16_t> values;  // a row for each code
  };
  const std::vector<std::uint8_t> codes = {0x38, 0x01, 0x7E, 0xB9, 0x43};
  const Case of_bfloat16 = {
      DType::kBfloat16,
      {0x3F80, 0x3951, 0x3A83, 0x0001, 0x8080, 0x7F7F, 0x7F80, 0x0000, 0x3B2D},
      {0x3F80, 0x3951, 0x3A83, 0x0001, 0x8080, 0x7F7F, 0x7F80, 0x0000, 0x3B2D,  //
       0x3B00, 0x34D1, 0x3603, 0x0000, 0x8000, 0x7AFF, 0x7F80, 0x0000, 0x36AD,  //
       0x43E0, 0x3DB7, 0x3EE5, 0x0160, 0x84E0, 0x7F80, 0x7F80, 0x0000, 0x3F97,  //
       0xBF90, 0xB96B, 0xBA93, 0x8001, 0x0090, 0xFF80, 0xFF80, 0x8000, 0xBB43,  //
       0x4030, 0x3A10, 0x3B34, 0x0003, 0x8130, 0x7F80, 0x7F80, 0x0000, 0x3BEE}};
  const Case of_float16 = {DType::kFloat16,
                           {0x3C00, 0x0A8B, 0x0001, 0x83FF, 0x7BFF, 0x7C00, 0x0000, 0x1357},
                           {0x3F80, 0x3951, 0x3380, 0xB880, 0x4780, 0x7F80, 0x0000, 0x3A6B,  //
                            0x3B00, 0x34D1, 0x2F00, 0xB400, 0x4300, 0x7F80, 0x0000, 0x35EB,  //
                            0x43E0, 0x3DB7, 0x37E0, 0xBCE0, 0x4BE0, 0x7F80, 0x0000, 0x3ECE,  //
                            0xBF90, 0xB96C, 0xB390, 0x3890, 0xC790, 0xFF80, 0x8000, 0xBA84,  //
                            0x4030, 0x3A10, 0x3430, 0xB930, 0x4830, 0x7F80, 0x0000, 0x3B21}};
  for (const Case& test : {of_bfloat16, of_float16}) {
    SCOPED_TRACE(DTypeName(test.dtype));
    const Dims shape = {static_cast<std::int64_t>(codes.size()),
                        static_cast<std::int64_t>(test.scales.size())};
    MemoryTensor weight = {.key = kWeight, .dtype = kFp8, .shape = shape, .values = {}};
    MemoryTensor scale = {.key = kScale, .dtype = test.dtype, .shape = {1, shape[1]}, .values = {}};
    for (const std::uint8_t code : codes) {
      weight.values.insert(weight.values.end(), test.scales.size(), std::byte{code});
    }
    for (const std::uint16_t bits : test.scales) AppendLe(bits, scale.values);
    const auto decoded = DecodeWeights(Source({weight, scale}),
                                       With(Fp8Config(), "weight_block_size", Value::List{128, 1}));
    ASSERT_THAT(decoded, IsOk());
    Bytes expected;
    for (const std::uint16_t bits : test.values) AppendLe(bits, expected);
    EXPECT_EQ(ValuesOf(*decoded->source, kWeight), expected);
  }
}

// Of a part of a tensor the scales of its own blocks are taken.
TEST(DecodedWeights, WithScalesOf16BitsAreReadInAnyBox) {
  const Dims shape = {260, 300};
  Bytes scales;
  for (int block = 0; block < 9; ++block) AppendLe(ToBf16Bits(static_cast<float>(block)), scales);
  const auto decoded = DecodeWeights(
      Source({Filled(kWeight, kFp8, shape, 0x38),
              {.key = kScale, .dtype = DType::kBfloat16, .shape = {3, 3}, .values = scales}}),
      Fp8Config());
  ASSERT_THAT(decoded, IsOk());
  const Box box = {{250, 120}, {10, 180}};
  Bytes values(NumBytes(box.sizes, DType::kBfloat16));
  ASSERT_THAT(
      ReadBox(*decoded->source, decoded->source->index().tensors()[0], box, values, 1 << 20),
      IsOk());
  for (std::int64_t r = 0; r < 10; ++r) {
    for (std::int64_t c = 0; c < 180; ++c) {
      const std::int64_t block = (250 + r) / 128 * 3 + (120 + c) / 128;
      ASSERT_EQ(LoadLe<std::uint16_t>(&values[static_cast<std::size_t>(2 * (r * 180 + c))]),
                ToBf16Bits(static_cast<float>(block)))
          << r << ", " << c;
    }
  }
}

TEST(DecodedWeights, MayHaveNoElements) {
  const auto decoded = DecodeWeights(
      Source({Filled(kWeight, kFp8, {0, 256}), Filled(kScale, DType::kFloat32, {0, 2})}),
      Fp8Config());
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->source->index().tensors()[0].shape, Dims({0, 256}));
}

// A block may be larger than any tensor.
TEST(DecodedWeights, MayBeOneBlock) {
  Bytes scale;
  AppendLe(2.0F, scale);
  const auto decoded = DecodeWeights(
      Source({Filled(kWeight, kFp8, {2, 3}, 0x38),
              {.key = kScale, .dtype = DType::kFloat32, .shape = {1, 1}, .values = scale}}),
      With(Fp8Config(), "weight_block_size", Value::List{INT64_MAX, INT64_MAX}));
  ASSERT_THAT(decoded, IsOk());
  const GlobalTensor& tensor = decoded->source->index().tensors()[0];
  Bytes values(12);
  ASSERT_THAT(ReadBox(*decoded->source, tensor, WholeBox(tensor.shape), values, 1 << 20), IsOk());
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(LoadLe<std::uint16_t>(values.data() + 2 * i), 0x4000);
  }
}

// Of each tensor whose name with an apostrophe is another's: a second copy of that.
class CopiedSource final : public ViewSource {
 public:
  explicit CopiedSource(std::shared_ptr<const CheckpointSource> source)
      : ViewSource(std::move(source)) {
    const CheckpointIndex& stored = below().index();
    IndexBuilder builder;
    BeginCopy(stored, builder);
    for (const GlobalTensor& tensor : stored.tensors()) {
      if (tensor.key.ends_with('\'')) continue;
      builder.AddTensor(tensor.key, tensor.dtype, tensor.shape);
      for (const GlobalTensor* const copy : {&tensor, stored.FindTensor(tensor.key + "'")}) {
        if (copy == nullptr) continue;
        const Chunk& chunk = stored.chunks(*copy)[0];
        builder.AddChunk(stored.box(chunk), chunk.file, chunk.encoding, chunk.offset_bytes,
                         chunk.size_bytes);
      }
    }
    SetIndex(*builder.Build());
  }

  Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
    const std::string suffix = PositionOf(tensor, chunk) == 0 ? "" : "'";
    const GlobalTensor* const stored = below().index().FindTensor(tensor.key + suffix);
    return below().Locate(*stored, below().index().chunks(*stored)[0]);
  }
};

// A bit flips in the copy of the codes; of the scales there may be one alone, or two.
TEST(DecodedWeights, HaveTheCopiesOfTheirCodesAndScales) {
  const MemoryTensor codes = Filled(kWeight, kFp8, {3, 129}, 0x38);
  MemoryTensor flipped = Filled(kWeight + "'", kFp8, {3, 129}, 0x38);
  flipped.values[200] ^= std::byte{1};
  MemoryTensor scales = Filled(kScale, DType::kFloat32, {1, 2}, 0x3F);
  MemoryTensor scales_again = Filled(kScale + "'", DType::kFloat32, {1, 2}, 0x3F);
  for (const auto& tensors :
       {std::vector{codes, flipped, scales}, std::vector{codes, flipped, scales, scales_again}}) {
    const auto decoded =
        DecodeWeights(std::make_shared<const CopiedSource>(Source(tensors)), Fp8Config());
    ASSERT_THAT(decoded, IsOk());
    const CheckpointIndex& index = decoded->source->index();
    EXPECT_TRUE(ValidateIndex(*decoded->source).empty());
    const GlobalTensor& tensor = index.tensors()[0];
    ASSERT_EQ(index.NumCopies(tensor), 2U);
    std::vector<Bytes> copies;
    for (std::size_t copy = 0; copy < 2; ++copy) {
      Bytes& values = copies.emplace_back(NumBytes(tensor.shape, tensor.dtype));
      ASSERT_THAT(ReadBox(*decoded->source, tensor, WholeBox(tensor.shape), values, 1 << 20, copy),
                  IsOk());
    }
    for (std::size_t at = 0; at < copies[0].size(); at += 2) {
      const bool is_same =
          LoadLe<std::uint16_t>(&copies[0][at]) == LoadLe<std::uint16_t>(&copies[1][at]);
      EXPECT_EQ(is_same, at != 400) << at;
    }
  }
}

// The exact values that the accounts of quantised goldens list.
TEST(GoldenQuantised, RepositoriesHaveTheValuesOfTheirAccounts) {
  int num_repositories = 0;
  for (const std::string& name : testing::GoldenCases("hf")) {
    SCOPED_TRACE(name);
    const testing::GoldenCase golden = testing::LoadGolden("hf", name);
    const auto text = ReadSmallFile(PosixStorage(), golden.directory / "expected.json", 1 << 26);
    ASSERT_THAT(text, IsOk());
    const auto json = JsonDocument::Parse(*text, "expected.json");
    ASSERT_THAT(json, IsOk());
    const auto values = json->root().Find("dequantised");
    if (!values) continue;
    const auto config_text =
        ReadSmallFile(PosixStorage(), golden.path / "config.json", kMaxHfConfigBytes);
    ASSERT_THAT(config_text, IsOk());
    const auto config = ParseHfConfig(*config_text, "config.json");
    ASSERT_THAT(config, IsOk());
    const auto opened = OpenCheckpoint(PosixStorage(), golden.path);
    ASSERT_THAT(opened, IsOk());
    const auto decoded = DecodeWeights(opened->source, *config);
    ASSERT_THAT(decoded, IsOk());
    EXPECT_TRUE(ValidateIndex(*opened->source).empty());
    const CheckpointIndex& index = decoded->source->index();
    const auto members = values->Members();
    ASSERT_THAT(members, IsOk());
    EXPECT_EQ(decoded->weights, members->size());
    EXPECT_EQ(index.tensors().size() + members->size(), golden.tensors.size());
    for (const auto& [key, account] : *members) {
      SCOPED_TRACE(key);
      const GlobalTensor* tensor = index.FindTensor(key);
      if (tensor == nullptr) tensor = index.FindTensor(std::string(key) + "_blocks");
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(tensor->dtype, DType::kBfloat16);
      EXPECT_EQ(tensor->shape, account.At("shape").value().Int64Array().value());
      const auto digest = DigestTensor(*decoded->source, *tensor, HashAlgorithm::kSha256, 1 << 20);
      ASSERT_THAT(digest, IsOk());
      EXPECT_EQ(*digest, account.At("sha256").value().Text().value());
    }
    ++num_repositories;
  }
  EXPECT_GE(num_repositories, 1);
}

}  // namespace
}  // namespace ckpt
