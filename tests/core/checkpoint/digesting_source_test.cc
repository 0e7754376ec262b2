#include "core/checkpoint/digesting_source.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/read.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::IsOk;

constexpr std::int64_t kRows = 6;
constexpr std::int64_t kCols = 50;

// Tensor 0 lies in one chunk, tensor 1 in two. Nobody asks for the digest of tensor 2.
class DigestingSourceTest : public ::testing::Test {
 protected:
  DigestingSourceTest() {
    Bytes content;
    for (int i = 0; i < 3 * kRows * kCols; ++i) content.push_back(static_cast<std::byte>(i * 7));
    IndexBuilder builder;
    const FileId file = builder.AddFile("f");
    const EncodingId raw = builder.AddEncoding("raw");
    std::uint64_t at = 0;
    for (const std::int64_t chunks : {1, 2, 1}) {
      builder.AddTensor("t" + std::to_string(at), DType::kUint8, {kRows, kCols});
      const std::int64_t rows = kRows / chunks;
      for (std::int64_t c = 0; c < chunks; ++c) {
        const auto bytes = static_cast<std::uint64_t>(rows * kCols);
        builder.AddChunk({.offsets = {c * rows, 0}, .sizes = {rows, kCols}}, file, raw, at, bytes);
        at += bytes;
      }
    }
    behind_ = MakePartialSource(builder.Build().value(), {MakeMemoryFile("f", std::move(content))})
                  .value();
    constexpr std::uint32_t kAsked[] = {0, 1};
    source_.emplace(*behind_, kAsked, HashAlgorithm::kXxh3);
  }

  // Rows [begin, end) of a tensor, by a reader of their own.
  void Read(std::uint32_t tensor, std::int64_t begin, std::int64_t end) {
    const Box box = {.offsets = {begin, 0}, .sizes = {end - begin, kCols}};
    Bytes rows(static_cast<std::size_t>((end - begin) * kCols));
    Bytes expected(rows.size());
    const auto read = [&](const CheckpointSource& source, Bytes& out) {
      return ReadBox(source, source.index().tensors()[tensor], box, out, 1 << 20);
    };
    ASSERT_THAT(read(*source_, rows), IsOk());
    ASSERT_THAT(read(*behind_, expected), IsOk());
    EXPECT_EQ(rows, expected);
  }
  [[nodiscard]] std::string DigestBehind(std::uint32_t tensor) const {
    return DigestTensor(*behind_, behind_->index().tensors()[tensor], HashAlgorithm::kXxh3, 1 << 20)
        .value();
  }

  std::unique_ptr<CheckpointSource> behind_;
  std::optional<DigestingSource> source_;
};

TEST_F(DigestingSourceTest, DigestsWhatSeveralReadersReadInOrder) {
  Read(0, 0, 2);
  Read(0, 2, 5);
  EXPECT_FALSE(source_->Digest(0));
  Read(0, 5, 6);
  ASSERT_TRUE(source_->Digest(0));
  EXPECT_EQ(*source_->Digest(0), DigestBehind(0));
}

// A reader may have been given other bytes the second time.
TEST_F(DigestingSourceTest, CountsWhatIsReadTwiceOnce) {
  Read(0, 0, 4);
  Read(0, 3, 6);
  ASSERT_TRUE(source_->Digest(0));
  EXPECT_EQ(*source_->Digest(0), DigestBehind(0));
}

TEST_F(DigestingSourceTest, SaysThatBytesWereReadAgainAfterAll) {
  Read(0, 0, 6);
  Read(0, 0, 1);
  EXPECT_EQ(*source_->Digest(0), DigestBehind(0));
}

TEST_F(DigestingSourceTest, HasNoDigestOfWhatIsReadInAnotherOrder) {
  Read(0, 3, 6);
  Read(0, 0, 3);
  EXPECT_FALSE(source_->Digest(0));
  Read(0, 3, 6);
  EXPECT_TRUE(source_->Digest(0));  // the last rows once more, now behind the others
}

TEST_F(DigestingSourceTest, HasNoDigestOfSeveralChunksAndOfWhatNobodyAsked) {
  for (const std::uint32_t tensor : {1U, 2U}) {
    Read(tensor, 0, kRows);
    EXPECT_FALSE(source_->Digest(tensor));
  }
}

// Its elements are other bytes than those of the file.
TEST(DigestingSource, HasNoDigestOfBytesThatAreNotTheElements) {
  class Swapped final : public CheckpointSource {
   public:
    Swapped()
        : below_(MakeMemorySource(
                     {{.key = "t", .dtype = DType::kInt32, .shape = {1}, .values = Bytes(4)}})
                     .value()) {}
    [[nodiscard]] const CheckpointIndex& index() const override { return below_->index(); }
    Result<StoredArray> Locate(const GlobalTensor& tensor, const Chunk& chunk) const override {
      CKPT_ASSIGN_OR_RETURN(StoredArray array, below_->Locate(tensor, chunk));
      array.byte_swapped = true;
      return array;
    }
    Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
      return below_->ReadObject(object);
    }
    Result<std::uint64_t> FileSize(FileId file) const override { return below_->FileSize(file); }
    [[nodiscard]] Protection protection() const override { return below_->protection(); }

   private:
    std::unique_ptr<CheckpointSource> below_;
  };
  const Swapped below;
  constexpr std::uint32_t kAsked[] = {0};
  const DigestingSource source(below, kAsked, HashAlgorithm::kXxh3);
  Bytes out(4);
  const GlobalTensor& tensor = source.index().tensors().front();
  ASSERT_THAT(ReadBox(source, tensor, WholeBox(tensor.shape), out, 1 << 20), IsOk());
  EXPECT_FALSE(source.Digest(0));
}

}  // namespace
}  // namespace ckpt
