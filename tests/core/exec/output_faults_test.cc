// Every change to a journal or an output file fails in turn: always an error, and never a journal
// of records that were not written.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/endian.h"
#include "core/base/hash.h"
#include "core/exec/internal/journal.h"
#include "core/exec/internal/output_file.h"
#include "core/io/memory_storage.h"
#include "tests/testing/fault_storage.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FaultStorage;
using testing::IsOk;

const std::string kPlanHash(32, 'a');

JournalRecord RecordOf(std::uint32_t tensor) {
  JournalRecord record;
  record.tensor = tensor;
  record.digest = std::string(32, '0');
  return record;
}

Status WriteJournal(Storage& storage, std::uint32_t records) {
  CKPT_ASSIGN_OR_RETURN(const auto journal, Journal::Create(storage, "/j", kPlanHash));
  for (std::uint32_t t = 0; t < records; ++t) CKPT_RETURN_IF_ERROR(journal->Append(RecordOf(t)));
  return OkStatus();
}

Status ResumeJournal(Storage& storage, std::vector<JournalRecord>& records) {
  CKPT_ASSIGN_OR_RETURN(const auto journal, Journal::Resume(storage, "/j", kPlanHash, records));
  return journal->Append(RecordOf(static_cast<std::uint32_t>(records.size())));
}

TEST(OutputFaultsTest, AJournalHoldsWhatWasAppendedBefore) {
  for (int call = 0; call < 4; ++call) {  // create, header, two records
    const std::unique_ptr<Storage> memory = MakeMemoryStorage();
    FaultStorage storage(*memory, call, ErrorKind::kIo, FaultStorage::Mode::kOnce);
    EXPECT_FALSE(WriteJournal(storage, 2).ok()) << call;
    if (call < 2) continue;
    std::vector<JournalRecord> records;
    EXPECT_THAT(Journal::Resume(*memory, "/j", kPlanHash, records), IsOk());
    EXPECT_EQ(records.size(), static_cast<std::size_t>(call - 2));
  }
}

TEST(OutputFaultsTest, AResumedJournalHoldsWhatWasThere) {
  for (int call = 0; call < 3; ++call) {  // open, cut, the record
    const std::unique_ptr<Storage> memory = MakeMemoryStorage();
    ASSERT_THAT(WriteJournal(*memory, 2), IsOk());
    FaultStorage storage(*memory, call, ErrorKind::kIo, FaultStorage::Mode::kOnce);
    std::vector<JournalRecord> records;
    EXPECT_FALSE(ResumeJournal(storage, records).ok()) << call;
    records.clear();
    EXPECT_THAT(ResumeJournal(*memory, records), IsOk());
    EXPECT_EQ(records.size(), 2U);
  }
}

TEST(OutputFaultsTest, AJournalThatIsNotThereIsNotFound) {
  const std::unique_ptr<Storage> memory = MakeMemoryStorage();
  std::vector<JournalRecord> records;
  EXPECT_THAT(Journal::Resume(*memory, "/j", kPlanHash, records),
              testing::FailsWith(ErrorKind::kNotFound));
}

// A record whose checksum holds and whose body is of another length than it announces.
TEST(OutputFaultsTest, AJournalEndsAtARecordThatContradictsItself) {
  for (const std::size_t body_bytes : {std::size_t{3}, std::size_t{200}}) {
    const std::unique_ptr<Storage> memory = MakeMemoryStorage();
    ASSERT_THAT(WriteJournal(*memory, 1), IsOk());
    std::string text = ReadSmallFile(*memory, "/j", 1 << 20).value();
    const std::string body(body_bytes, '\0');
    Bytes frame;
    AppendLe(static_cast<std::uint32_t>(body.size()), frame);
    AppendLe(Crc32c(AsBytes(body)), frame);
    text += std::string(AsText(frame)) + body;
    ASSERT_THAT(memory->RemoveAll("/j"), IsOk());
    ASSERT_THAT(WriteSmallFile(*memory, "/j", AsBytes(text)), IsOk());
    std::vector<JournalRecord> records;
    EXPECT_THAT(Journal::Resume(*memory, "/j", kPlanHash, records), IsOk());
    EXPECT_EQ(records.size(), 1U);
  }
}

// A literal, a part, and a size that shows late.
Status WriteFile(Storage& storage, const WriteLiteral& literal) {
  OutputFile file(storage, "/f", 2);
  file.AddLiteral(literal);
  file.AddPart();
  CKPT_ASSIGN_OR_RETURN(WritableFile * out, file.Open());
  CKPT_RETURN_IF_ERROR(out->WriteAt(1, AsBytes("x")));
  file.AddPieces({{.offset_bytes = 1, .length_bytes = 1, .crc32c = Crc32c(AsBytes("x"))}});
  file.SetSize(2);
  CKPT_RETURN_IF_ERROR(file.PartDone());
  return file.Finish().status();
}

Status WriteLiteralsAlone(Storage& storage, const WriteLiteral& literal) {
  OutputFile file(storage, "/f", 1);
  file.AddLiteral(literal);
  return file.Finish().status();
}

TEST(OutputFaultsTest, AnOutputFileNeverHidesAFailure) {
  const WriteLiteral literal = {.file = 0, .offset_bytes = 0, .bytes = {std::byte{'L'}}};
  for (const auto write : {&WriteFile, &WriteLiteralsAlone}) {
    int failed = 0;
    for (int call = 0;; ++call) {
      const std::unique_ptr<Storage> memory = MakeMemoryStorage();
      ASSERT_THAT(WriteSmallFile(*memory, "/f", AsBytes("....")), IsOk());
      FaultStorage storage(*memory, call, ErrorKind::kIo, FaultStorage::Mode::kOnce);
      const Status status = write(storage, literal);
      if (status.ok()) {
        EXPECT_LE(storage.calls(), call) << "a failure was swallowed";
        break;
      }
      ++failed;
    }
    EXPECT_GE(failed, 4);
  }
}

// The bytes that an fsync lost may read back from memory: a resumed run must not find the file.
TEST(OutputFaultsTest, AnOutputFileWhoseSyncFailedIsGone) {
  const WriteLiteral literal = {.file = 0, .offset_bytes = 0, .bytes = {std::byte{'L'}}};
  const std::unique_ptr<Storage> memory = MakeMemoryStorage();
  ASSERT_THAT(WriteSmallFile(*memory, "/f", AsBytes("....")), IsOk());
  FaultStorage storage(*memory, 2, ErrorKind::kIo, FaultStorage::Mode::kOnce);  // open, write, sync
  EXPECT_FALSE(WriteLiteralsAlone(storage, literal).ok());
  EXPECT_EQ(memory->Stat("/f")->type, FileType::kMissing);
}

// It was opened before, and by now the name may be that of a later job's file.
TEST(OutputFaultsTest, AFileOpenedElsewhereIsNotRemovedByItsName) {
  const WriteLiteral literal = {.file = 0, .offset_bytes = 0, .bytes = {std::byte{'L'}}};
  const std::unique_ptr<Storage> memory = MakeMemoryStorage();
  FaultStorage storage(*memory, 2, ErrorKind::kIo,
                       FaultStorage::Mode::kOnce);  // create, write, sync
  auto created = storage.Create("/f");
  ASSERT_THAT(created, IsOk());
  OutputFile file(storage, "/f", 1, *std::move(created));
  file.AddLiteral(literal);
  EXPECT_FALSE(file.Finish().ok());
  EXPECT_EQ(memory->Stat("/f")->type, FileType::kRegular);
}

}  // namespace
}  // namespace ckpt
