// Parts of blocks that are given before their check: nothing is read twice, and no damage passes Finish.
#include "core/manifest/late_checks.h"

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

  Bytes content_;
  std::unique_ptr<Storage> disk_ = MakeMemoryStorage();
  CountingStorage counting_{*disk_};
  std::shared_ptr<const Manifest> manifest_;
  std::shared_ptr<LateChecks> late_;
  std::shared_ptr<const ReadableFile> file_;
};

// One after the other, so that no two of them use a block at the same time.
TEST_F(LateChecksTest, ReadersThatDivideAFileReadNoByteTwice) {
  constexpr std::uint64_t kReaders = 10;
  for (std::uint64_t r = 0; r < kReaders; ++r) late_->Begin();
  for (std::uint64_t r = kReaders; r-- > 0;) {
    const std::uint64_t begin = kFile * r / kReaders;
    Bytes out(kFile * (r + 1) / kReaders - begin);
    ASSERT_THAT(file_->ReadAt(begin, out), IsOk());
    EXPECT_TRUE(std::ranges::equal(out, ByteSpan(content_).subspan(begin, out.size())));
  }
  for (std::uint64_t r = 0; r < kReaders; ++r) EXPECT_THAT(late_->Finish(), IsOk());
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
    const Status finished = late_->Finish();
    if (damaged < kFile) {
      EXPECT_THAT(met.ok() ? finished : met, FailsWith(ErrorKind::kChecksum)) << damaged;
      Put(damaged, content_[damaged]);
    } else {
      EXPECT_THAT(met, IsOk());
      EXPECT_THAT(finished, IsOk());
    }
  }
}

TEST_F(LateChecksTest, FinishReadsTheRestOfABlockAndFindsTheDamageThere) {
  Flip(kWhole + 500'000);
  late_->Begin();
  ASSERT_THAT(Read(kWhole + 10, 100), IsOk());
  ASSERT_THAT(Read(2 * kWhole - 100, 200), IsOk());
  EXPECT_EQ(counting_.bytes_read(), 300);
  const Status finished = late_->Finish();
  ASSERT_THAT(finished, FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(finished.first().message, "bit 3 of byte 1548576 is flipped");
  EXPECT_EQ(finished.first().file, "/ck/data [1048576, +1048576)");
}

TEST_F(LateChecksTest, AllThatBeganGetTheSameFailure) {
  Flip(7);
  late_->Begin();
  late_->Begin();
  ASSERT_THAT(Read(100, 100), IsOk());
  const Status first = late_->Finish();
  EXPECT_THAT(first, FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(late_->Finish().ToString(), first.ToString());
  // What is read later is another matter.
  Put(7, content_[7]);
  late_->Begin();
  ASSERT_THAT(Read(100, 100), IsOk());
  EXPECT_THAT(late_->Finish(), IsOk());
}

// The part was read of a block that has been mended since.
TEST_F(LateChecksTest, WhatWasReadIsComparedNotWhatIsThereLater) {
  Flip(50);
  late_->Begin();
  ASSERT_THAT(Read(0, 100), IsOk());
  Put(50, content_[50]);
  const Status finished = late_->Finish();
  ASSERT_THAT(finished, FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(finished.first().file, "/ck/data [0, +1048576)");
}

TEST_F(LateChecksTest, ChecksAtOnceBeforeBeginAndAfterFinish) {
  Flip(7);
  EXPECT_THAT(Read(100, 100), FailsWith(ErrorKind::kChecksum));
  late_->Begin();
  ASSERT_THAT(Read(kWhole, 100), IsOk());
  ASSERT_THAT(late_->Finish(), IsOk());
  EXPECT_THAT(Read(100, 100), FailsWith(ErrorKind::kChecksum));
}

TEST_F(LateChecksTest, HandsErrorsOfReadingOn) {
  late_->Begin();
  ASSERT_THAT(Read(100, 100), IsOk());
  counting_.FailReads();
  EXPECT_THAT(Read(300, 100), FailsWith(ErrorKind::kIo));
  EXPECT_THAT(late_->Finish(), FailsWith(ErrorKind::kIo));
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
    for (int r = 0; r < 8; ++r) EXPECT_THAT(late_->Finish(), IsOk());
    EXPECT_EQ(counting_.bytes_read() - before, kFile);
  }
}

}  // namespace
}  // namespace ckpt
