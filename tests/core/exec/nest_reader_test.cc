// Tensors of several dtypes read as one.
#include "core/exec/nest_reader.h"

#include <cstring>
#include <malloc.h>

#include <gmock/gmock.h>

#include "core/base/units.h"
#include "core/checkpoint/memory_source.h"
#include "core/layout/affine.h"
#include "core/tensor/blocks.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::IsOk;
using testing::IsOkAndHolds;

constexpr std::int64_t kRows = 1000;
constexpr std::int64_t kCols = 1000;

// Bytes that the allocator has handed out and not got back.
std::uint64_t UsedBytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

template <typename T>
Bytes Values(std::int64_t first, auto make) {
  Bytes bytes(static_cast<std::size_t>(kRows / 2 * kCols) * sizeof(T));
  for (std::int64_t i = 0; i < kRows / 2 * kCols; ++i) {
    const T value = make(first + i);
    std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

// Small whole numbers, which every dtype here holds.
float Value(std::int64_t i) { return static_cast<float>(i % 128); }

std::uint16_t AsBfloat16(std::int64_t i) {
  const float value = Value(i);
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  return static_cast<std::uint16_t>(bits >> 16);
}

// A file in memory that notes how much memory was used at most while it was read.
class WatchingFile final : public ReadableFile {
 public:
  explicit WatchingFile(Bytes content) : behind_(MakeMemoryFile("watched", std::move(content))) {}

  [[nodiscard]] std::uint64_t most_used_bytes() const { return most_used_bytes_; }

  [[nodiscard]] std::uint64_t size_bytes() const override { return behind_->size_bytes(); }
  [[nodiscard]] const std::string& name() const override { return behind_->name(); }
  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    most_used_bytes_ = std::max(most_used_bytes_, UsedBytes());
    return behind_->ReadAt(offset, out);
  }
  Result<std::unique_ptr<FileView>> View() const override { return behind_->View(); }

 private:
  const std::shared_ptr<const ReadableFile> behind_;
  mutable std::uint64_t most_used_bytes_ = 0;
};

// The upper rows are bfloat16, the lower ones float32.
class MixedTest : public ::testing::Test {
 protected:
  MixedTest() {
    const Dims half = {kRows / 2, kCols};
    IndexBuilder builder;
    std::vector<std::shared_ptr<const ReadableFile>> files = {upper_, lower_};
    for (const auto& [key, dtype] :
         {std::pair("upper", DType::kBfloat16), {"lower", DType::kFloat32}}) {
      builder.AddTensor(key, dtype, half);
      builder.AddChunk(WholeBox(half), builder.AddFile(key), builder.AddEncoding("raw"), 0,
                       NumBytes(half, dtype));
    }
    source_ = MakePartialSource(builder.Build().value(), std::move(files)).value();
    recipe_.source_dtype = DType::kFloat32;
    recipe_.nests = {layout::IdentityNest(Position("upper"), half),
                     layout::IdentityNest(Position("lower"), half)};
    recipe_.nests[1].target_origin[0] = kRows / 2;
  }
  [[nodiscard]] std::uint32_t Position(std::string_view key) const {
    const CheckpointIndex& index = source_->index();
    return static_cast<std::uint32_t>(index.FindTensor(key) - index.tensors().data());
  }

  std::shared_ptr<WatchingFile> upper_ =
      std::make_shared<WatchingFile>(Values<std::uint16_t>(0, &AsBfloat16));
  std::shared_ptr<WatchingFile> lower_ =
      std::make_shared<WatchingFile>(Values<float>(kRows / 2 * kCols, &Value));
  std::unique_ptr<CheckpointSource> source_;
  TensorRecipe recipe_;
};

// The box begins and ends within rows, and has some of both tensors.
TEST_F(MixedTest, EveryElementHasItsValueWhateverTheBudget) {
  const Box box{{kRows / 2 - 30, 3}, {60, kCols - 7}};
  for (const std::uint64_t budget : {std::uint64_t{1}, 64 * kKiB, 64 * kMiB}) {
    NestReader reader(*source_, budget);
    std::vector<float> out(static_cast<std::size_t>(NumElements(box.sizes)), -1.0F);
    ASSERT_THAT(reader.Read(recipe_, box, std::as_writable_bytes(std::span(out))), IsOk());
    std::size_t at = 0;
    for (std::int64_t row = 0; row < box.sizes[0]; ++row) {
      for (std::int64_t col = 0; col < box.sizes[1]; ++col, ++at) {
        const std::int64_t i = (box.offsets[0] + row) * kCols + box.offsets[1] + col;
        ASSERT_EQ(out[at], Value(i)) << row << ", " << col << " with " << budget;
      }
    }
  }
}

// Values of another dtype are held twice, as they are stored and as they are wanted.
TEST_F(MixedTest, WidensWithinTheBudget) {
  Bytes out(static_cast<std::size_t>(kRows * kCols) * sizeof(float));
  const std::uint64_t before = UsedBytes();
  NestReader reader(*source_, 512 * kKiB);
  ASSERT_THAT(reader.Read(recipe_, WholeBox(Dims{kRows, kCols}), out), IsOk());
  EXPECT_LE(UsedBytes() - before, 512 * kKiB);
  EXPECT_LE(upper_->most_used_bytes() - before, 512 * kKiB);
}

constexpr std::int64_t kExperts = 2;
constexpr std::int64_t kIn = 1000;
constexpr std::int64_t kOut = 600;
constexpr std::uint64_t kExpertBytes = kIn * 2 * kOut * sizeof(std::uint16_t);

// Matrices stored as they are multiplied, the columns of two of them by turns, and wanted
// transposed, one behind the other.
class TransposedTest : public ::testing::Test {
 protected:
  TransposedTest() {
    Bytes stored(kExperts * kExpertBytes);
    for (std::size_t i = 0; i < stored.size() / sizeof(std::uint16_t); ++i) {
      const auto value = static_cast<std::uint16_t>(i * 40503 >> 8);
      std::memcpy(stored.data() + i * sizeof value, &value, sizeof value);
    }
    stored_ = stored;
    file_ = std::make_shared<WatchingFile>(std::move(stored));
    const Dims shape = {kExperts, kIn, 2 * kOut};
    IndexBuilder builder;
    builder.AddTensor("gate_up", DType::kBfloat16, shape);
    builder.AddChunk(WholeBox(shape), builder.AddFile("f"), builder.AddEncoding("raw"), 0,
                     NumBytes(shape, DType::kBfloat16));
    source_ = MakePartialSource(builder.Build().value(), {file_}).value();
    recipe_.source_dtype = DType::kBfloat16;
    for (std::int64_t half = 0; half < 2; ++half) {
      recipe_.nests.push_back({0,
                               {0, half * kOut, 0},
                               {0, 0, half},
                               {{kExperts, 0, 1, 0, 1}, {kOut, 1, 1, 2, 2}, {kIn, 2, 1, 1, 1}}});
    }
  }
  [[nodiscard]] std::uint16_t Stored(std::int64_t expert, std::int64_t in, std::int64_t out) const {
    std::uint16_t value = 0;
    const std::int64_t at = (expert * kIn + in) * 2 * kOut + out % kOut * 2 + out / kOut;
    std::memcpy(&value, stored_.data() + static_cast<std::size_t>(at) * sizeof value, sizeof value);
    return value;
  }
  // Reads everything in windows of some rows and looks at each element. Returns how often each byte
  // of the file was read.
  double TimesRead(std::uint64_t budget) {
    const std::uint64_t before = UsedBytes();
    NestReader reader(*source_, budget);
    std::vector<std::uint16_t> out(7 * kIn);
    const Box whole = WholeBox(Dims{kExperts, 2 * kOut, kIn});
    EXPECT_THAT(
        ForEachBlock(whole, 7 * kIn,
                     [&](const Box& box) {
                       const std::span window(out.data(),
                                              static_cast<std::size_t>(NumElements(box.sizes)));
                       CKPT_ASSIGN_OR_RETURN(
                           const ByteSpan read,
                           reader.ReadInOrder(recipe_, whole, box, std::as_writable_bytes(window)));
                       if (read.data() != std::as_bytes(window).data()) {
                         std::ranges::copy(read, std::as_writable_bytes(window).begin());
                       }
                       for (std::int64_t row = 0; row < box.sizes[1]; ++row) {
                         for (std::int64_t in = 0; in < kIn; ++in) {
                           if (window[static_cast<std::size_t>(row * kIn + in)] !=
                               Stored(box.offsets[0], in, box.offsets[1] + row)) {
                             return Error(ErrorKind::kValueMismatch, FormatBox(box));
                           }
                         }
                       }
                       return OkStatus();
                     }),
        IsOk());
    EXPECT_LE(file_->most_used_bytes() - before, budget + out.size() * sizeof(std::uint16_t));
    return static_cast<double>(reader.bytes_read()) / (kExperts * kExpertBytes);
  }

  Bytes stored_;
  std::shared_ptr<WatchingFile> file_;
  std::unique_ptr<CheckpointSource> source_;
  TensorRecipe recipe_;
};

TEST_F(TransposedTest, ReadsEachByteOnceWhereAMatrixFitsTheBudget) {
  EXPECT_EQ(TimesRead(8 * kMiB), 1.0);   // a matrix at a time
  EXPECT_EQ(TimesRead(64 * kMiB), 1.0);  // all of them
}

// Half of 2 MiB holds 43 % of a matrix. Of three parts the second has columns of both, which are
// read one after the other.
TEST_F(TransposedTest, ReadsAsOftenAsPartsOfAMatrixFitTheBudget) {
  const double times = TimesRead(2 * kMiB);
  EXPECT_GT(times, 1.0);
  EXPECT_LE(times, 4.0);
}

TEST_F(TransposedTest, KnowsTheBudgetToReadEachByteOnce) {
  const Box whole = WholeBox(Dims{kExperts, 2 * kOut, kIn});
  const auto budget =
      NestReader::BudgetToReadOnce(*source_, recipe_, whole, FirstBlock(whole, 7 * kIn));
  ASSERT_THAT(budget, IsOk());
  EXPECT_EQ(TimesRead(*budget), 1.0);
  EXPECT_GT(TimesRead(*budget - *budget / 4), 1.0);
}

TEST_F(TransposedTest, KnowsThatAnyBudgetIsEnoughToReadInOrder) {
  const Dims shape = {kExperts, kIn, 2 * kOut};
  const TensorRecipe copy = {.nests = {layout::IdentityNest(0, shape)},
                             .source_dtype = DType::kBfloat16};
  const Box whole = WholeBox(shape);
  EXPECT_THAT(NestReader::BudgetToReadOnce(*source_, copy, whole, FirstBlock(whole, kIn)),
              IsOkAndHolds(0U));
}

TEST_F(TransposedTest, ReadsInOrderWithAlmostNoBudget) { EXPECT_GT(TimesRead(512 * kKiB), 3.0); }

}  // namespace
}  // namespace ckpt
