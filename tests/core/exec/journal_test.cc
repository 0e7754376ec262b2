#include "core/exec/internal/journal.h"

#include <cstdint>
#include <optional>
#include <string>

#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/exec/internal/resume.h"
#include "core/io/memory_storage.h"
#include "core/manifest/manifest.h"
#include "tests/testing/counting_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;

const std::string kHash(32, 'a');

JournalRecord Record(std::uint32_t tensor) {
  JournalRecord record;
  record.tensor = tensor;
  record.digest = std::string(32, static_cast<char>('0' + tensor));
  record.cast_overflows = tensor * 10;
  record.pieces = {
      {0, {.offset_bytes = 64, .length_bytes = 100, .crc32c = tensor + 7, .crc32 = tensor + 8}},
      {1, {.offset_bytes = std::uint64_t{1} << 40, .length_bytes = 1, .crc32c = 9, .crc32 = 10}}};
  record.items = {{.extent = {.offset_bytes = 64, .size_bytes = std::uint64_t{1} << 33},
                   .payload_crc32 = tensor + 11}};
  return record;
}

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() {
    auto journal = Journal::Create(*storage_, "/j", kHash);
    EXPECT_THAT(journal, IsOk());
    for (std::uint32_t t = 0; t < 3; ++t) EXPECT_THAT((*journal)->Append(Record(t)), IsOk());
  }
  std::vector<std::uint32_t> Resumed() {
    std::vector<JournalRecord> records;
    EXPECT_THAT(Journal::Resume(*storage_, "/j", kHash, records), IsOk());
    std::vector<std::uint32_t> tensors;
    for (const JournalRecord& record : records) tensors.push_back(record.tensor);
    return tensors;
  }
  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(JournalTest, ReturnsWhatWasAppended) {
  std::vector<JournalRecord> records;
  ASSERT_THAT(Journal::Resume(*storage_, "/j", kHash, records), IsOk());
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[2].digest, Record(2).digest);
  EXPECT_EQ(records[2].cast_overflows, 20U);
  EXPECT_EQ(records[2].pieces, Record(2).pieces);
  EXPECT_EQ(records[2].items, Record(2).items);
}

TEST_F(JournalTest, ReturnsARecordOfNothingStored) {
  std::vector<JournalRecord> records;
  auto journal = Journal::Resume(*storage_, "/j", kHash, records);
  ASSERT_THAT(journal, IsOk());
  JournalRecord record = Record(5);
  record.pieces.clear();
  record.items.clear();
  ASSERT_THAT((*journal)->Append(record), IsOk());
  EXPECT_THAT(Resumed(), ::testing::ElementsAre(0U, 1U, 2U, 5U));
}

TEST_F(JournalTest, CutAnywhereKeepsTheRecordsBeforeTheCut) {
  const auto whole = ReadSmallFile(*storage_, "/j", 1 << 20);
  ASSERT_THAT(whole, IsOk());
  const std::size_t header = 8 + 32;
  const std::size_t record = (whole->size() - header) / 3;
  for (std::size_t size = header; size <= whole->size(); ++size) {
    ASSERT_THAT(storage_->RemoveAll("/j"), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, "/j", AsBytes(*whole).first(size)), IsOk());
    EXPECT_EQ(Resumed().size(), (size - header) / record) << "cut at " << size;
  }
}

TEST_F(JournalTest, AFlippedByteEndsTheJournalThere) {
  auto file = storage_->OpenForUpdate("/j");
  ASSERT_THAT(file, IsOk());
  const auto whole = ReadSmallFile(*storage_, "/j", 1 << 20);
  const std::size_t in_second = 8 + 32 + (whole->size() - 40) / 3 + 20;
  const std::byte flipped = static_cast<std::byte>((*whole)[in_second]) ^ std::byte{1};
  ASSERT_THAT((*file)->WriteAt(in_second, ByteSpan(&flipped, 1)), IsOk());
  EXPECT_THAT(Resumed(), ::testing::ElementsAre(0U));
}

// A power failure may leave the length of a file and not its bytes.
TEST_F(JournalTest, ZerosEndTheJournalThere) {
  const auto whole = ReadSmallFile(*storage_, "/j", 1 << 20);
  ASSERT_THAT(whole, IsOk());
  const std::size_t record = (whole->size() - 40) / 3;
  const std::string zeros(8, '\0');  // an empty record, whose checksum is 0
  const std::string changed = whole->substr(0, 40 + record) + zeros + whole->substr(40 + record);
  ASSERT_THAT(storage_->RemoveAll("/j"), IsOk());
  ASSERT_THAT(WriteSmallFile(*storage_, "/j", AsBytes(changed)), IsOk());
  EXPECT_THAT(Resumed(), ::testing::ElementsAre(0U));
}

TEST_F(JournalTest, GoesOnBehindTheLastGoodRecord) {
  auto file = storage_->OpenForUpdate("/j");
  const auto whole = ReadSmallFile(*storage_, "/j", 1 << 20);
  ASSERT_THAT((*file)->Resize(whole->size() - 1), IsOk());
  std::vector<JournalRecord> records;
  auto journal = Journal::Resume(*storage_, "/j", kHash, records);
  ASSERT_THAT(journal, IsOk());
  ASSERT_THAT((*journal)->Append(Record(7)), IsOk());
  EXPECT_THAT(Resumed(), ::testing::ElementsAre(0U, 1U, 7U));
}

TEST_F(JournalTest, TheHashOfItsPlanIsReadAlone) {
  testing::CountingStorage counting(*storage_);
  EXPECT_THAT(Journal::PlanHashOf(counting, "/j"), IsOkAndHolds(kHash));
  EXPECT_EQ(counting.bytes_read(), 8 + 32);
}

TEST_F(JournalTest, OneThatWasNotBegunHasNoPlan) {
  EXPECT_THAT(Journal::PlanHashOf(*storage_, "/other"), IsOkAndHolds(std::nullopt));
  const auto whole = ReadSmallFile(*storage_, "/j", 1 << 20);
  ASSERT_THAT(whole, IsOk());
  for (const std::string& begun : {whole->substr(0, 39), std::string(40, '\0'),
                                   whole->substr(0, 39) + '\0', "X" + whole->substr(1)}) {
    ASSERT_THAT(storage_->RemoveAll("/j"), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, "/j", AsBytes(begun)), IsOk());
    EXPECT_THAT(Journal::PlanHashOf(*storage_, "/j"), IsOkAndHolds(std::nullopt));
  }
}

// A piece of a record lies within a block. One that claims more asks for memory, not for a check.
TEST_F(JournalTest, APieceLongerThanABlockIsNotRecorded) {
  WritePlan plan;
  plan.files = {{.name = "data"}};
  for (const std::uint32_t excess : {0U, 1U}) {
    const Bytes content(kManifestBlockBytes + excess, std::byte{3});
    ASSERT_THAT(storage_->RemoveAll("/data"), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, "/data", content), IsOk());
    JournalRecord record;
    record.pieces = {
        {0,
         {.length_bytes = static_cast<std::uint32_t>(content.size()), .crc32c = Crc32c(content)}}};
    const auto found = FindRecorded(*storage_, "/", plan, record);
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(found->has_value(), excess == 0);
  }
}

TEST_F(JournalTest, AnotherPlanIsNotFound) {
  std::vector<JournalRecord> records;
  EXPECT_THAT(Journal::Resume(*storage_, "/j", std::string(32, 'b'), records),
              FailsWith(ErrorKind::kNotFound));
}

}  // namespace
}  // namespace ckpt
