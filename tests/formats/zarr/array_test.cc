#include "formats/zarr/internal/array.h"

#include <ostream>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::zarr {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;

// As Megatron-Core writes it, with one part replaced.
std::string Described(const std::string& from = "", const std::string& to = "") {
  std::string text = R"({"chunks": [2, 3], "compressor": null, "dtype": "<f4", "fill_value": null,
 "filters": null, "order": "C", "shape": [4, 5], "zarr_format": 2})";
  if (const std::size_t at = text.find(from); !from.empty()) text.replace(at, from.size(), to);
  return text;
}

TEST(ArrayTest, ReadsWhatMegatronWrites) {
  const auto array = ParseArray(Described(), ".zarray");
  ASSERT_THAT(array, IsOk());
  EXPECT_EQ(array->dtype, DType::kFloat32);
  EXPECT_EQ(array->shape, (Dims{4, 5}));
  EXPECT_EQ(array->chunk, (Dims{2, 3}));
  EXPECT_EQ(array->chunk_bytes(), 24U);
  EXPECT_EQ(GridOf(*array), (Dims{2, 2}));
  EXPECT_EQ(ChunkBox(*array, Dims{1, 1}), (Box{{2, 3}, {2, 2}}));
}

struct TypeCase {
  const char* text;
  DType dtype;
  bool byte_swapped;
};

TEST(ArrayTest, ReadsTypes) {
  for (const TypeCase& c :
       {TypeCase{"bfloat16", DType::kBfloat16, false}, TypeCase{"<V2", DType::kBfloat16, false},
        TypeCase{"|V2", DType::kBfloat16, false}, TypeCase{">f8", DType::kFloat64, true},
        TypeCase{"|u1", DType::kUint8, false}, TypeCase{"|b1", DType::kBool, false}}) {
    const auto array = ParseArray(Described("<f4", c.text), ".zarray");
    ASSERT_THAT(array, IsOk()) << c.text;
    EXPECT_EQ(array->dtype, c.dtype) << c.text;
    EXPECT_EQ(array->byte_swapped, c.byte_swapped) << c.text;
  }
}

struct BadCase {
  const char* from;
  const char* to;
  ErrorKind kind;
};
void PrintTo(const BadCase& c, std::ostream* os) { *os << c.to; }

class BadArrayTest : public ::testing::TestWithParam<BadCase> {};

TEST_P(BadArrayTest, IsRefused) {
  EXPECT_THAT(ParseArray(Described(GetParam().from, GetParam().to), ".zarray"),
              FailsWith(GetParam().kind));
}

INSTANTIATE_TEST_SUITE_P(
    Edges, BadArrayTest,
    ::testing::Values(BadCase{"\"zarr_format\": 2", "\"zarr_format\": 3", ErrorKind::kUnsupported},
                      BadCase{"\"compressor\": null", "\"compressor\": {\"id\": \"blosc\"}",
                              ErrorKind::kUnsupported},
                      BadCase{"\"filters\": null", "\"filters\": []", ErrorKind::kUnsupported},
                      BadCase{"\"C\"", "\"F\"", ErrorKind::kUnsupported},
                      BadCase{"\"C\"", "\"C\", \"dimension_separator\": \"/\"",
                              ErrorKind::kUnsupported},
                      BadCase{"<f4", "<f3", ErrorKind::kUnsupported},
                      BadCase{"<f4", "", ErrorKind::kUnsupported},
                      BadCase{"<f4", "|f4", ErrorKind::kBadMetadata},
                      BadCase{"\"<f4\"", "4", ErrorKind::kBadMetadata},
                      BadCase{"[2, 3]", "[2]", ErrorKind::kBadMetadata},
                      BadCase{"[2, 3]", "[0, 3]", ErrorKind::kBadMetadata},
                      BadCase{"[2, 3]", "[-2, 3]", ErrorKind::kBadMetadata},
                      BadCase{"[2, 3]", "[4611686018427387904, 3]", ErrorKind::kResource},
                      BadCase{"[4, 5]", "[4611686018427387904, 5]", ErrorKind::kResource},
                      BadCase{"[4, 5]", "[-4, 5]", ErrorKind::kBadMetadata},
                      BadCase{"\"shape\": [4, 5], ", "", ErrorKind::kBadMetadata},
                      BadCase{"\"dtype\": \"<f4\", ", "", ErrorKind::kBadMetadata}));

TEST(ChunkNameTest, SaysThePlaceAndNothingElse) {
  EXPECT_EQ(ChunkName(Dims{1, 0, 12}), "1.0.12");
  EXPECT_EQ(ChunkName(Dims{}), "0");
  EXPECT_EQ(ParseChunkName("1.0.12", 3), (Dims{1, 0, 12}));
  EXPECT_EQ(ParseChunkName("0", 0), Dims{});
  EXPECT_EQ(ParseChunkName("7", 1), Dims{7});
  for (const char* other : {"", "1", "1.", "1.0.2", "01.0", "1.-1", ".1", "1..0", "a.b", "1.0 ",
                            "99999999999999999999.0", "0x1.0"}) {
    EXPECT_EQ(ParseChunkName(other, 2), std::nullopt) << other;
  }
  EXPECT_EQ(ParseChunkName("1", 0), std::nullopt);
}

}  // namespace
}  // namespace ckpt::zarr
