#include "formats/safetensors/header.h"

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt::safetensors {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::GoldenCases;
using ckpt::testing::GoldenDir;
using ckpt::testing::IsOk;

constexpr std::string_view kTwo =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("a":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}})";

TEST(ParseHeader, FindsTensorsInDocumentOrder) {
  const Result<Header> header = ParseHeader(kTwo, 10, "f");
  ASSERT_THAT(header, IsOk());
  EXPECT_EQ(*header->FindMetadata("format"), "pt");
  ASSERT_EQ(header->tensors.size(), 2U);
  EXPECT_EQ(header->tensors[0].name, "b");
  EXPECT_EQ(header->tensors[1].dtype, StoredDType::kBf16);
  EXPECT_TRUE(header->tensors[1].shape.empty());
  EXPECT_EQ(header->payload_offset, 8 + kTwo.size());
}

TEST(ParseHeader, AllowsWhiteSpaceAroundAndEmptyTensors) {
  EXPECT_THAT(ParseHeader(" \n{\"a\": {\"shape\": [2, 0], \"dtype\": \"I64\", "
                          "\"data_offsets\": [0, 0]}}   ",
                          0, "f"),
              IsOk());
  EXPECT_THAT(ParseHeader("{}", 0, "f"), IsOk());
}

struct BadHeader {
  const char* name;
  const char* json;
  ErrorKind kind;
};
void PrintTo(const BadHeader& c, std::ostream* os) { *os << c.name; }

class BadHeaderTest : public ::testing::TestWithParam<BadHeader> {};

// Each against a payload of 8 bytes.
TEST_P(BadHeaderTest, IsRefused) {
  EXPECT_THAT(ParseHeader(GetParam().json, 8, "f"), FailsWith(GetParam().kind));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, BadHeaderTest,
    ::testing::Values(
        BadHeader{"Array", "[]", ErrorKind::kBadMetadata},
        BadHeader{"Empty", "", ErrorKind::kBadMetadata},
        BadHeader{"TrailingText", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}}x)",
                  ErrorKind::kBadMetadata},
        BadHeader{"TrailingComma", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},})",
                  ErrorKind::kBadMetadata},
        BadHeader{"SameTensorTwice",
                  R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                  R"("a":{"dtype":"U8","shape":[0],"data_offsets":[8,8]}})",
                  ErrorKind::kBadMetadata},
        BadHeader{"SameFieldTwice",
                  R"({"a":{"dtype":"U8","dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                  ErrorKind::kBadMetadata},
        BadHeader{"FieldMissing", R"({"a":{"dtype":"U8","shape":[8]}})", ErrorKind::kBadMetadata},
        BadHeader{"UnknownField", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"x":1}})",
                  ErrorKind::kBadMetadata},
        BadHeader{"MetadataNumber",
                  R"({"__metadata__":{"n":1},"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                  ErrorKind::kBadMetadata},
        BadHeader{"MetadataKeyTwice", R"({"__metadata__":{"n":"1","n":"1"}})",
                  ErrorKind::kBadMetadata},
        BadHeader{"UnknownDtype", R"({"a":{"dtype":"F7","shape":[8],"data_offsets":[0,8]}})",
                  ErrorKind::kUnsupported},
        BadHeader{"Hole", R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[1,8]}})",
                  ErrorKind::kBadMetadata},
        BadHeader{"Overlap",
                  R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                  R"("b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                  ErrorKind::kOverlap},
        BadHeader{"TrailingBytes", R"({"a":{"dtype":"U8","shape":[7],"data_offsets":[0,7]}})",
                  ErrorKind::kBadMetadata},
        BadHeader{"PayloadTooShort", R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})",
                  ErrorKind::kTruncated},
        BadHeader{"EndBeforeBegin", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[8,0]}})",
                  ErrorKind::kOutOfRange},
        BadHeader{"SizeAgainstShape", R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})",
                  ErrorKind::kSizeMismatch},
        BadHeader{"HalfAByte", R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,8]}})",
                  ErrorKind::kSizeMismatch},
        BadHeader{"ProductOverflows",
                  R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,8]}})",
                  ErrorKind::kResource},
        BadHeader{"ProductOverflowsBeforeAZero",
                  R"({"a":{"dtype":"U8","shape":[4294967296,4294967296,0],"data_offsets":[0,0]},)"
                  R"("b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                  ErrorKind::kResource},
        BadHeader{"BitsOverflow",
                  R"({"a":{"dtype":"U64","shape":[4611686018427387904],"data_offsets":[0,8]}})",
                  ErrorKind::kResource},
        BadHeader{"NegativeSize", R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})",
                  ErrorKind::kBadMetadata},
        BadHeader{"FractionalOffset", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8.0]}})",
                  ErrorKind::kBadMetadata},
        BadHeader{"OffsetPast64Bits",
                  R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,18446744073709551616]}})",
                  ErrorKind::kBadMetadata},
        BadHeader{"ThreeOffsets", R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8,8]}})",
                  ErrorKind::kBadMetadata},
        BadHeader{"NotUtf8", "{\"\xFF\":{}}", ErrorKind::kBadMetadata}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(ParseHeader, AllowsTensorsInAnyOrderOfTheirBytes) {
  const Result<Header> header =
      ParseHeader(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[5,8]},)"
                  R"("b":{"dtype":"U8","shape":[5],"data_offsets":[0,5]}})",
                  8, "f");
  ASSERT_THAT(header, IsOk());
  EXPECT_EQ(header->tensors[0].name, "a");
}

TEST(ParseHeader, BoundsTheDims) {
  const auto with_dims = [](int count) {
    std::string shape = "8";
    for (int i = 1; i < count; ++i) shape += ",1";
    return ParseHeader(R"({"a":{"dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,8]}})", 8,
                       "f");
  };
  EXPECT_THAT(with_dims(64), IsOk());
  EXPECT_THAT(with_dims(65), FailsWith(ErrorKind::kResource));
}

TEST(ParseHeader, NamesTheRuleThatIsBroken) {
  // Nothing else is wrong with these.
  const auto message = [](std::string_view json, std::uint64_t payload_bytes) {
    const Result<Header> header = ParseHeader(json, payload_bytes, "f");
    EXPECT_FALSE(header.ok()) << json;
    return header.ok() ? "" : header.status().first().message;
  };
  EXPECT_EQ(message(R"({"__metadata__":{"n":"1","n":"1"}})", 0), "metadata key twice");
  EXPECT_EQ(message(R"({"__metadata__":{},"__metadata__":{}})", 0), "__metadata__ twice");
  EXPECT_EQ(message(R"({"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}})", 8),
            "negative size");
  EXPECT_EQ(message(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", 1),
            "tensor ends inside a byte");
}

TEST(ParseHeader, NamesTheTensor) {
  const Result<Header> header =
      ParseHeader(R"({"layer.w":{"dtype":"F7","shape":[8],"data_offsets":[0,8]}})", 8, "f");
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.status().first().tensor, "layer.w");
  EXPECT_EQ(header.status().first().file, "f");
}

TEST(ParseHeaderLength, BoundsTheHeader) {
  Bytes bytes;
  AppendLe<std::uint64_t>(100, bytes);
  EXPECT_THAT(ParseHeaderLength(bytes, 108, "f"), IsOk());
  EXPECT_THAT(ParseHeaderLength(bytes, 107, "f"), FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT(ParseHeaderLength(ByteSpan(bytes).first(7), 7, "f"),
              FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT(ParseHeaderLength(ByteSpan(bytes).first(7), 108, "f"),
              FailsWith(ErrorKind::kTruncated));
  StoreLe<std::uint64_t>(kMaxHeaderBytes, bytes.data());
  EXPECT_THAT(ParseHeaderLength(bytes, UINT64_MAX, "f"), IsOk());
  StoreLe<std::uint64_t>(kMaxHeaderBytes + 1, bytes.data());
  EXPECT_THAT(ParseHeaderLength(bytes, UINT64_MAX, "f"), FailsWith(ErrorKind::kResource));
  StoreLe<std::uint64_t>(UINT64_MAX, bytes.data());
  EXPECT_THAT(ParseHeaderLength(bytes, 8, "f"), FailsWith(ErrorKind::kResource));
}

TEST(SerializeHeader, EscapesAsTheReferenceLibraryDoes) {
  const Bytes bytes = SerializeHeader(TextPairs{{"k\x7F", "\b\f\n\r\t\x01\x1F \"\\/é"}}, {});
  EXPECT_THAT(std::string(AsText(bytes).substr(8)),
              ::testing::StartsWith(
                  "{\"__metadata__\":{\"k\x7F\":\"\\b\\f\\n\\r\\t\\u0001\\u001f \\\"\\\\/é\"}}"));
}

TEST(SerializeHeader, PadsTheFileOffsetToEightBytes) {
  for (std::size_t length = 0; length < 16; ++length) {
    const Bytes bytes = SerializeHeader(TextPairs{{"k", std::string(length, 'x')}}, {});
    EXPECT_EQ(bytes.size() % 8, 0U);
    EXPECT_EQ(LoadLe<std::uint64_t>(bytes.data()), bytes.size() - 8);
    EXPECT_THAT(ParseHeader(AsText(bytes).substr(8), 0, "f"), IsOk());
  }
}

// The files of transformers and of torch's writer come from the reference library.
TEST(SerializeHeader, RepeatsTheReferenceLibraryByteForByte) {
  int files = 0;
  for (const std::string& name : GoldenCases("hf")) {
    const Path directory = GoldenDir() / "hf" / name / "ckpt";
    const auto names = ListRecursively(PosixStorage(), directory);
    ASSERT_THAT(names, IsOk());
    for (const std::string& file_name : *names) {
      if (!file_name.ends_with(".safetensors")) continue;
      const auto file = PosixStorage().Open(directory / file_name);
      ASSERT_THAT(file, IsOk());
      const Result<Header> header = ReadHeader(**file);
      ASSERT_THAT(header, IsOk());
      Bytes original(header->payload_offset);
      ASSERT_THAT((*file)->ReadAt(0, original), IsOk());
      EXPECT_EQ(SerializeHeader(header->metadata, header->tensors), original)
          << directory / file_name;
      EXPECT_TRUE(std::is_sorted(header->tensors.begin(), header->tensors.end(), PrecedesInFile));
      ++files;
    }
  }
  EXPECT_GT(files, 0);
}

TEST(ParseHeader, IsStableUnderEveryOneByteChange) {
  const std::string text(kTwo);
  const Header original = *ParseHeader(text, 10, "f");
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(value);
      const Result<Header> header = ParseHeader(damaged, 10, "f");
      if (!header.ok()) continue;
      // Whatever is accepted still tiles the payload.
      std::uint64_t bytes = 0;
      for (const TensorEntry& entry : header->tensors) bytes += entry.end - entry.begin;
      ASSERT_EQ(bytes, 10U) << damaged;
    }
    ASSERT_FALSE(ParseHeader(std::string_view(text).substr(0, i), 10, "f").ok()) << i;
  }
}

TEST(StoredDType, EveryNameReadsBack) {
  for (int i = 0; i < kNumStoredDTypes; ++i) {
    const auto dtype = static_cast<StoredDType>(i);
    EXPECT_EQ(ParseStoredDType(StoredDTypeName(dtype)), dtype);
    if (const auto torch = ToDType(dtype)) {
      EXPECT_EQ(FromDType(*torch), dtype);
    }
  }
  EXPECT_EQ(FromDType(DType::kComplex128), std::nullopt);
}

TEST(StoredDType, F4CountsHalfBytes) {
  EXPECT_EQ(*ToTorchShape(StoredDType::kF4, {3, 8}), (Dims{3, 4}));
  EXPECT_EQ(*ToStoredShape(StoredDType::kF4, {3, 4}), (Dims{3, 8}));
  EXPECT_THAT(ToTorchShape(StoredDType::kF4, {2, 3}), FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(ToTorchShape(StoredDType::kF4, {}), FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(ToStoredShape(StoredDType::kF4, {}), FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(ToStoredShape(StoredDType::kF4, {1, std::int64_t{1} << 62}),
              FailsWith(ErrorKind::kResource));
}

}  // namespace
}  // namespace ckpt::safetensors
