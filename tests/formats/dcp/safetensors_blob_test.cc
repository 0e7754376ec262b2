#include "formats/dcp/safetensors_blob.h"

#include <limits>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/endian.h"
#include "tests/testing/matchers.h"

namespace ckpt::dcp {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;

constexpr std::uint64_t kOffset = 5;  // of the blob in its file

Bytes Blob(std::string_view header, std::size_t payload_bytes) {
  Bytes bytes(kOffset, std::byte{'#'});
  AppendLe(static_cast<std::uint64_t>(header.size()), bytes);
  Append(AsBytes(header), bytes);
  bytes.resize(bytes.size() + payload_bytes);
  return bytes;
}

Result<StoredArray> LocateIn(const std::shared_ptr<const ReadableFile>& file, DType dtype,
                             const Dims& sizes) {
  CKPT_ASSIGN_OR_RETURN(const SafetensorsBlob blob, SafetensorsBlob::Open(*file, kOffset));
  return blob.Locate(file, "w", dtype, sizes);
}

Result<StoredArray> Locate(Bytes blob, DType dtype, const Dims& sizes) {
  return LocateIn(MakeMemoryFile("f", std::move(blob)), dtype, sizes);
}

TEST(SafetensorsBlobTest, FindsTheElementsBehindTheHeader) {
  const std::string header = R"({"v":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                             R"("w":{"dtype":"F32","shape":[2,3],"data_offsets":[4,28]}})";
  const Result<StoredArray> array = Locate(Blob(header, 28), DType::kFloat32, {2, 3});
  ASSERT_THAT(array, IsOk());
  EXPECT_EQ(array->offset_bytes, kOffset + 8 + header.size() + 4);
  EXPECT_EQ(array->dtype, DType::kFloat32);
  EXPECT_THAT(array->strides, ElementsAre(3, 1));
}

// Each of a thousand keys would read the same bytes anew.
TEST(SafetensorsBlobTest, RefusesTensorsThatShareBytes) {
  const auto locate = [](int begin) {
    const std::string header = fmt::format(
        R"({{"__metadata__":{{}},"v":{{"dtype":"U8","shape":[4],"data_offsets":[{},{}]}},)"
        R"("e":{{"dtype":"U8","shape":[0],"data_offsets":[2,2]}},)"
        R"("w":{{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}}})",
        begin, begin + 4);
    return Locate(Blob(header, 8), DType::kUint8, {4});
  };
  EXPECT_THAT(locate(4), IsOk());
  EXPECT_THAT(locate(3), FailsWith(ErrorKind::kOverlap));
  EXPECT_THAT(locate(0), FailsWith(ErrorKind::kOverlap));
}

// What safetensors' own Python package calls torch's dtypes.
TEST(SafetensorsBlobTest, KnowsTheNameOfEveryDType) {
  const std::vector<std::pair<DType, std::string>> names = {
      {DType::kBool, "BOOL"},
      {DType::kUint8, "U8"},
      {DType::kUint16, "U16"},
      {DType::kUint32, "U32"},
      {DType::kUint64, "U64"},
      {DType::kInt8, "I8"},
      {DType::kInt16, "I16"},
      {DType::kInt32, "I32"},
      {DType::kInt64, "I64"},
      {DType::kFloat16, "F16"},
      {DType::kBfloat16, "BF16"},
      {DType::kFloat32, "F32"},
      {DType::kFloat64, "F64"},
      {DType::kFloat8E4m3fn, "F8_E4M3"},
      {DType::kFloat8E5m2, "F8_E5M2"},
      {DType::kFloat8E4m3fnuz, "F8_E4M3FNUZ"},
      {DType::kFloat8E5m2fnuz, "F8_E5M2FNUZ"},
      {DType::kFloat8E8m0fnu, "F8_E8M0"},
      {DType::kComplex64, "C64"},
  };
  for (const auto& [stored, name] : names) {
    const std::uint64_t size = 2 * ElementBytes(stored);
    const Bytes blob = Blob(
        fmt::format(R"({{"w":{{"dtype":"{}","shape":[2],"data_offsets":[0,{}]}}}})", name, size),
        size);
    for (const auto& [wanted, other] : names) {
      if (wanted == stored) {
        EXPECT_THAT(Locate(blob, wanted, {2}), IsOk()) << name;
      } else {
        EXPECT_THAT(Locate(blob, wanted, {2}), FailsWith(ErrorKind::kDtypeMismatch))
            << name << " as " << other;
      }
    }
    for (const DType nameless :
         {DType::kFloat4E2m1fnX2, DType::kComplex32, DType::kBcomplex32, DType::kComplex128}) {
      EXPECT_THAT(Locate(blob, nameless, {2}), FailsWith(ErrorKind::kDtypeMismatch)) << name;
    }
  }
}

struct BlobDamage {
  std::string name;
  std::string header;
  ErrorKind kind;
  std::string message;
};
void PrintTo(const BlobDamage& damage, std::ostream* os) { *os << damage.name; }

// A header whose "w" has these fields, of two float32.
std::string Fields(std::string_view dtype, std::string_view shape, std::string_view extent) {
  return fmt::format(R"({{"w":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape,
                     extent);
}

class SafetensorsBlobDamageTest : public ::testing::TestWithParam<BlobDamage> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, SafetensorsBlobDamageTest,
    ::testing::Values(
        BlobDamage{"no_json", "{]", ErrorKind::kBadMetadata, "not valid JSON"},
        BlobDamage{"no_such_key", "{\"v\":{}}", ErrorKind::kBadItem,
                   "the data file's safetensors blob lacks the key"},
        BlobDamage{"entry_is_no_object", R"({"w":1})", ErrorKind::kBadMetadata, ""},
        BlobDamage{"no_dtype", R"({"w":{"shape":[2],"data_offsets":[0,8]}})",
                   ErrorKind::kBadMetadata, "missing"},
        BlobDamage{"dtype_is_a_number", Fields("1", "[2]", "[0,8]"), ErrorKind::kBadMetadata, ""},
        BlobDamage{"no_shape", R"({"w":{"dtype":"F32","data_offsets":[0,8]}})",
                   ErrorKind::kBadMetadata, "missing"},
        BlobDamage{"shape_of_fractions", Fields(R"("F32")", "[2.5]", "[0,8]"),
                   ErrorKind::kBadMetadata, ""},
        BlobDamage{"no_extent", R"({"w":{"dtype":"F32","shape":[2]}})", ErrorKind::kBadMetadata,
                   "missing"},
        BlobDamage{"extent_is_a_text", Fields(R"("F32")", "[2]", R"("0,8")"),
                   ErrorKind::kBadMetadata, ""},
        BlobDamage{"another_shape", Fields(R"("F32")", "[1,2]", "[0,8]"), ErrorKind::kShapeMismatch,
                   "shape"},
        BlobDamage{"another_dtype", Fields(R"("I32")", "[2]", "[0,8]"), ErrorKind::kDtypeMismatch,
                   "dtype"},
        BlobDamage{"extent_of_one_number", Fields(R"("F32")", "[2]", "[0]"), ErrorKind::kOutOfRange,
                   "outside its safetensors blob"},
        BlobDamage{"extent_of_three_numbers", Fields(R"("F32")", "[2]", "[0,8,8]"),
                   ErrorKind::kOutOfRange, "outside its safetensors blob"},
        BlobDamage{"negative_extent", Fields(R"("F32")", "[2]", "[-8,0]"), ErrorKind::kOutOfRange,
                   "outside its safetensors blob"},
        BlobDamage{"extent_backwards", Fields(R"("F32")", "[2]", "[8,0]"), ErrorKind::kOutOfRange,
                   "outside its safetensors blob"},
        BlobDamage{"extent_too_short", Fields(R"("F32")", "[2]", "[0,7]"), ErrorKind::kOutOfRange,
                   "outside its safetensors blob"},
        BlobDamage{"extent_behind_the_end", Fields(R"("F32")", "[2]", "[1,9]"),
                   ErrorKind::kOutOfRange, "outside its safetensors blob"},
        BlobDamage{"extent_at_the_end_of_numbers",
                   Fields(R"("F32")", "[2]", "[9223372036854775799,9223372036854775807]"),
                   ErrorKind::kOutOfRange, "outside its safetensors blob"}),
    [](const auto& of) { return of.param.name; });

TEST_P(SafetensorsBlobDamageTest, IsReported) {
  const Result<StoredArray> array = Locate(Blob(GetParam().header, 8), DType::kFloat32, {2});
  ASSERT_THAT(array, FailsWith(GetParam().kind));
  EXPECT_THAT(array.status().first().message, HasSubstr(GetParam().message));
}

TEST(SafetensorsBlobTest, AnEmptyTensorMayLieAtTheVeryEnd) {
  EXPECT_THAT(Locate(Blob(Fields(R"("F32")", "[0]", "[8,8]"), 8), DType::kFloat32, {0}), IsOk());
  EXPECT_THAT(Locate(Blob(Fields(R"("F32")", "[0]", "[9,9]"), 8), DType::kFloat32, {0}),
              FailsWith(ErrorKind::kOutOfRange));
}

TEST(StartsSafetensorsBlobTest, AsksForAHeaderThatFits) {
  const auto starts = [](Bytes bytes, std::uint64_t offset) {
    return StartsSafetensorsBlob(*MakeMemoryFile("f", std::move(bytes)), offset);
  };
  EXPECT_THAT(starts(Blob("{}", 0), kOffset), IsOkAndHolds(true));
  EXPECT_THAT(starts(Blob("[]", 0), kOffset), IsOkAndHolds(false)) << "another first byte";
  EXPECT_THAT(starts(Blob("", 0), kOffset), IsOkAndHolds(false)) << "no first byte";
  EXPECT_THAT(starts(Blob("{}", 0), std::numeric_limits<std::uint64_t>::max() - 3),
              IsOkAndHolds(false));
  Bytes cut = Blob("{}", 0);
  cut.pop_back();
  EXPECT_THAT(starts(cut, kOffset), IsOkAndHolds(false));
}

TEST(StartsSafetensorsBlobTest, TakesHeadersUpToTheLimitOfTheFormat) {
  // The file is announced, not there: only its first bytes are looked at.
  class LongFile final : public ReadableFile {
   public:
    explicit LongFile(std::uint64_t header_bytes) {
      AppendLe(header_bytes, start_);
      start_.push_back(std::byte{'{'});
    }
    std::uint64_t size_bytes() const override { return 1ULL << 40; }
    const std::string& name() const override { return name_; }
    Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
      return MakeMemoryFile(name_, start_)->ReadAt(offset, out);
    }
    Result<std::unique_ptr<FileView>> View() const override {
      return Error(ErrorKind::kIo, "nobody asks for a view");
    }

   private:
    std::string name_ = "long";
    Bytes start_;
  };
  EXPECT_THAT(StartsSafetensorsBlob(LongFile(100'000'000), 0), IsOkAndHolds(true));
  EXPECT_THAT(StartsSafetensorsBlob(LongFile(100'000'001), 0), IsOkAndHolds(false));
}

// Reads fail from the given one on.
class FailingFile final : public ReadableFile {
 public:
  FailingFile(std::shared_ptr<const ReadableFile> behind, int good_reads)
      : behind_(std::move(behind)), good_reads_(good_reads) {}
  std::uint64_t size_bytes() const override { return behind_->size_bytes(); }
  const std::string& name() const override { return behind_->name(); }
  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    if (good_reads_-- <= 0) return Error(ErrorKind::kIo, "injected fault");
    return behind_->ReadAt(offset, out);
  }
  Result<std::unique_ptr<FileView>> View() const override { return behind_->View(); }

 private:
  std::shared_ptr<const ReadableFile> behind_;
  mutable int good_reads_;
};

TEST(SafetensorsBlobTest, AReadThatFailsIsAnError) {
  const auto file = MakeMemoryFile("f", Blob(Fields(R"("F32")", "[2]", "[0,8]"), 8));
  const auto locate = [&](int good_reads) {
    return LocateIn(std::make_shared<FailingFile>(file, good_reads), DType::kFloat32, Dims{2});
  };
  EXPECT_THAT(locate(0), FailsWith(ErrorKind::kIo));
  EXPECT_THAT(locate(1), FailsWith(ErrorKind::kIo));
  EXPECT_THAT(locate(2), IsOk());
}

}  // namespace
}  // namespace ckpt::dcp
