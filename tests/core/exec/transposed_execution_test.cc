// Matrices that lie transposed in one tensor of the source: by how many threads they are written,
// and in which order.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>

#include "core/base/units.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/digesting_source.h"
#include "core/checkpoint/memory_source.h"
#include "core/exec/executor.h"
#include "core/io/memory_storage.h"
#include "core/layout/affine.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::IsOk;

constexpr std::int64_t kMatrices = 6;
constexpr std::int64_t kMatrixRows = 1000;
constexpr std::int64_t kMatrixCols = 1200;
constexpr std::uint64_t kMatrixBytes = kMatrixRows * kMatrixCols * sizeof(std::uint16_t);

// A file whose first bytes come late: what others read meanwhile comes before them.
class LateFile final : public ReadableFile {
 public:
  explicit LateFile(Bytes content) : behind_(MakeMemoryFile("late", std::move(content))) {}
  [[nodiscard]] std::uint64_t size_bytes() const override { return behind_->size_bytes(); }
  [[nodiscard]] const std::string& name() const override { return behind_->name(); }
  Status ReadAt(std::uint64_t offset, MutableByteSpan out) const override {
    if (offset == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return behind_->ReadAt(offset, out);
  }
  Result<std::unique_ptr<FileView>> View() const override { return behind_->View(); }

 private:
  const std::shared_ptr<const ReadableFile> behind_;
};

class TransposedExecutionTest : public ::testing::Test {
 protected:
  TransposedExecutionTest() {
    std::mt19937_64 rng(3);
    Bytes stacked(kMatrices * kMatrixBytes);
    for (std::byte& byte : stacked) byte = static_cast<std::byte>(rng());
    const Dims shape = {kMatrices, kMatrixRows, kMatrixCols};
    IndexBuilder builder;
    builder.AddTensor("stacked", DType::kBfloat16, shape);
    builder.AddChunk(WholeBox(shape), builder.AddFile("late"), builder.AddEncoding("raw"), 0,
                     stacked.size());
    source_ =
        MakePartialSource(builder.Build().value(), {std::make_shared<LateFile>(std::move(stacked))})
            .value();
    for (std::uint32_t m = 0; m < kMatrices; ++m) {
      plan_.write.tensors.push_back({.key = "m" + std::to_string(m),
                                     .dtype = DType::kBfloat16,
                                     .shape = {kMatrixCols, kMatrixRows}});
      plan_.recipes.push_back(
          {.nests =
               {{0, {0, 0}, {m, 0, 0}, {{kMatrixCols, 0, 1, 2, 1}, {kMatrixRows, 1, 1, 1, 1}}}},
           .source_dtype = DType::kBfloat16});
      plan_.write.items.push_back({.tensor = m,
                                   .box = WholeBox(Dims{kMatrixCols, kMatrixRows}),
                                   .offset_bytes = m * kMatrixBytes,
                                   .payload_offset = m * kMatrixBytes,
                                   .payload_bytes = kMatrixBytes,
                                   .size_bytes = kMatrixBytes});
    }
    plan_.write.files = {{.name = "data", .size_bytes = kMatrices * kMatrixBytes}};
  }

  // Of one run: how often each byte of the source was read, and the digest that it saw.
  std::pair<double, std::optional<std::string>> Run(int threads, std::uint64_t budget) {
    const auto storage = MakeMemoryStorage();
    EXPECT_THAT(storage->MakeDirectories("/to"), IsOk());
    constexpr std::uint32_t kAsked[] = {0};
    const DigestingSource source(*source_, kAsked, HashAlgorithm::kXxh3);
    const auto result =
        Execute(plan_, source, *storage, "/to",
                {.memory_budget_bytes = budget, .threads = threads, .read_in_order = {0}});
    EXPECT_THAT(result, IsOk());
    if (!result.ok()) return {};
    return {static_cast<double>(result->bytes_read) / (kMatrices * kMatrixBytes), source.Digest(0)};
  }

  ConversionPlan plan_;
  std::unique_ptr<CheckpointSource> source_;
};

TEST_F(TransposedExecutionTest, ThreadsReadTheMatricesOfOneTensorInOrder) {
  const std::string expected =
      DigestTensor(*source_, source_->index().tensors()[0], HashAlgorithm::kXxh3, kMiB).value();
  for (const int threads : {1, 8}) {
    const auto [times, digest] = Run(threads, kGiB);
    EXPECT_EQ(times, 1.0) << threads;
    ASSERT_TRUE(digest) << threads;
    EXPECT_EQ(*digest, expected);
  }
}

// A sixteenth of 16 MiB holds no matrix, one half does.
TEST_F(TransposedExecutionTest, FewerThreadsShareABudgetThatIsTooSmallForAll) {
  const auto [times, digest] = Run(8, 16 * kMiB);
  EXPECT_EQ(times, 1.0);
  EXPECT_TRUE(digest);
}

TEST_F(TransposedExecutionTest, OneThreadReadsSeveralTimesWhatNoBudgetHolds) {
  const auto [times, digest] = Run(8, 2 * kMiB);
  EXPECT_GT(times, 1.0);
  EXPECT_LT(times, 7.0);
}

}  // namespace
}  // namespace ckpt
