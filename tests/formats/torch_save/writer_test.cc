#include "formats/torch_save/internal/writer.h"

#include <memory>
#include <vector>

#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/io/memory_storage.h"
#include "core/plan/plan_check.h"
#include "formats/torch_save/torch_save_source.h"
#include "formats/zip/reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_save {
namespace {

using testing::FailsWith;
using testing::IsOk;

std::vector<TargetTensor> Tensors() {
  return {{.key = "model.a", .dtype = DType::kBfloat16, .shape = {3, 5}},
          {.key = "model.b", .dtype = DType::kFloat8E4m3fn, .shape = {70'000}},
          {.key = "scalar", .dtype = DType::kInt64, .shape = {}},
          {.key = "nothing", .dtype = DType::kFloat32, .shape = {0, 4}},
          {.key = "ü.c", .dtype = DType::kUint16, .shape = {2, 1, 1, 3, 1}}};
}

Result<PlannedCheckpoint> Plan(std::vector<TargetTensor> tensors) {
  WeightsRequest request;
  request.tensors = std::move(tensors);
  request.file_name = "model.pt";
  return PlanStateDict(std::move(request));
}

// Elements of the item that are easy to compute again.
Bytes ElementsOf(std::size_t item, std::uint64_t size_bytes) {
  Bytes elements(size_bytes);
  for (std::size_t i = 0; i < size_bytes; ++i) {
    elements[i] = std::byte{static_cast<unsigned char>(i * 7 + item)};
  }
  return elements;
}

// The file of the plan, whose executor found these checksums.
Bytes FileOfPlan(const WritePlan& plan, bool right_checksums) {
  Bytes file(plan.files[0].size_bytes);
  std::vector<WrittenItem> written;
  for (std::size_t i = 0; i < plan.items.size(); ++i) {
    const WriteItem& item = plan.items[i];
    const Bytes elements = ElementsOf(i, item.payload_bytes);
    std::ranges::copy(elements, file.begin() + static_cast<std::ptrdiff_t>(item.payload_offset));
    const bool is_right = right_checksums || elements.empty();
    written.push_back({.extent = {item.offset_bytes, item.size_bytes},
                       .payload_crc32 = Crc32(elements) ^ (is_right ? 0U : 1U)});
  }
  for (const WriteLiteral& literal : plan.late_bytes->encode(plan, written)) {
    std::ranges::copy(literal.bytes,
                      file.begin() + static_cast<std::ptrdiff_t>(literal.offset_bytes));
  }
  return file;
}

TEST(StateDictPlanTest, IsAWholePlanWithAlignedStorages) {
  const auto planned = Plan(Tensors());
  ASSERT_THAT(planned, IsOk());
  EXPECT_THAT(CheckWritePlan(planned->plan), IsOk());
  for (const WriteItem& item : planned->plan.items) EXPECT_EQ(item.payload_offset % 64, 0U);
}

TEST(StateDictPlanTest, EveryRecordHasItsChecksum) {
  const auto planned = Plan(Tensors());
  ASSERT_THAT(planned, IsOk());
  const auto open = [&](bool right_checksums) {
    Bytes bytes = FileOfPlan(planned->plan, right_checksums);
    const std::uint64_t size = bytes.size();
    return zip::Archive::Open(MakeMemoryFile("f", std::move(bytes)), 0, size);
  };
  const Result<zip::Archive> archive = open(true);
  ASSERT_THAT(archive, IsOk());
  EXPECT_TRUE(archive->has_checksums());
  for (const zip::Record& record : archive->records()) {
    EXPECT_THAT(archive->Verify(record), IsOk()) << record.name;
  }
  const Result<zip::Archive> wrong = open(false);
  ASSERT_THAT(wrong, IsOk());
  EXPECT_THAT(wrong->Verify(*wrong->Find("data/1")), FailsWith(ErrorKind::kChecksum));
}

TEST(StateDictPlanTest, ItsReaderFindsEveryTensor) {
  const auto planned = Plan(Tensors());
  ASSERT_THAT(planned, IsOk());
  const std::unique_ptr<Storage> storage = MakeMemoryStorage();
  ASSERT_THAT(WriteSmallFile(*storage, "/model.pt", FileOfPlan(planned->plan, true)), IsOk());
  const auto source = TorchSaveSource::Open(*storage, "/model.pt");
  ASSERT_THAT(source, IsOk());
  const CheckpointIndex& index = (*source)->index();
  EXPECT_TRUE(index.problems().empty());
  ASSERT_EQ(index.tensors().size(), Tensors().size());
  for (std::size_t t = 0; t < Tensors().size(); ++t) {
    const TargetTensor wanted = Tensors()[t];
    const GlobalTensor* found = index.FindTensor(wanted.key);
    ASSERT_NE(found, nullptr) << wanted.key;
    EXPECT_EQ(found->dtype, wanted.dtype);
    EXPECT_EQ(found->shape, wanted.shape);
    const auto digest = DigestTensor(**source, *found, HashAlgorithm::kSha256, 1 << 20);
    ASSERT_THAT(digest, IsOk());
    const Bytes elements = ElementsOf(t, NumBytes(wanted.shape, wanted.dtype));
    EXPECT_EQ(*digest, HashHex(HashAlgorithm::kSha256, elements));
  }
}

TEST(StateDictPlanTest, RefusesWhatOneFileCannotBe) {
  WeightsRequest request;
  request.zstd_level = 3;
  EXPECT_THAT(PlanStateDict(request), FailsWith(ErrorKind::kUsage));
  request = {};
  request.files = 2;
  EXPECT_THAT(PlanStateDict(request), FailsWith(ErrorKind::kUsage));
  request = {};
  request.max_file_bytes = 1 << 20;
  EXPECT_THAT(PlanStateDict(request), FailsWith(ErrorKind::kUsage));
  EXPECT_THAT(Plan({Tensors()[0], Tensors()[0]}), FailsWith(ErrorKind::kAlreadyExists));
  const std::int64_t huge = std::int64_t{1} << 60;
  EXPECT_THAT(Plan({{.key = "a", .dtype = DType::kFloat64, .shape = {huge}}}),
              FailsWith(ErrorKind::kResource));
}

}  // namespace
}  // namespace ckpt::torch_save
