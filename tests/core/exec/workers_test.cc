#include "core/exec/workers.h"

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/checkpoint/memory_source.h"
#include "core/exec/executor.h"
#include "core/exec/worker_tensors.h"
#include "core/io/memory_storage.h"
#include "core/layout/affine.h"
#include "core/plan/plan_check.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;

TEST(WorkerIdTest, IsANumberBelowACount) {
  EXPECT_THAT(ParseWorkerId("0/1"), IsOkAndHolds(WorkerId{.number = 0, .count = 1}));
  EXPECT_THAT(ParseWorkerId("7/8"), IsOkAndHolds(WorkerId{.number = 7, .count = 8}));
  for (const char* text : {"", "/", "1", "1/", "/2", "8/8", "-1/8", "1/-8", "1/8x", "x1/8", "1/8/9",
                           "0/0", "1/99999999999999999999", "0/65537"}) {
    EXPECT_THAT(ParseWorkerId(text), FailsWith(ErrorKind::kUsage)) << text;
  }
}

// Tensors of several sizes, two of them without elements, in two files; the checksums of their
// bytes are written last.
class WorkersTest : public ::testing::Test {
 protected:
  WorkersTest() {
    EXPECT_THAT(storage_->MakeDirectories(kStaging), IsOk());
    plan_.write.files = {{.name = "a"}, {.name = "b/c"}};
    std::vector<MemoryTensor> tensors;
    for (std::uint32_t t = 0; t < 12; ++t) {
      const Dims shape = {t % 5 == 4 ? 0 : t + 1, 3};
      MemoryTensor tensor = {.key = KeyOf(t), .dtype = DType::kUint8, .shape = shape, .values = {}};
      const std::uint64_t bytes = NumBytes(shape, DType::kUint8);
      for (std::uint64_t i = 0; i < bytes; ++i) {
        tensor.values.push_back(static_cast<std::byte>(t * 16 + i));
      }
      tensors.push_back(std::move(tensor));
      plan_.write.tensors.push_back({.key = KeyOf(t), .dtype = DType::kUint8, .shape = shape});
      plan_.recipes.push_back({.nests = {}, .source_dtype = DType::kUint8});
      if (bytes != 0) plan_.recipes.back().nests = {layout::IdentityNest(t, shape)};
      auto& file = plan_.write.files[t % 2];
      plan_.write.items.push_back({.tensor = t,
                                   .file = t % 2,
                                   .box = WholeBox(shape),
                                   .offset_bytes = file.size_bytes,
                                   .payload_offset = file.size_bytes,
                                   .payload_bytes = bytes,
                                   .size_bytes = bytes});
      file.size_bytes += bytes;
    }
    const std::uint64_t index_at = plan_.write.files[0].size_bytes;
    plan_.write.files[0].size_bytes += 4 * plan_.write.items.size();
    const auto encode = [index_at](const WritePlan&, std::span<const WrittenItem> written) {
      WriteLiteral sums{.file = 0, .offset_bytes = index_at, .bytes = {}};
      for (const WrittenItem& item : written) {
        for (int i = 0; i < 4; ++i) {
          sums.bytes.push_back(static_cast<std::byte>(item.payload_crc32 >> (8 * i)));
        }
      }
      return std::vector<WriteLiteral>{std::move(sums)};
    };
    plan_.write.late_bytes = {.files = {0}, .uses_crc32 = true, .encode = encode};
    plan_.source_identity = "source";
    source_ = MakeMemorySource(std::move(tensors)).value();
    EXPECT_THAT(CheckPlan(plan_, source_->index()), IsOk());
  }

  Status RunWorker(const WorkerId& worker, const ConversionPlan& plan) {
    CKPT_ASSIGN_OR_RETURN(const WorkerPlace place,
                          EnterAsWorker(*storage_, kStaging, worker, plan));
    return Execute(plan, *source_, *storage_, kStaging,
                   {.worker = WorkerPart{.tensors = TensorsOf(plan.write, worker),
                                         .journal = place.journal}})
        .status();
  }
  Status RunWorker(std::int64_t number, std::int64_t count) {
    return RunWorker({.number = number, .count = count}, plan_);
  }
  Status Merge() { return MergeWorkers(*storage_, kStaging, plan_); }

  std::string Content(const Path& directory, const std::string& name) {
    return ReadSmallFile(*storage_, directory / name, 1 << 20).value();
  }

  // In the order of their bytes, as a source has them.
  static std::string KeyOf(std::uint32_t tensor) { return {static_cast<char>('a' + tensor)}; }

  static constexpr char kStaging[] = "/out.partial";
  ConversionPlan plan_;
  std::unique_ptr<CheckpointSource> source_;
  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(WorkersTest, EveryTensorBelongsToOneWorker) {
  for (const std::int64_t count : {1, 2, 3, 7, 12, 100}) {
    std::vector<int> owners(plan_.write.tensors.size());
    for (std::int64_t number = 0; number < count; ++number) {
      const std::vector<bool> own = TensorsOf(plan_.write, {.number = number, .count = count});
      for (std::size_t t = 0; t < own.size(); ++t) owners[t] += own[t] ? 1 : 0;
    }
    EXPECT_THAT(owners, ::testing::Each(1)) << count;
  }
}

// Bytes of the tensors in order, and of each worker's.
struct Division {
  std::vector<std::uint64_t> tensors;
  std::vector<std::uint64_t> workers;
};

TEST(WorkerSharesTest, TheWorkerWithTheMostBytesHasAsFewAsCanBe) {
  const std::vector<Division> divisions = {
      {{340, 660}, {340, 660}},  // the larger one begins in the first half
      {{100, 100, 100, 700, 100, 100}, {300, 700, 200}},
      {{10, 10, 10, 10}, {20, 10, 10}},
      {{1000, 1, 1}, {1000, 1, 1}},
      {{5, 5}, {5, 5, 0}},
      {{0, 0, 0, 90}, {0, 0, 90}},
      {{}, {0, 0}}};
  for (const Division& division : divisions) {
    WritePlan plan;
    for (std::size_t t = 0; t < division.tensors.size(); ++t) {
      plan.tensors.emplace_back();
      WriteItem& item = plan.items.emplace_back();
      item.tensor = static_cast<std::uint32_t>(t);
      item.payload_bytes = division.tensors[t];
    }
    std::vector<std::uint64_t> workers;
    for (std::size_t number = 0; number < division.workers.size(); ++number) {
      const std::vector<bool> own =
          TensorsOf(plan, {.number = static_cast<std::int64_t>(number),
                           .count = static_cast<std::int64_t>(division.workers.size())});
      workers.push_back(0);
      for (std::size_t t = 0; t < own.size(); ++t) {
        if (own[t]) workers.back() += division.tensors[t];
      }
    }
    EXPECT_EQ(workers, division.workers);
  }
}

TEST_F(WorkersTest, ACompressedFileBelongsToOneWorker) {
  WritePlan plan = plan_.write;
  EXPECT_EQ(CountShares(plan), plan.tensors.size());
  plan.compression.emplace();
  EXPECT_EQ(CountShares(plan), 1U) << "the tensors lie in both files in turn";
  for (WriteItem& item : plan.items) item.file = item.tensor / 4;
  plan.files.resize(3);
  EXPECT_EQ(CountShares(plan), 3U);
  // A tensor of two items in one file.
  plan.items.insert(plan.items.begin() + 4, plan.items[4]);
  EXPECT_EQ(CountShares(plan), 3U);
  for (const std::int64_t count : {1, 2, 3}) {
    std::vector<std::int64_t> owner(plan.tensors.size(), -1);
    for (std::int64_t number = 0; number < count; ++number) {
      const std::vector<bool> own = TensorsOf(plan, {.number = number, .count = count});
      for (std::size_t t = 0; t < own.size(); ++t) {
        if (own[t]) owner[t] = number;
      }
    }
    for (const WriteItem& item : plan.items) {
      EXPECT_GE(owner[item.tensor], 0) << count;
      EXPECT_EQ(owner[item.tensor], owner[std::size_t{4} * item.file]) << count;
    }
  }
  // One that lies in two files ties them together.
  plan.items.insert(plan.items.begin() + 4, plan.items[3]);
  plan.items[4].file = 1;
  EXPECT_EQ(CountShares(plan), 2U);
}

TEST_F(WorkersTest, TogetherTheyLeaveWhatOneRunWould) {
  ASSERT_THAT(storage_->MakeDirectories("/alone"), IsOk());
  const auto alone = Execute(plan_, *source_, *storage_, "/alone", {});
  ASSERT_THAT(alone, IsOk());
  for (const std::int64_t number : {2, 0, 3, 1}) ASSERT_THAT(RunWorker(number, 4), IsOk());
  ASSERT_THAT(Merge(), IsOk());
  const auto together = Execute(plan_, *source_, *storage_, kStaging, {.resume = true});
  ASSERT_THAT(together, IsOk());
  EXPECT_EQ(together->resumed_tensors, plan_.write.tensors.size());
  EXPECT_EQ(together->bytes_read, 0U);
  EXPECT_EQ(together->tensor_xxh3, alone->tensor_xxh3);
  EXPECT_EQ(together->files, alone->files);
  for (const auto& file : plan_.write.files) {
    EXPECT_EQ(Content(kStaging, file.name), Content("/alone", file.name));
  }
  ASSERT_THAT(storage_->RemoveAll(Path(kStaging) / kJournalName), IsOk());
  EXPECT_THAT(ListRecursively(*storage_, kStaging),
              IsOkAndHolds(::testing::ElementsAre("a", "b/c")));
}

TEST_F(WorkersTest, MissingOnesAreNamed) {
  EXPECT_THAT(Merge(), FailsWith(ErrorKind::kMissing));
  ASSERT_THAT(RunWorker(1, 4), IsOk());
  const Status status = Merge();
  EXPECT_THAT(status, FailsWith(ErrorKind::kMissing));
  EXPECT_EQ(status.first().actual, "no 0/4, 2/4, 3/4");
}

TEST_F(WorkersTest, OneThatStoppedIsNamedAndGoesOn) {
  ASSERT_THAT(RunWorker(0, 2), IsOk());
  ASSERT_THAT(RunWorker(1, 2), IsOk());
  const Path journal = Path(kStaging) / ".ckptkit-worker-1-of-2" / "journal";
  const auto size = storage_->Stat(journal);
  ASSERT_THAT(size, IsOk());
  auto file = storage_->OpenForUpdate(journal);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->Resize(size->size_bytes - 1), IsOk());
  const Status status = Merge();
  EXPECT_THAT(status, FailsWith(ErrorKind::kIncomplete));
  EXPECT_THAT(status.first().message, HasSubstr("worker 1/2"));
  EXPECT_THAT(RunWorker(1, 2), IsOk());
  EXPECT_THAT(Merge(), IsOk());
  EXPECT_THAT(Merge(), IsOk());  // after an interruption later on
}

TEST_F(WorkersTest, ADoubledOneIsRefused) {
  ASSERT_THAT(RunWorker(0, 2), IsOk());
  const Status finished = RunWorker(0, 2);
  EXPECT_THAT(finished, FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(finished.first().message, HasSubstr("worker 0/2 has finished"));
  const auto place = EnterAsWorker(*storage_, kStaging, {.number = 1, .count = 2}, plan_);
  ASSERT_THAT(place, IsOk());
  EXPECT_THAT(RunWorker(1, 2), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(Merge(), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(RunWorker(0, 3), FailsWith(ErrorKind::kAlreadyExists));
}

TEST_F(WorkersTest, FilesOfAnotherRunAreRefused) {
  ASSERT_THAT(WriteSmallFile(*storage_, Path(kStaging) / "a", AsBytes("x")), IsOk());
  EXPECT_THAT(RunWorker(0, 2), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_EQ(Content(kStaging, "a"), "x");
}

TEST_F(WorkersTest, OneOfAnotherPlanIsNamed) {
  ConversionPlan other = plan_;
  other.source_identity = "the source, changed";
  ASSERT_THAT(RunWorker(0, 2), IsOk());
  ASSERT_THAT(RunWorker({.number = 1, .count = 2}, other), IsOk());
  const Status status = Merge();
  EXPECT_THAT(status, FailsWith(ErrorKind::kValueMismatch));
  EXPECT_THAT(status.first().message, HasSubstr("worker 1/2"));
  EXPECT_THAT(RunWorker(1, 2), FailsWith(ErrorKind::kValueMismatch));
}

// It journals no checksums, which the other plan writes last.
TEST_F(WorkersTest, OneOfAPlanWithoutChecksumsIsNamed) {
  ConversionPlan other = plan_;
  other.write.late_bytes->uses_crc32 = false;
  ASSERT_THAT(RunWorker(0, 2), IsOk());
  ASSERT_THAT(RunWorker({.number = 1, .count = 2}, other), IsOk());
  EXPECT_THAT(Merge(), FailsWith(ErrorKind::kValueMismatch));
}

TEST_F(WorkersTest, WhatChangedOnTheDiskIsWrittenAgain) {
  for (const std::int64_t number : {0, 1}) ASSERT_THAT(RunWorker(number, 2), IsOk());
  ASSERT_THAT(Merge(), IsOk());
  auto file = storage_->OpenForUpdate(Path(kStaging) / "b/c");
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->WriteAt(0, Bytes(1, std::byte{0xEE})), IsOk());
  const auto executed = Execute(plan_, *source_, *storage_, kStaging, {.resume = true});
  ASSERT_THAT(executed, IsOk());
  EXPECT_EQ(executed->resumed_tensors, plan_.write.tensors.size() - 1);
  EXPECT_EQ(Content(kStaging, "b/c")[0], static_cast<char>(16));
}

}  // namespace
}  // namespace ckpt
