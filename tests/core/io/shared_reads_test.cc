#include "core/io/shared_reads.h"

#include <cstdint>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/memory_storage.h"
#include "tests/testing/counting_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::CountingStorage;
using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;

const Path kFile = "/file";

Result<std::string> Read(Storage& storage, std::uint64_t offset, std::size_t size_bytes) {
  CKPT_ASSIGN_OR_RETURN(const auto file, storage.Open(kFile));
  Bytes bytes(size_bytes);
  CKPT_RETURN_IF_ERROR(file->ReadAt(offset, bytes));
  return std::string(AsText(bytes));
}

class SharedReadsTest : public ::testing::Test {
 protected:
  SharedReadsTest() { EXPECT_THAT(WriteSmallFile(*disk_, kFile, AsBytes("0123456789")), IsOk()); }

  // What a process records that reads [2, 6) and [8, 10).
  std::string Recorded() {
    SharedReads first(*disk_);
    first.Record();
    EXPECT_THAT(Read(first, 2, 4), IsOkAndHolds("2345"));
    EXPECT_THAT(Read(first, 8, 2), IsOkAndHolds("89"));
    return first.TakeRecord();
  }

  const std::unique_ptr<Storage> disk_ = MakeMemoryStorage();
};

TEST_F(SharedReadsTest, AnswersWhatWasRecordedAndReadsTheRest) {
  CountingStorage counted(*disk_);
  SharedReads second(counted);
  ASSERT_THAT(second.Answer(Recorded()), IsOk());
  EXPECT_THAT(Read(second, 8, 2), IsOkAndHolds("89"));
  EXPECT_THAT(Read(second, 2, 4), IsOkAndHolds("2345"));
  EXPECT_THAT(Read(second, 3, 2), IsOkAndHolds("34"));
  EXPECT_EQ(counted.bytes_read(), 0U);
  EXPECT_THAT(Read(second, 0, 1), IsOkAndHolds("0"));  // before all that was recorded
  EXPECT_THAT(Read(second, 4, 3), IsOkAndHolds("456"));
  EXPECT_THAT(Read(second, 7, 1), IsOkAndHolds("7"));
  EXPECT_EQ(counted.bytes_read(), 5U);
  EXPECT_THAT(Read(second, 9, 2), FailsWith(ErrorKind::kTruncated));
}

TEST_F(SharedReadsTest, ReadsForItselfOnceItHasForgotten) {
  CountingStorage counted(*disk_);
  SharedReads second(counted);
  ASSERT_THAT(second.Answer(Recorded()), IsOk());
  const auto file = second.Open(kFile);
  ASSERT_THAT(file, IsOk());
  second.Forget();
  Bytes bytes(4);
  EXPECT_THAT((*file)->ReadAt(2, bytes), IsOk());
  EXPECT_EQ(AsText(bytes), "2345");
  EXPECT_EQ(counted.bytes_read(), 4U);
}

TEST_F(SharedReadsTest, RecordsOnlyBetweenRecordAndTakeRecord) {
  SharedReads first(*disk_);
  EXPECT_THAT(Read(first, 0, 4), IsOk());
  EXPECT_EQ(first.TakeRecord(), "");
  first.Record();
  const auto file = first.Open(kFile);
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ(first.TakeRecord(), "");
  Bytes bytes(4);
  EXPECT_THAT((*file)->ReadAt(2, bytes), IsOk());
  EXPECT_EQ(first.TakeRecord(), "");
}

TEST_F(SharedReadsTest, RecordsNoReadThatFailed) {
  CountingStorage failing(*disk_);
  failing.FailReads();
  SharedReads first(failing);
  first.Record();
  EXPECT_THAT(Read(first, 0, 4), FailsWith(ErrorKind::kIo));
  EXPECT_EQ(first.TakeRecord(), "");
}

TEST_F(SharedReadsTest, ARecordHoldsNoMoreThanItsLimit) {
  constexpr std::size_t kLarge = std::size_t{40} << 20;
  ASSERT_THAT(ReplaceSmallFile(*disk_, kFile, Bytes(kLarge)), IsOk());
  SharedReads first(*disk_);
  first.Record();
  ASSERT_THAT(Read(first, 0, kLarge), IsOk());
  ASSERT_THAT(Read(first, 0, kLarge - 1), IsOk());
  ASSERT_THAT(Read(first, 5, 3), IsOk());  // for which there is room
  const std::string record = first.TakeRecord();
  EXPECT_GT(record.size(), kLarge);
  EXPECT_LT(record.size(), kLarge + 1000);
}

// Another disk's file of the same name.
TEST_F(SharedReadsTest, DoesNotAnswerForFilesOfOtherSizesOrTimes) {
  class LaterStorage final : public ForwardingStorage {
   public:
    using ForwardingStorage::ForwardingStorage;
    Result<FileStat> Stat(const Path& path) override {
      CKPT_ASSIGN_OR_RETURN(FileStat stat, behind().Stat(path));
      ++stat.modified_ns;
      return stat;
    }
  };
  const std::string record = Recorded();
  ASSERT_THAT(ReplaceSmallFile(*disk_, kFile, AsBytes("abcdefghij")), IsOk());
  SharedReads same(*disk_);
  ASSERT_THAT(same.Answer(record), IsOk());
  EXPECT_THAT(Read(same, 2, 4), IsOkAndHolds("2345"));  // nothing tells them apart
  LaterStorage later(*disk_);
  SharedReads of_other_time(later);
  ASSERT_THAT(of_other_time.Answer(record), IsOk());
  EXPECT_THAT(Read(of_other_time, 2, 4), IsOkAndHolds("cdef"));
  ASSERT_THAT(ReplaceSmallFile(*disk_, kFile, AsBytes("abcdefghijk")), IsOk());
  SharedReads of_other_size(*disk_);
  ASSERT_THAT(of_other_size.Answer(record), IsOk());
  EXPECT_THAT(Read(of_other_size, 2, 4), IsOkAndHolds("cdef"));
}

TEST_F(SharedReadsTest, RefusesWhatIsNoRecord) {
  const std::string record = Recorded();
  for (const std::size_t size : {std::size_t{1}, std::size_t{23}, record.size() - 1}) {
    SharedReads second(*disk_);
    EXPECT_THAT(second.Answer(record.substr(0, size)), FailsWith(ErrorKind::kInternal)) << size;
  }
  SharedReads second(*disk_);
  EXPECT_THAT(second.Answer(std::string(24, '\xff')), FailsWith(ErrorKind::kInternal));
  EXPECT_THAT(second.Answer(""), IsOk());
}

TEST_F(SharedReadsTest, ShowsTheSamePiecesWhetherOrNotItRecords) {
  const auto pieces = [](Storage& storage) {
    std::string seen;
    const auto file = storage.Open(kFile);
    EXPECT_THAT(file, IsOk());
    Bytes bytes(10);
    EXPECT_THAT((*file)->ReadInPieces(0, bytes,
                                      [&](ByteSpan piece) {
                                        seen += AsText(piece);
                                        return OkStatus();
                                      }),
                IsOk());
    return seen;
  };
  SharedReads first(*disk_);
  first.Record();
  EXPECT_EQ(pieces(first), "0123456789");
  CountingStorage counted(*disk_);
  SharedReads second(counted);
  ASSERT_THAT(second.Answer(first.TakeRecord()), IsOk());
  EXPECT_EQ(pieces(second), "0123456789");
  EXPECT_EQ(counted.bytes_read(), 0U);
}

}  // namespace
}  // namespace ckpt
