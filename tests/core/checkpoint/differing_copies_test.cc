#include "core/checkpoint/differing_copies.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using testing::IsOk;
using ::testing::Pair;

constexpr std::uint64_t kBudget = 1 << 20;

// What three ranks stored: in the file of each, one byte for each element, and texts of objects.
class RanksSource final : public CheckpointSource {
 public:
  explicit RanksSource(std::vector<std::string> files) : files_(std::move(files)) {
    for (std::size_t rank = 0; rank < files_.size(); ++rank) {
      builder.AddFile("rank" + std::to_string(rank));
    }
    builder.AddEncoding("raw");
  }
  IndexBuilder builder;
  std::map<FileId, std::vector<HeldTensor>> held;  // by objects, by the file they lie in

  // REQUIRES: everything was added.
  void Finish() { index_ = builder.Build().value(); }

  const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor&, const Chunk& chunk) const override {
    if (files_[chunk.file].empty()) return Error(ErrorKind::kBadItem, "nothing there");
    const ByteSpan bytes = AsBytes(files_[chunk.file]);
    StoredArray array;
    array.file = MakeMemoryFile(index_.files()[chunk.file], Bytes(bytes.begin(), bytes.end()));
    array.offset_bytes = chunk.offset_bytes;
    array.dtype = DType::kUint8;
    array.strides = ContiguousStrides(index_.sizes(chunk));
    return array;
  }
  Result<RenderedObject> ReadObject(const ObjectEntry& object) const override {
    if (files_[object.file].empty()) return Error(ErrorKind::kBadItem, "nothing there");
    const auto tensors = held.find(object.file);
    return RenderedObject{
        .type = "str",
        .json = files_[object.file].substr(object.offset_bytes, object.size_bytes),
        .warnings = {},
        .held = tensors == held.end() ? std::vector<HeldTensor>() : tensors->second};
  }
  Result<std::uint64_t> FileSize(FileId file) const override { return files_[file].size(); }
  Protection protection() const override { return Protection::kNone; }

 private:
  std::vector<std::string> files_;
  CheckpointIndex index_;
};

// Four elements in two boxes, and every rank has both.
RanksSource TensorOf(std::vector<std::string> files, bool alone = true) {
  const auto ranks = static_cast<FileId>(files.size());
  RanksSource source(std::move(files));
  source.builder.AddTensor("w", DType::kUint8, {4});
  for (FileId rank = 0; rank < ranks; ++rank) {
    source.builder.AddChunk({{0}, {2}}, rank, 0, 0, 2);
    source.builder.AddChunk({{2}, {2}}, rank, 0, 2, 2);
  }
  if (alone) source.builder.SetRanksSavedAlone();
  source.Finish();
  return source;
}

// Three bytes of every file.
RanksSource ObjectOf(std::vector<std::string> files,
                     std::map<FileId, std::vector<HeldTensor>> held = {}) {
  const auto ranks = static_cast<FileId>(files.size());
  RanksSource source(std::move(files));
  source.held = std::move(held);
  source.builder.AddObject({.key = "step", .file = 0, .size_bytes = 3});
  for (FileId rank = 1; rank < ranks; ++rank) {
    source.builder.AddObjectCopy({.key = "step", .file = rank, .size_bytes = 3});
  }
  source.builder.SetRanksSavedAlone();
  source.Finish();
  return source;
}

Result<DifferingCopies> CompareTensor(const RanksSource& source) {
  return CompareCopies(source, source.index().tensors().front(), kBudget);
}

Result<DifferingCopies> CompareObject(const RanksSource& source) {
  return CompareCopies(source, source.index().objects().front());
}

TEST(CompareCopiesTest, NamesTheCopyOfATensorThatDiffers) {
  const auto differing = CompareTensor(TensorOf({"abcd", "abcd", "abxd"}));
  ASSERT_THAT(differing, IsOk());
  EXPECT_EQ(differing->key, "w");
  EXPECT_EQ(differing->taken, "rank0");
  EXPECT_THAT(differing->others, ElementsAre("rank2"));
  EXPECT_THAT(differing->bytes, ElementsAre(Pair(2, 2)));
}

TEST(CompareCopiesTest, AddsUpTheBoxesOfACopy) {
  const auto differing = CompareTensor(TensorOf({"abcd", "xbcx", "abcx"}));
  ASSERT_THAT(differing, IsOk());
  EXPECT_THAT(differing->others, ElementsAre("rank1", "rank2"));
  EXPECT_THAT(differing->bytes, ElementsAre(Pair(1, 4), Pair(2, 2)));
}

TEST(CompareCopiesTest, SaysNothingOfEqualCopies) {
  const auto tensors = CompareTensor(TensorOf({"abcd", "abcd", "abcd"}));
  ASSERT_THAT(tensors, IsOk());
  EXPECT_TRUE(tensors->empty());
  const auto objects = CompareObject(ObjectOf({"one", "one"}));
  ASSERT_THAT(objects, IsOk());
  EXPECT_TRUE(objects->empty());
}

TEST(CompareCopiesTest, ReadsNothingUnlessRanksSavedAlone) {
  const auto differing = CompareTensor(TensorOf({"abcd", ""}, /*alone=*/false));
  ASSERT_THAT(differing, IsOk());
  EXPECT_TRUE(differing->empty());
}

TEST(CompareCopiesTest, FailsIfACopyCannotBeRead) {
  EXPECT_THAT(CompareTensor(TensorOf({"abcd", ""})), FailsWith(ErrorKind::kBadItem));
  EXPECT_THAT(CompareObject(ObjectOf({"one", ""})), FailsWith(ErrorKind::kBadItem));
}

TEST(CompareCopiesTest, NamesTheCopiesOfAnObjectThatDiffer) {
  const auto differing = CompareObject(ObjectOf({"one", "one", "two"}));
  ASSERT_THAT(differing, IsOk());
  EXPECT_THAT(differing->others, ElementsAre("rank2"));
  EXPECT_THAT(differing->bytes, ElementsAre(Pair(2, 3)));
}

// The text only names them.
TEST(CompareCopiesTest, SeesTheTensorsThatAnObjectHolds) {
  const auto tensor = [](const std::string& sha256) {
    return std::vector<HeldTensor>{{.path = "a", .shape = {1}, .sha256 = sha256}};
  };
  const auto same = CompareObject(ObjectOf({"one", "one"}, {{0, tensor("1")}, {1, tensor("1")}}));
  ASSERT_THAT(same, IsOk());
  EXPECT_TRUE(same->empty());
  const auto other = CompareObject(ObjectOf({"one", "one"}, {{0, tensor("1")}, {1, tensor("2")}}));
  ASSERT_THAT(other, IsOk());
  EXPECT_THAT(other->bytes, ElementsAre(Pair(1, 3)));
}

TEST(CompareCopiesTest, WarnsWithTheFilesOfAll) {
  const auto differing = CompareTensor(TensorOf({"abcd", "xbcd", "abcx"}));
  ASSERT_THAT(differing, IsOk());
  const Problem warning = WarnOfCopies(*differing);
  EXPECT_EQ(warning.kind, ErrorKind::kValueMismatch);
  EXPECT_EQ(warning.severity, Severity::kWarning);
  EXPECT_EQ(warning.tensor, "w");
  EXPECT_EQ(warning.file, "rank0");
  EXPECT_EQ(warning.actual, "others in rank1, rank2");
}

}  // namespace
}  // namespace ckpt
