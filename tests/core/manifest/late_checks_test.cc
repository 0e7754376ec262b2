// Parts of blocks that are given before their check: nothing is read twice, and no damage passes
// the comparison.
#include "core/manifest/late_checks.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "core/manifest/checked_storage.h"
#include "tests/testing/counting_storage.h"
#include "tests/testing/manifest_file.h"
#include "tests/testing/matchers.h"
#include "tests/testing/test_seed.h"

namespace ckpt {
namespace {

using testing::CountingStorage;
using testing::DescribeContent;
using testing::FailsWith;
using testing::IsOk;

constexpr std::uint64_t kWhole = kManifestBlockBytes;
constexpr std::uint64_t kFile = 3 * kWhole + 100;

class LateChecksTest : public ::testing::Test {
 protected:
  LateChecksTest() : content_(kFile) {
    std::mt19937 rng(1);
    for (std::byte& byte : content_) byte = static_cast<std::byte>(rng());
    EXPECT_THAT(disk_->MakeDirectories("/ck"), IsOk());
    EXPECT_THAT(WriteSmallFile(*disk_, "/ck/data", content_), IsOk());
    auto manifest = std::make_shared<Manifest>();
    manifest->files = {DescribeContent("data", content_)};
    manifest_ = std::move(manifest);
    Reopen();
  }

  void Reopen() {
    late_ = std::make_shared<LateChecks>();
    auto file = MakeCheckedStorage(counting_, "/ck", manifest_, nullptr, late_)->Open("/ck/data");
    EXPECT_THAT(file, IsOk());
    file_ = *file;
  }

  void Put(std::uint64_t offset, std::byte value) {
    auto file = disk_->OpenForUpdate("/ck/data");
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT((*file)->WriteAt(offset, ByteSpan(&value, 1)), IsOk());
  }
  void Flip(std::uint64_t offset) { Put(offset, content_[offset] ^ std::byte{8}); }

  Status Read(std::uint64_t offset, std::uint64_t length) {
    Bytes out(length);
    return file_->ReadAt(offset, out);
  }

  // What one reader finds in all parts. Then all end.
  Status Finish(int num_readers = 1) {
    const Result<std::optional<BlockPart>> found = late_->FindDamage(late_->TakeParts());
    Status status = found.ok() && *found ? late_->Describe(**found) : found.status();
    for (int r = 0; r < num_readers; ++r) late_->End();
    return status;
  }

  Bytes content_;
  std::unique_ptr<Storage> disk_ = MakeMemoryStorage();
  CountingStorage counting_{*disk_};
  std::shared_ptr<const Manifest> manifest_;
  std::shared_ptr<LateChecks> late_;
  std::shared_ptr<const ReadableFile> file_;
};

// One after the other, so that no two of them use a block at the same time.
TEST_F(LateChecksTest, ReadersThatDivideAFileReadNoByteTwice) {
  constexpr int kReaders = 10;
  for (int r = 0; r < kReaders; ++r) late_->Begin();
  for (std::uint64_t r = kReaders; r-- > 0;) {
    const std::uint64_t begin = kFile * r / kReaders;
    Bytes out(kFile * (r + 1) / kReaders - begin);
    ASSERT_THAT(file_->ReadAt(begin, out), IsOk());
    EXPECT_TRUE(std::ranges::equal(out, ByteSpan(content_).subspan(begin, out.size())));
  }
  EXPECT_THAT(Finish(kReaders), IsOk());
  EXPECT_EQ(counting_.bytes_read(), kFile);
  // All of it was checked by that.
  ASSERT_THAT(Read(5, 10), IsOk());
  EXPECT_EQ(counting_.bytes_read(), kFile + 10);
}

TEST_F(LateChecksTest, PartsMayOverlapAndComeInAnyOrder) {
  const std::uint64_t seed = testing::TestSeed(3);
  SCOPED_TRACE(::testing::Message() << "replay: CKPT_TEST_SEED=" << seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 100; ++round) {
    Reopen();
    const std::uint64_t damaged = round % 2 == 0 ? kFile : rng() % kFile;
    if (damaged < kFile) Flip(damaged);
    late_->Begin();
    Status met;
    const int reads = static_cast<int>(rng() % 60);
    for (int read = 0; read < reads && met.ok(); ++read) {
      const std::uint64_t offset = rng() % kFile;
      const std::uint64_t most = rng() % 4 == 0 ? kFile : 400'000;
      met = Read(offset, std::min<std::uint64_t>(rng() % most, kFile - offset));
    }
    // A block of which nothing was read was not compared.
    if (damaged < kFile && met.ok()) met = Read(damaged / kWhole * kWhole, 1);
    const Status finished = Finish();
    if (damaged < kFile) {
      EXPECT_THAT(met.ok() ? finished : met, FailsWith(ErrorKind::kChecksum)) << damaged;
      Put(damaged, content_[damaged]);
    } else {
      EXPECT_THAT(met, IsOk());
      EXPECT_THAT(finished, IsOk());
    }
  }
}

TEST_F(LateChecksTest, TheRestOfABlockIsReadAndTheDamageFoundThere) {
  Flip(kWhole + 500'000);
  late_->Begin();
  ASSERT_THAT(Read(kWhole + 10, 100), IsOk());
  ASSERT_THAT(Read(2 * kWhole - 100, 200), IsOk());
  EXPECT_EQ(counting_.bytes_read(), 300);
  const Status finished = Finish();
  ASSERT_THAT(finished, FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(finished.first().message, "bit 3 of byte 1548576 is flipped");
  EXPECT_EQ(finished.first().file, "/ck/data [1048576, +1048576)");
}

TEST_F(LateChecksTest, AllThatBeganCanDescribeTheDamageThatOneHasFound) {
  Flip(7);
  late_->Begin();
  late_->Begin();
  ASSERT_THAT(Read(100, 100), IsOk());
  const Result<std::optional<BlockPart>> found = late_->FindDamage(late_->TakeParts());
  ASSERT_THAT(found, IsOk());
  ASSERT_TRUE(*found);
  EXPECT_THAT(late_->TakeParts(), ::testing::IsEmpty()) << "each part is given once";
  const Status first = late_->Describe(**found);
  late_->End();
  EXPECT_THAT(first, FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(late_->Describe(**found).ToString(), first.ToString());
  late_->End();
  // What is read later is another matter.
  Put(7, content_[7]);
  late_->Begin();
  ASSERT_THAT(Read(100, 100), IsOk());
  EXPECT_THAT(Finish(), IsOk());
}

// The part was read of a block that has been mended since.
TEST_F(LateChecksTest, WhatWasReadIsComparedNotWhatIsThereLater) {
  Flip(50);
  late_->Begin();
  ASSERT_THAT(Read(0, 100), IsOk());
  Put(50, content_[50]);
  const Status finished = Finish();
  ASSERT_THAT(finished, FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(finished.first().file, "/ck/data [0, +1048576)");
}

TEST_F(LateChecksTest, ChecksAtOnceBeforeBeginAndAfterEnd) {
  Flip(7);
  EXPECT_THAT(Read(100, 100), FailsWith(ErrorKind::kChecksum));
  late_->Begin();
  ASSERT_THAT(Read(kWhole, 100), IsOk());
  ASSERT_THAT(Finish(), IsOk());
  EXPECT_THAT(Read(100, 100), FailsWith(ErrorKind::kChecksum));
}

TEST_F(LateChecksTest, HandsErrorsOfReadingOn) {
  late_->Begin();
  ASSERT_THAT(Read(100, 100), IsOk());
  counting_.FailReads();
  EXPECT_THAT(Read(300, 100), FailsWith(ErrorKind::kIo));
  EXPECT_THAT(Finish(), FailsWith(ErrorKind::kIo));
}

TEST_F(LateChecksTest, ThreadsMayReadAtOnce) {
  for (int round = 0; round < 10; ++round) {
    Reopen();
    const std::uint64_t before = counting_.bytes_read();
    for (int r = 0; r < 8; ++r) late_->Begin();
    {
      std::vector<std::jthread> readers;
      for (std::uint64_t r = 0; r < 8; ++r) {
        readers.emplace_back([&, r] {
          for (std::uint64_t at = kFile * r / 8, end = kFile * (r + 1) / 8; at < end;) {
            const std::uint64_t size = std::min<std::uint64_t>(30'000, end - at);
            EXPECT_THAT(Read(at, size), IsOk());
            at += size;
          }
        });
      }
    }
    EXPECT_THAT(Finish(8), IsOk());
    EXPECT_EQ(counting_.bytes_read() - before, kFile);
  }
}

// Readers that are processes: each has opened the file for itself.
class SeveralProcessesTest : public LateChecksTest {
 protected:
  struct Process {
    explicit Process(Storage& disk) : counting(disk) {}

    CountingStorage counting;
    std::shared_ptr<LateChecks> late = std::make_shared<LateChecks>();
    std::shared_ptr<Storage> storage;
    std::shared_ptr<const ReadableFile> file;
  };

  void Start(std::size_t number) {
    processes_.clear();
    for (std::size_t p = 0; p < number; ++p) {
      Process& process = *processes_.emplace_back(std::make_unique<Process>(*disk_));
      process.storage =
          MakeCheckedStorage(process.counting, "/ck", manifest_, nullptr, process.late);
      auto file = process.storage->Open("/ck/data");
      ASSERT_THAT(file, IsOk());
      process.file = *file;
      process.late->Begin();
    }
  }

  Status ReadBy(std::size_t process, std::uint64_t offset, std::uint64_t length) {
    Bytes out(length);
    return processes_[process]->file->ReadAt(offset, out);
  }

  // What every process gets, which must be the same. If reading fails, what one of them gets.
  Status CompareTogether() {
    std::map<std::size_t, std::vector<BlockPart>> of_each;
    for (const auto& process : processes_) {
      for (const BlockPart& part : process->late->TakeParts()) {
        of_each[part.block % processes_.size()].push_back(part);
      }
    }
    std::optional<BlockPart> damaged;
    Status failure;
    for (std::size_t p = 0; p < processes_.size(); ++p) {
      const Result<std::optional<BlockPart>> found = processes_[p]->late->FindDamage(of_each[p]);
      if (!found.ok()) failure = found.status();
      if (found.ok() && *found && !damaged) damaged = *found;
    }
    if (damaged) {
      for (const auto& process : processes_) {
        const Status described = process->late->Describe(*damaged);
        EXPECT_TRUE(failure.ok() || described.ToString() == failure.ToString());
        failure = described;
      }
    }
    for (const auto& process : processes_) process->late->End();
    return failure;
  }

  std::uint64_t bytes_read() const {
    std::uint64_t sum = 0;
    for (const auto& process : processes_) sum += process->counting.bytes_read();
    return sum;
  }

  std::vector<std::unique_ptr<Process>> processes_;
};

TEST_F(SeveralProcessesTest, DivideAFileAndReadNoByteTwice) {
  constexpr std::uint64_t kReaders = 10;
  Start(kReaders + 3);  // some read nothing
  for (std::uint64_t r = 0; r < kReaders; ++r) {
    const std::uint64_t begin = kFile * r / kReaders;
    ASSERT_THAT(ReadBy(r, begin, kFile * (r + 1) / kReaders - begin), IsOk());
  }
  EXPECT_THAT(CompareTogether(), IsOk());
  EXPECT_EQ(bytes_read(), kFile);
}

// Headers, which each looks into before it reads its own part of what follows.
TEST_F(SeveralProcessesTest, ReadNothingMoreWhereAllHaveReadTheSamePart) {
  constexpr std::uint64_t kReaders = 4;
  constexpr std::uint64_t kHeader = 4096;
  Start(kReaders);
  for (std::uint64_t r = 0; r < kReaders; ++r) {
    // Over the end of a block, too.
    for (const std::uint64_t at : {std::uint64_t{0}, kWhole - 100, kFile - kHeader}) {
      ASSERT_THAT(ReadBy(r, at, kHeader), IsOk());
    }
  }
  for (const auto& [reader, begin, end] : {std::tuple(0, kHeader / 2, 2 * kWhole),
                                           {1, 2 * kWhole, kFile - 2 * kHeader},
                                           {2, kFile - 2 * kHeader, kFile},
                                           {3, std::uint64_t{0}, kHeader / 2}}) {
    ASSERT_THAT(ReadBy(static_cast<std::size_t>(reader), begin, end - begin), IsOk());
  }
  const std::uint64_t before = bytes_read();
  EXPECT_THAT(CompareTogether(), IsOk());
  EXPECT_EQ(bytes_read(), before);
}

TEST_F(SeveralProcessesTest, FindAllDamageOfBlocksThatTheyRead) {
  const std::uint64_t seed = testing::TestSeed(5);
  SCOPED_TRACE(::testing::Message() << "replay: CKPT_TEST_SEED=" << seed);
  std::mt19937_64 rng(seed);
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t damaged = round % 2 == 0 ? kFile : rng() % kFile;
    if (damaged < kFile) Flip(damaged);
    Start(1 + rng() % 5);
    bool reads_it = false;
    for (std::uint64_t left = rng() % 40; left > 0; --left) {
      const std::uint64_t offset = rng() % kFile;
      const std::uint64_t most = rng() % 8 == 0 ? kFile : 400'000;
      const std::uint64_t length = 1 + rng() % std::min<std::uint64_t>(most, kFile - offset);
      const std::uint64_t block = damaged / kWhole;
      reads_it |= offset / kWhole <= block && block <= (offset + length - 1) / kWhole;
      const Status status = ReadBy(rng() % processes_.size(), offset, length);
      EXPECT_TRUE(status.ok() || status.kind() == ErrorKind::kChecksum);
    }
    const std::uint64_t before = bytes_read();
    const Status compared = CompareTogether();
    if (damaged == kFile) {
      EXPECT_THAT(compared, IsOk());
      EXPECT_LE(bytes_read() - before, kFile);  // no block more than once
      continue;
    }
    EXPECT_EQ(!compared.ok(), reads_it) << damaged;
    if (!compared.ok()) {
      EXPECT_THAT(compared, FailsWith(ErrorKind::kChecksum));
      EXPECT_EQ(compared.first().message, fmt::format("bit 3 of byte {} is flipped", damaged));
    }
    Put(damaged, content_[damaged]);
  }
}

// Another machine may have another copy of the file in its memory.
TEST_F(SeveralProcessesTest, FindDamageThatOneOfThemAloneHasSeen) {
  for (const auto& [offset, length] :
       {std::pair(100ULL, 200ULL), {100ULL, 100ULL}, {50ULL, 1000ULL}, {0ULL, 1ULL << 20}}) {
    for (std::size_t who = 0; who < 3; ++who) {
      Start(3);
      for (std::size_t reader = 0; reader < 3; ++reader) {
        if (reader == who) Flip(150);
        const Status status = reader == 0 ? ReadBy(0, offset, length) : ReadBy(reader, 100, 200);
        Put(150, content_[150]);
        EXPECT_TRUE(status.ok() || length == kWhole);
      }
      EXPECT_THAT(CompareTogether(), FailsWith(ErrorKind::kChecksum)) << who;
    }
  }
}

TEST_F(SeveralProcessesTest, HandErrorsOfReadingOn) {
  Start(2);
  ASSERT_THAT(ReadBy(0, kWhole, 100), IsOk());
  processes_[1]->counting.FailReads();  // it compares the block
  EXPECT_THAT(CompareTogether(), FailsWith(ErrorKind::kIo));
}

}  // namespace
}  // namespace ckpt
