// The bytes of event files, against what TensorFlow's record writer and protobuf make of the same
// events.
#include "trainer/metrics/event_record.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "core/io/memory_storage.h"
#include "tests/testing/matchers.h"
#include "trainer/metrics/event_file.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using testing::IsOk;
using ::testing::StartsWith;

TEST(EventRecordTest, VersionComesAsTensorBoardWantsIt) {
  // double 1 = 2.0; text 3 = "brain.Event:2"
  EXPECT_EQ(HexOf(VersionEvent(2.0)), "0900000000000000401a0d627261696e2e4576656e743a32");
}

TEST(EventRecordTest, ScalarsAreNestedMessages) {
  const std::vector<Scalar> scalars = {{"loss", 1.5}, {"lr", -2}};
  // double 1 = 2.0; varint 2 = 300; message 5 = { message 1 = { text 1, float 2 }, message 1 = … }
  EXPECT_EQ(HexOf(ScalarEvent(2.0, 300, scalars)),
            "090000000000000040"
            "10ac02"
            "2a18"
            "0a0b0a046c6f7373150000c03f"
            "0a090a026c7215000000c0");
}

TEST(EventRecordTest, ARestartNamesItsFirstStep) {
  EXPECT_EQ(HexOf(RestartEvent(2.0, 5)),
            "0900000000000000401005"
            "3a020801");
}

TEST(EventRecordTest, RecordsCarryMaskedChecksums) {
  // The check value of CRC-32C, e3069283, rotated right by 15, plus 0xa282ead8.
  EXPECT_EQ(MaskedCrc32c(AsBytes("123456789")), 0xc78ab0e5U);
  const Bytes record = FrameRecord(AsBytes("123456789"));
  ASSERT_EQ(record.size(), 8U + 4 + 9 + 4);
  EXPECT_THAT(HexOf(record), StartsWith("0900000000000000"));
  EXPECT_EQ(HexOf(ByteSpan(record).last(4)), "e5b08ac7");
}

Result<EventFile> Open(Storage& storage, const RunPosition& run) {
  CKPT_ASSIGN_OR_RETURN(EventFile file, EventFile::Take(storage, "/run/tb"));
  CKPT_RETURN_IF_ERROR(file.Begin(run));
  return file;
}

TEST(EventFileTest, KeepsOtherRunsOutOfTheDirectory) {
  const auto storage = MakeMemoryStorage();
  {
    const auto file = EventFile::Take(*storage, "/run/tb");
    ASSERT_THAT(file, IsOk());
    EXPECT_THAT(EventFile::Take(*storage, "/run/tb").status(),
                FailsWith(ErrorKind::kAlreadyExists));
  }
  EXPECT_EQ(storage->Stat("/run")->type, FileType::kMissing) << "nothing was put in";
}

TEST(EventFileTest, MixesNoTwoRuns) {
  const auto storage = MakeMemoryStorage();
  ASSERT_THAT(Open(*storage, {.run_id = "a", .last_step = 0}), IsOk());
  EXPECT_THAT(Open(*storage, {.run_id = "a", .last_step = 3}), IsOk());
  EXPECT_THAT(Open(*storage, {.run_id = "b", .last_step = 0}).status(),
              FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_EQ(storage->List("/run/tb")->size(), 2U);
}

TEST(EventFileTest, LiesWhereTensorBoardLooks) {
  const auto storage = MakeMemoryStorage();
  auto file = Open(*storage, {.run_id = "a", .last_step = 0});
  ASSERT_THAT(file, IsOk());
  const std::vector<Scalar> scalars = {{"loss", 1.5}};
  ASSERT_THAT(file->Add(1, scalars), IsOk());
  ASSERT_THAT(file->Sync(), IsOk());
  const auto entries = storage->List("/run/tb");
  ASSERT_THAT(entries, IsOk());
  ASSERT_EQ(entries->size(), 1U);
  EXPECT_THAT(entries->front().name, StartsWith("events.out.tfevents."));
}

}  // namespace
}  // namespace ckpt::train
