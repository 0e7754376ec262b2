// Plans of several writers: what they store together is read as one checkpoint.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/checkpoint/memory_source.h"
#include "core/checkpoint/read.h"
#include "core/checkpoint/validate.h"
#include "core/exec/executor.h"
#include "core/io/memory_storage.h"
#include "core/layout/affine.h"
#include "core/plan/plan_check.h"
#include "formats/dcp/source.h"
#include "formats/dcp/writer.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using ::testing::ElementsAre;
using testing::IsOk;

// A vector, a matrix and a scalar of random bits.
std::vector<MemoryTensor> Tensors() {
  std::mt19937_64 rng(5);
  std::vector<MemoryTensor> tensors;
  for (const auto& [key, shape] : {std::pair("matrix", Dims{9, 4}), std::pair("scalar", Dims{}),
                                   std::pair("vector", Dims{7})}) {
    tensors.push_back({.key = key, .dtype = DType::kInt32, .shape = shape, .values = {}});
  }
  for (MemoryTensor& tensor : tensors) {
    tensor.values.resize(static_cast<std::size_t>(NumElements(tensor.shape)) * 4);
    std::ranges::generate(tensor.values, [&] { return static_cast<std::byte>(rng()); });
  }
  return tensors;
}

dcp::PlacedRows Rows(const Dims& shape, std::int64_t begin, std::int64_t end,
                     std::uint32_t writer) {
  Box box = WholeBox(shape);
  box.offsets.front() = begin;
  box.sizes.front() = end - begin;
  return {.box = box, .writer = writer};
}

class PlacedWritersTest : public ::testing::Test {
 protected:
  PlacedWritersTest() {
    for (const MemoryTensor& tensor : tensors_) {
      targets_.push_back({.key = tensor.key, .dtype = tensor.dtype, .shape = tensor.shape});
    }
    const ByteSpan none = AsBytes("\x80\x02N.");  // None, pickled
    options_.objects = {{.key = "object", .value = {Bytes(none.begin(), none.end())}}};
  }

  // Executes a plan into `directory`, and reads it back.
  void ExpectReadsBack(const WritePlan& write, const Path& directory) {
    ConversionPlan plan;
    plan.write = write;
    for (std::uint32_t t = 0; t < targets_.size(); ++t) {
      plan.recipes.push_back(
          {.nests = {layout::IdentityNest(t, targets_[t].shape)}, .source_dtype = DType::kInt32});
    }
    const auto source = MakeMemorySource(tensors_);
    ASSERT_THAT(source, IsOk());
    ASSERT_THAT(CheckPlan(plan, (*source)->index()), IsOk());
    ASSERT_THAT(storage_->MakeDirectories(directory), IsOk());
    ASSERT_THAT(Execute(plan, **source, *storage_, directory, {}), IsOk());
    const auto stored = dcp::Source::Open(*storage_, directory);
    ASSERT_THAT(stored, IsOk());
    EXPECT_THAT(ValidateIndex(**stored), ::testing::IsEmpty());
    for (const MemoryTensor& tensor : tensors_) {
      const GlobalTensor* const read = (*stored)->index().FindTensor(tensor.key);
      ASSERT_NE(read, nullptr);
      Gatherer gatherer(1 << 20);
      LocatedChunks chunks(**stored, 1 << 20);
      TensorReader reader(*read, gatherer, chunks);
      Bytes values(tensor.values.size());
      ASSERT_THAT(reader.Read(WholeBox(tensor.shape), values), IsOk());
      EXPECT_TRUE(values == tensor.values) << tensor.key;
    }
    EXPECT_NE((*stored)->index().FindObject("object"), nullptr);
  }

  static std::vector<std::string> Names(const WritePlan& plan) {
    std::vector<std::string> names;
    for (const WriteFile& file : plan.files) names.push_back(file.name);
    return names;
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  std::vector<MemoryTensor> tensors_ = Tensors();
  std::vector<TargetTensor> targets_;
  dcp::WriterOptions options_;
};

TEST_F(PlacedWritersTest, StoreTheirRowsInFilesOfTheirOwn) {
  options_.placed = {{Rows({9, 4}, 0, 2, 2), Rows({9, 4}, 2, 3, 0), Rows({9, 4}, 3, 9, 5)},
                     {{.box = {}, .writer = 2}},
                     {Rows({7}, 0, 7, 5)}};
  const auto plan = dcp::PlanDcp(targets_, options_);
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(Names(*plan),
              ElementsAre("__0_0.distcp", "__2_0.distcp", "__5_0.distcp", ".metadata"));
  ASSERT_EQ(plan->items.size(), 5U);
  std::vector<std::string> of_item;
  for (const WriteItem& item : plan->items) of_item.push_back(plan->files[item.file].name);
  EXPECT_THAT(of_item, ElementsAre("__2_0.distcp", "__0_0.distcp", "__5_0.distcp", "__2_0.distcp",
                                   "__5_0.distcp"));
  ExpectReadsBack(*plan, "/several");
}

TEST_F(PlacedWritersTest, LeaveOutAWriterThatStoresNothingButNotItsObjects) {
  options_.placed = {{Rows({9, 4}, 0, 9, 1)}, {{.box = {}, .writer = 1}}, {Rows({7}, 0, 7, 1)}};
  const auto plan = dcp::PlanDcp(targets_, options_);
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(Names(*plan), ElementsAre("__0_0.distcp", "__1_0.distcp", ".metadata"));
  ExpectReadsBack(*plan, "/one");
}

// Placing everything with the one writer is what not placing it is.
TEST_F(PlacedWritersTest, GiveTheSamePlanForOneWriterAsWithout) {
  const auto without = dcp::PlanDcp(targets_, options_);
  ASSERT_THAT(without, IsOk());
  for (const TargetTensor& target : targets_) {
    options_.placed.push_back({{.box = WholeBox(target.shape), .writer = 0}});
  }
  const auto with = dcp::PlanDcp(targets_, options_);
  ASSERT_THAT(with, IsOk());
  EXPECT_EQ(Names(*with), Names(*without));
  ASSERT_EQ(with->items.size(), without->items.size());
  for (std::size_t i = 0; i < with->items.size(); ++i) {
    EXPECT_EQ(with->items[i].box, without->items[i].box);
    EXPECT_EQ(with->items[i].offset_bytes, without->items[i].offset_bytes);
  }
  ASSERT_EQ(with->literals.size(), without->literals.size());
  for (std::size_t l = 0; l < with->literals.size(); ++l) {
    EXPECT_TRUE(with->literals[l].bytes == without->literals[l].bytes);
  }
}

// A writer whose file is full opens another.
TEST_F(PlacedWritersTest, OpenAnotherFileEachWhenOneIsFull) {
  options_.max_file_bytes = 256;
  options_.placed = {{}, {{.box = {}, .writer = 1}}, {Rows({7}, 0, 7, 1)}};
  for (std::int64_t row = 0; row < 9; ++row) {
    options_.placed[0].push_back(Rows({9, 4}, row, row + 1, static_cast<std::uint32_t>(row % 2)));
  }
  const auto plan = dcp::PlanDcp(targets_, options_);
  ASSERT_THAT(plan, IsOk());
  const std::vector<std::string> names = Names(*plan);
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  EXPECT_THAT(names, ::testing::Contains("__0_1.distcp"));
  EXPECT_THAT(names, ::testing::Contains("__1_1.distcp"));
  ExpectReadsBack(*plan, "/full");
}

}  // namespace
}  // namespace ckpt
