#include "core/manifest/checked_storage.h"

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "core/manifest/internal/shared_blocks.h"
#include "tests/testing/counting_storage.h"
#include "tests/testing/manifest_file.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::CountingStorage;
using testing::DescribeContent;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

constexpr std::uint64_t kBlock = kManifestBlockBytes;
constexpr std::uint64_t kSize = 3 * kBlock + 100;  // of the file: three blocks and a bit

class CheckedStorageTest : public ::testing::Test {
 protected:
  CheckedStorageTest() : content_(kSize) {
    std::mt19937 rng(1);
    for (std::byte& byte : content_) byte = static_cast<std::byte>(rng());
    EXPECT_THAT(disk_->MakeDirectories("/ck/sub"), IsOk());
    Write();
  }

  void Write() {
    EXPECT_THAT(disk_->RemoveAll("/ck/sub/data"), IsOk());
    EXPECT_THAT(WriteSmallFile(*disk_, "/ck/sub/data", content_), IsOk());
    Manifest manifest;
    manifest.files = {DescribeContent("sub/data", content_)};
    manifest_ = std::make_shared<const Manifest>(std::move(manifest));
  }
  // Gives the file another size.
  void Fill(std::uint64_t size_bytes) {
    content_.assign(size_bytes, std::byte{7});
    Write();
  }

  void Flip(std::uint64_t offset, int bit) {
    const std::byte value = content_[offset] ^ (std::byte{1} << bit);
    auto file = disk_->OpenForUpdate("/ck/sub/data");
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT((*file)->WriteAt(offset, ByteSpan(&value, 1)), IsOk());
  }

  std::shared_ptr<const ReadableFile> Open() {
    auto file = MakeCheckedStorage(counting_, "/ck", manifest_)->Open("/ck/sub/data");
    EXPECT_THAT(file, IsOk());
    return *file;
  }

  // Whether a range is what was written.
  void ExpectReads(const ReadableFile& file, std::uint64_t offset, std::uint64_t length) {
    Bytes out(length);
    ASSERT_THAT(file.ReadAt(offset, out), IsOk()) << offset << " +" << length;
    EXPECT_TRUE(std::ranges::equal(out, ByteSpan(content_).subspan(offset, length)))
        << offset << " +" << length;
  }

  Bytes content_;
  std::unique_ptr<Storage> disk_ = MakeMemoryStorage();
  CountingStorage counting_{*disk_};
  std::shared_ptr<const Manifest> manifest_;
};

TEST_F(CheckedStorageTest, ReadsWhatWasWritten) {
  std::mt19937_64 rng(2);
  for (int round = 0; round < 20; ++round) {
    const auto file = Open();
    for (int read = 0; read < 10; ++read) {
      const std::uint64_t offset = rng() % (kSize + 1);
      ExpectReads(*file, offset, rng() % (kSize - offset + 1));
    }
  }
  const auto view = Open()->View();
  ASSERT_THAT(view, IsOk());
  EXPECT_TRUE(std::ranges::equal((*view)->bytes(), content_));
}

TEST_F(CheckedStorageTest, GivesNoByteOfADamagedBlock) {
  Flip(kBlock + 7, 3);
  const auto file = Open();
  ExpectReads(*file, 0, kBlock);
  ExpectReads(*file, 2 * kBlock, kBlock + 100);
  for (const auto& [offset, length] :
       {std::pair(kBlock, kBlock), {kBlock + 100, 1ULL}, {2 * kBlock - 1, 2ULL}, {0ULL, kSize}}) {
    Bytes out(length);
    const Status status = file->ReadAt(offset, out);
    ASSERT_THAT(status, FailsWith(ErrorKind::kChecksum)) << offset << " +" << length;
    EXPECT_EQ(status.first().message, "bit 3 of byte 1048583 is flipped");
    EXPECT_EQ(status.first().file, "/ck/sub/data [1048576, +1048576)");
  }
  EXPECT_THAT(file->View(), FailsWith(ErrorKind::kChecksum));
}

TEST_F(CheckedStorageTest, NoticesEveryByteOfTheLastBlock) {
  for (std::uint64_t offset = 3 * kBlock; offset < kSize; ++offset) {
    Flip(offset, 0);
    Bytes out(1);
    EXPECT_THAT(Open()->ReadAt(3 * kBlock, out), FailsWith(ErrorKind::kChecksum)) << offset;
    Flip(offset, 1);
    EXPECT_THAT(Open()->ReadAt(kSize - 1, out), FailsWith(ErrorKind::kChecksum)) << offset;
    auto repaired = disk_->OpenForUpdate("/ck/sub/data");
    ASSERT_THAT((*repaired)->WriteAt(offset, ByteSpan(content_).subspan(offset, 1)), IsOk());
  }
}

TEST_F(CheckedStorageTest, ReadsNothingTwiceToCheckIt) {
  const auto file = Open();
  ExpectReads(*file, 0, kSize);
  EXPECT_EQ(counting_.bytes_read(), kSize);
  // Checked by then.
  ExpectReads(*file, 10, 20);
  EXPECT_EQ(counting_.bytes_read(), kSize + 20);
}

TEST_F(CheckedStorageTest, ReadsNoByteTwiceFrontToBack) {
  const auto file = Open();
  constexpr std::uint64_t kPiece = 100'000;
  for (std::uint64_t at = 0; at < kSize; at += kPiece) {
    ExpectReads(*file, at, std::min(kPiece, kSize - at));
  }
  EXPECT_EQ(counting_.bytes_read(), kSize);
}

TEST_F(CheckedStorageTest, TakesTheBlockOfOneFileForNoOther) {
  const auto file = Open();
  ExpectReads(*file, 1, 1);
  Flip(1, 0);
  Bytes out(1);
  EXPECT_THAT(Open()->ReadAt(1, out), FailsWith(ErrorKind::kChecksum));
}

TEST_F(CheckedStorageTest, KeepsNothingOfADamagedBlock) {
  const auto file = Open();
  Flip(kBlock + 1, 0);
  Bytes out(1);
  for (int time = 0; time < 2; ++time) {
    EXPECT_THAT(file->ReadAt(kBlock, out), FailsWith(ErrorKind::kChecksum));
  }
  ExpectReads(*file, 0, 1);
}

TEST_F(CheckedStorageTest, ReadsABlockOnceForAnyNumberOfParts) {
  const auto file = Open();
  for (std::uint64_t offset = 0; offset < kBlock; offset += 4096) ExpectReads(*file, offset, 64);
  EXPECT_EQ(counting_.bytes_read(), kBlock);
}

// Ranks read parts of their own, which end anywhere in a block.
TEST_F(CheckedStorageTest, ReadsABlockOnceForAnyNumberOfThreads) {
  constexpr std::uint64_t kThreads = 16;
  constexpr std::uint64_t kPart = kSize / kThreads;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t before = counting_.bytes_read();
    const auto file = Open();
    {
      std::vector<std::jthread> readers;
      for (std::uint64_t r = 0; r < kThreads; ++r) {
        readers.emplace_back([&, begin = r * kPart] {
          const std::uint64_t end = begin + kPart < kSize - kThreads ? begin + kPart : kSize;
          for (std::uint64_t at = begin; at < end; at += 50'000) {
            ExpectReads(*file, at, std::min<std::uint64_t>(50'000, end - at));
          }
        });
      }
    }
    ASSERT_EQ(counting_.bytes_read() - before, kSize);
  }
}

// All of them, not only the one that reads.
TEST_F(CheckedStorageTest, TellsEveryThreadThatWaitsOfTheDamage) {
  Flip(7, 3);
  const auto file = Open();
  std::atomic<int> told = 0;
  {
    std::vector<std::jthread> readers;
    for (std::uint64_t r = 0; r < 8; ++r) {
      readers.emplace_back([&, r] {
        Bytes out(1);
        if (file->ReadAt(r * 100, out).kind() == ErrorKind::kChecksum) ++told;
      });
    }
  }
  EXPECT_EQ(told, 8);
}

// What was read once and has made room for others is read again as far as it is asked for.
TEST_F(CheckedStorageTest, KeepsSoManyBlocksAndNoMore) {
  constexpr std::uint64_t kBlocks = SharedBlocks::kMaxBlocks + 1;
  Fill(kBlocks * kBlock);
  const auto file = Open();
  for (std::uint64_t block = 0; block < kBlocks; ++block) ExpectReads(*file, block * kBlock, 10);
  EXPECT_EQ(counting_.bytes_read(), kBlocks * kBlock);
  for (std::uint64_t block = 1; block < kBlocks; ++block) {
    ExpectReads(*file, block * kBlock + 10, 10);
  }
  EXPECT_EQ(counting_.bytes_read(), kBlocks * kBlock);
  ExpectReads(*file, 10, 10);
  EXPECT_EQ(counting_.bytes_read(), kBlocks * kBlock + 10);
}

// Whoever reads a file front to back needs room for few blocks.
TEST_F(CheckedStorageTest, KeepsFewOfTheBlocksThatWereTakenWhole) {
  constexpr std::uint64_t kBlocks = SharedBlocks::kFewBlocks + 1;
  Fill(kBlocks * kBlock);
  const auto file = Open();
  for (std::uint64_t at = 0; at < kBlocks * kBlock; at += kBlock / 2) {
    ExpectReads(*file, at, kBlock / 2);
  }
  ExpectReads(*file, (kBlocks - 1) * kBlock + 10, 10);
  EXPECT_EQ(counting_.bytes_read(), kBlocks * kBlock);
  ExpectReads(*file, 10, 10);
  EXPECT_EQ(counting_.bytes_read(), kBlocks * kBlock + 10);
}

// What was checked was another file.
TEST_F(CheckedStorageTest, ChecksAFileAgainThatWasReplaced) {
  const auto storage = MakeCheckedStorage(*disk_, "/ck/", manifest_);
  const auto before = storage->Open("/ck/sub/data");
  ASSERT_THAT(before, IsOk());
  ExpectReads(**before, 0, kSize);
  ASSERT_THAT(disk_->RemoveAll("/ck/sub/data"), IsOk());
  ASSERT_THAT(WriteSmallFile(*disk_, "/ck/sub/data", Bytes(kSize)), IsOk());
  const auto after = storage->Open("/ck/sub/data");
  ASSERT_THAT(after, IsOk());
  Bytes out(1);
  EXPECT_THAT((*after)->ReadAt(0, out), FailsWith(ErrorKind::kChecksum));
  ExpectReads(**before, 0, kSize);
}

// A block holds many tensors: the one that was asked for need not be the damaged one.
TEST_F(CheckedStorageTest, NamesTheTensorThatHoldsTheFlippedBit) {
  IndexBuilder builder;
  const FileId data = builder.AddFile("sub/data");
  const EncodingId raw = builder.AddEncoding("raw");
  for (const auto& [key, offset] : {std::pair("first", 100), std::pair("second", 200)}) {
    builder.AddTensor(key, DType::kUint8, {100});
    builder.AddChunk(Box{{0}, {100}}, data, raw, static_cast<std::uint64_t>(offset), 100);
  }
  Result<CheckpointIndex> built = builder.Build();
  ASSERT_THAT(built, IsOk());
  auto known = std::make_shared<const CheckpointIndex>(*std::move(built));
  const auto index = std::make_shared<LateIndex>();
  Flip(250, 3);
  Bytes out(10);
  const auto read = [&] {
    auto file = MakeCheckedStorage(*disk_, "/ck", manifest_, index)->Open("/ck/sub/data");
    EXPECT_THAT(file, IsOk());
    return (*file)->ReadAt(110, out);
  };
  EXPECT_EQ(read().first().tensor, "");  // while the metadata are read
  index->Set(known);
  const Status damaged = read();
  ASSERT_THAT(damaged, FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(damaged.first().tensor, "second");
  ASSERT_THAT(disk_->RemoveAll("/ck/sub/data"), IsOk());
  ASSERT_THAT(WriteSmallFile(*disk_, "/ck/sub/data", content_), IsOk());
  Flip(10, 3);  // of no tensor
  EXPECT_EQ(read().first().tensor, "");
}

// A file may be read for longer than the checkpoint is open.
TEST_F(CheckedStorageTest, NamesNothingWhereTheIndexIsGone) {
  IndexBuilder builder;
  builder.AddTensor("all", DType::kUint8, {200});
  builder.AddChunk(Box{{0}, {200}}, builder.AddFile("sub/data"), builder.AddEncoding("raw"), 0,
                   200);
  Result<CheckpointIndex> built = builder.Build();
  ASSERT_THAT(built, IsOk());
  auto known = std::make_shared<const CheckpointIndex>(*std::move(built));
  const auto index = std::make_shared<LateIndex>();
  index->Set(known);
  Flip(50, 3);
  const auto file = MakeCheckedStorage(*disk_, "/ck", manifest_, index)->Open("/ck/sub/data");
  ASSERT_THAT(file, IsOk());
  Bytes out(10);
  EXPECT_EQ((*file)->ReadAt(50, out).first().tensor, "all");
  known.reset();
  const Status damaged = (*file)->ReadAt(50, out);
  ASSERT_THAT(damaged, FailsWith(ErrorKind::kChecksum));
  EXPECT_EQ(damaged.first().tensor, "");
}

TEST_F(CheckedStorageTest, RefusesAFileOfAnotherSize) {
  const auto resize = [&](std::uint64_t size_bytes) {
    auto file = disk_->OpenForUpdate("/ck/sub/data");
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT((*file)->Resize(size_bytes), IsOk());
  };
  const auto storage = MakeCheckedStorage(*disk_, "/ck", manifest_);
  resize(kSize - 1);
  EXPECT_THAT(storage->Open("/ck/sub/data"), FailsWith(ErrorKind::kTruncated));
  resize(kSize + 1);
  const auto longer = storage->Open("/ck/sub/data");
  ASSERT_THAT(longer, FailsWith(ErrorKind::kSizeMismatch));
  EXPECT_THAT(longer.status().ToString(), HasSubstr("/ck/sub/data"));
}

// What cannot be read is not a damage.
TEST_F(CheckedStorageTest, HandsErrorsOfReadingOn) {
  const auto file = Open();
  ExpectReads(*file, 0, kBlock);
  counting_.FailReads();
  for (const auto& [offset, length] :
       {std::pair(kBlock, kBlock), {kBlock + 1, 1ULL}, {0ULL, kBlock}, {0ULL, 1ULL}}) {
    Bytes out(length);
    EXPECT_THAT(file->ReadAt(offset, out), FailsWith(ErrorKind::kIo)) << offset << " +" << length;
  }
  EXPECT_THAT(file->View(), FailsWith(ErrorKind::kIo));
}

TEST_F(CheckedStorageTest, RefusesToReadPastTheEnd) {
  Bytes out(2);
  EXPECT_THAT(Open()->ReadAt(kSize - 1, out), FailsWith(ErrorKind::kTruncated));
  EXPECT_THAT(Open()->ReadAt(~std::uint64_t{0}, out), FailsWith(ErrorKind::kTruncated));
}

TEST_F(CheckedStorageTest, LeavesOtherFilesAlone) {
  ASSERT_THAT(WriteSmallFile(*disk_, "/ck/other", AsBytes("abc")), IsOk());
  ASSERT_THAT(disk_->MakeDirectories("/elsewhere/sub"), IsOk());
  ASSERT_THAT(WriteSmallFile(*disk_, "/elsewhere/sub/data", AsBytes("abc")), IsOk());
  const auto storage = MakeCheckedStorage(*disk_, "/ck", manifest_);
  for (const char* path : {"/ck/other", "/elsewhere/sub/data"}) {
    const auto text = ReadSmallFile(*storage, path, 10);
    ASSERT_THAT(text, IsOk());
    EXPECT_EQ(*text, "abc");
  }
  // Whoever writes does so as before.
  ASSERT_THAT(WriteSmallFile(*storage, "/ck/new", AsBytes("d")), IsOk());
  EXPECT_THAT(storage->Open("/ck/new"), IsOk());
}

TEST_F(CheckedStorageTest, OutlivesItsStorage) {
  Flip(5, 5);
  const auto file = Open();  // whose storage is gone
  ExpectReads(*file, kBlock, kBlock);
  Bytes out(1);
  EXPECT_THAT(file->ReadAt(0, out), FailsWith(ErrorKind::kChecksum));
}

TEST_F(CheckedStorageTest, MayBeReadByManyAtOnce) {
  const auto file = Open();
  std::vector<std::jthread> readers;
  for (unsigned seed = 0; seed < 4; ++seed) {
    readers.emplace_back([&, seed] {
      std::mt19937_64 rng(seed);
      for (int read = 0; read < 50; ++read) {
        const std::uint64_t offset = rng() % kSize;
        ExpectReads(*file, offset, std::min<std::uint64_t>(rng() % 5000, kSize - offset));
      }
    });
  }
}

}  // namespace
}  // namespace ckpt
