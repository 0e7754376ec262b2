// Tensors of several dtypes read as one.
#include "core/exec/nest_reader.h"

#include <cstring>
#include <malloc.h>

#include <gmock/gmock.h>

#include "core/base/units.h"
#include "core/checkpoint/memory_source.h"
#include "core/layout/affine.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::IsOk;

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

}  // namespace
}  // namespace ckpt
