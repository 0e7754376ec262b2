#include "trainer/data/internal/dataset_index.h"

#include <vector>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "tests/testing/matchers.h"

namespace ckpt::trainer {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;

struct Parts {
  std::uint64_t version = 1;
  std::uint8_t code = 8;
  std::vector<std::int32_t> lengths = {3, 2, 0};
  std::vector<std::int64_t> offsets = {0, 6, 10};
  std::vector<std::int64_t> documents = {0, 1, 3, 3};
};
constexpr std::uint64_t kBinBytes = 10;

Bytes Serialize(const Parts& parts) {
  Bytes out;
  Append(kDatasetMagic, out);
  AppendLe(parts.version, out);
  AppendLe(parts.code, out);
  AppendLe(std::uint64_t{parts.lengths.size()}, out);
  AppendLe(std::uint64_t{parts.documents.size()}, out);
  for (const auto v : parts.lengths) AppendLe(v, out);
  for (const auto v : parts.offsets) AppendLe(v, out);
  for (const auto v : parts.documents) AppendLe(v, out);
  return out;
}

Result<DatasetIndex> Parse(const Bytes& bytes) {
  return DatasetIndex::Parse(bytes, kBinBytes, "a.idx");
}

TEST(DatasetIndexTest, SaysWhereSequencesAndDocumentsLie) {
  const Bytes bytes = Serialize({});
  const auto index = Parse(bytes);
  ASSERT_THAT(index, IsOk());
  EXPECT_EQ(index->type(), TokenType::kUint16);
  EXPECT_EQ(index->num_sequences(), 3);
  EXPECT_EQ(index->num_documents(), 3);
  EXPECT_EQ(index->num_tokens(), 5);
  EXPECT_EQ(index->SequenceLength(1), 2);
  EXPECT_EQ(index->SequenceOffset(1), 6U);
  EXPECT_EQ(index->FirstSequence(2), 3);
}

TEST(DatasetIndexTest, PassesOverTheModesOfSeveralModalities) {
  Bytes bytes = Serialize({});
  bytes.resize(bytes.size() + 3);
  EXPECT_THAT(Parse(bytes), IsOk());
}

TEST(DatasetIndexTest, TakesNoSequencesAndNoDocuments) {
  EXPECT_THAT(Parse(Serialize({.lengths = {}, .offsets = {}, .documents = {0}})), IsOk());
}

struct BadIndex {
  const char* name;
  Parts parts;
  ErrorKind error;
};
void PrintTo(const BadIndex& c, std::ostream* os) { *os << c.name; }
class BadIndexTest : public ::testing::TestWithParam<BadIndex> {};

TEST_P(BadIndexTest, IsRefused) {
  const auto index = Parse(Serialize(GetParam().parts));
  ASSERT_THAT(index, FailsWith(GetParam().error));
  EXPECT_EQ(index.status().first().file, "a.idx");
}

constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
INSTANTIATE_TEST_SUITE_P(
    Parts, BadIndexTest,
    ::testing::Values(
        BadIndex{"Version", {.version = 2}, ErrorKind::kUnsupported},
        BadIndex{"TypeZero", {.code = 0}, ErrorKind::kUnsupported},
        BadIndex{"Float64", {.code = 6}, ErrorKind::kUnsupported},
        BadIndex{"TypeNine", {.code = 9}, ErrorKind::kUnsupported},
        BadIndex{"NegativeLength", {.lengths = {3, -2, 0}}, ErrorKind::kBadMetadata},
        BadIndex{"LongSequence", {.lengths = {3, 3, 0}}, ErrorKind::kOutOfRange},
        BadIndex{"LongestSequence", {.lengths = {3, 0x7FFFFFFF, 0}}, ErrorKind::kOutOfRange},
        BadIndex{"NegativeOffset", {.offsets = {0, -2, 10}}, ErrorKind::kOutOfRange},
        BadIndex{"OffsetThatWraps", {.offsets = {0, kMax, 10}}, ErrorKind::kOutOfRange},
        BadIndex{"EmptySequencePastTheEnd", {.offsets = {0, 6, 11}}, ErrorKind::kOutOfRange},
        BadIndex{"WiderType", {.code = 4}, ErrorKind::kOutOfRange},
        BadIndex{"NoDocumentTable", {.documents = {}}, ErrorKind::kBadMetadata},
        BadIndex{"DocumentsBeginLate", {.documents = {1, 3}}, ErrorKind::kBadMetadata},
        BadIndex{"DocumentsGoBack", {.documents = {0, 2, 1, 3}}, ErrorKind::kBadMetadata},
        BadIndex{"NegativeDocument", {.documents = {0, -1, 3}}, ErrorKind::kBadMetadata},
        BadIndex{"DocumentsEndEarly", {.documents = {0, 2}}, ErrorKind::kBadMetadata},
        BadIndex{"DocumentsEndLate", {.documents = {0, 4}}, ErrorKind::kBadMetadata}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(DatasetIndexTest, RefusesAnotherMagic) {
  Bytes bytes = Serialize({});
  bytes[0] = std::byte{'m'};
  EXPECT_THAT(Parse(bytes), FailsWith(ErrorKind::kBadMetadata));
}

TEST(DatasetIndexTest, RefusesEveryOtherLength) {
  const Bytes bytes = Serialize({});
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    ASSERT_THAT(Parse(Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length))),
                FailsWith(ErrorKind::kTruncated))
        << length;
  }
  for (const std::size_t more : {1U, 2U, 4U, 8U}) {
    Bytes longer = bytes;
    longer.resize(bytes.size() + more);
    ASSERT_THAT(Parse(longer), FailsWith(ErrorKind::kSizeMismatch)) << more;
  }
}

// Counts whose tables would need more bytes than a number can say.
TEST(DatasetIndexTest, RefusesCountsThatWrap) {
  for (const std::size_t at : {18U, 26U}) {
    for (const std::uint64_t count :
         {~std::uint64_t{0}, std::uint64_t{1} << 61, std::uint64_t{1} << 62,
          (~std::uint64_t{0}) / 12, (~std::uint64_t{0}) / 12 + 1}) {
      Bytes bytes = Serialize({});
      StoreLe(count, bytes.data() + at);
      ASSERT_THAT(Parse(bytes), FailsWith(ErrorKind::kTruncated)) << at << " " << count;
    }
  }
}

// Whatever one byte says, what is accepted lies in the file.
TEST(DatasetIndexTest, AnyByteChangedIsRefusedOrHarmless) {
  const Bytes bytes = Serialize({});
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      Bytes damaged = bytes;
      damaged[at] = static_cast<std::byte>(value);
      const auto index = Parse(damaged);
      if (!index.ok()) continue;
      for (std::int64_t i = 0; i < index->num_sequences(); ++i) {
        ASSERT_GE(index->SequenceLength(i), 0);
        const auto size =
            static_cast<std::uint64_t>(index->SequenceLength(i)) * TokenBytes(index->type());
        ASSERT_LE(index->SequenceOffset(i) + size, kBinBytes);
      }
      ASSERT_EQ(index->FirstSequence(index->num_documents()), index->num_sequences());
    }
  }
}

}  // namespace
}  // namespace ckpt::trainer
