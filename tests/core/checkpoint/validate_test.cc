#include "core/checkpoint/validate.h"

#include <optional>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::IsOk;

// An index whose files have the given sizes; nothing marks a file that is not there.
class IndexOnlySource final : public CheckpointSource {
 public:
  explicit IndexOnlySource(std::vector<std::optional<std::uint64_t>> sizes)
      : sizes_(std::move(sizes)) {
    for (std::size_t i = 0; i < sizes_.size(); ++i) builder.AddFile("f" + std::to_string(i));
    builder.AddEncoding("raw");
  }
  IndexBuilder builder;

  // REQUIRES: everything was added.
  std::vector<Problem> Validate() {
    Result<CheckpointIndex> built = builder.Build();
    EXPECT_THAT(built, IsOk());
    index_ = std::move(built).value();
    return ValidateIndex(*this);
  }

  const CheckpointIndex& index() const override { return index_; }
  Result<StoredArray> Locate(const GlobalTensor&, const Chunk&) const override {
    return Error(ErrorKind::kInternal, "metadata only");
  }
  Result<RenderedObject> ReadObject(const ObjectEntry&) const override {
    return Error(ErrorKind::kInternal, "metadata only");
  }
  Result<std::uint64_t> FileSize(FileId file) const override {
    if (sizes_[file]) return *sizes_[file];
    return Error(ErrorKind::kMissingFile, "file is missing");
  }
  Protection protection() const override { return Protection::kNone; }

 private:
  CheckpointIndex index_;
  std::vector<std::optional<std::uint64_t>> sizes_;
};

MATCHER_P2(IsProblem, kind, tensor, std::string(KindName(kind)) + " of " + tensor) {
  *result_listener << Describe(arg);
  return arg.kind == kind && arg.tensor == tensor;
}

TEST(ValidateIndex, AcceptsRowBlocksInTwoFiles) {
  IndexOnlySource source({12, 8});
  source.builder.AddTensor("w", DType::kInt8, {5, 4});
  source.builder.AddChunk({{3, 0}, {2, 4}}, 1, 0, 0, 8);
  source.builder.AddChunk({{0, 0}, {3, 4}}, 0, 0, 0, 12);
  EXPECT_THAT(source.Validate(), ::testing::IsEmpty());
}

TEST(ValidateIndex, NamesTheHole) {
  IndexOnlySource source({12});
  source.builder.AddTensor("w", DType::kInt8, {5, 4});
  source.builder.AddChunk({{0, 0}, {3, 4}}, 0, 0, 0, 12);
  const std::vector<Problem> problems = source.Validate();
  ASSERT_THAT(problems, ::testing::ElementsAre(IsProblem(ErrorKind::kCoverage, "w")));
  EXPECT_THAT(problems[0].actual, ::testing::HasSubstr("[3:5, 0:4]"));
}

TEST(ValidateIndex, NamesBothOverlappingChunks) {
  IndexOnlySource source({8});
  source.builder.AddTensor("w", DType::kInt8, {5});
  source.builder.AddChunk({{0}, {3}}, 0, 0, 0, 3);
  source.builder.AddChunk({{2}, {3}}, 0, 0, 3, 3);
  const std::vector<Problem> problems = source.Validate();
  ASSERT_THAT(problems, ::testing::ElementsAre(IsProblem(ErrorKind::kOverlap, "w")));
  EXPECT_THAT(problems[0].actual, ::testing::HasSubstr("[0:3] and [2:5]"));
}

TEST(ValidateIndex, WarnsOfAChunkTwiceInOneFileOnly) {
  IndexOnlySource source({4, 4});
  source.builder.AddTensor("replica", DType::kInt8, {4});
  source.builder.AddChunk({{0}, {4}}, 0, 0, 0, 4);
  source.builder.AddChunk({{0}, {4}}, 1, 0, 0, 4);
  source.builder.AddTensor("twice", DType::kInt8, {4});
  source.builder.AddChunk({{0}, {4}}, 0, 0, 0, 4);
  source.builder.AddChunk({{0}, {4}}, 0, 0, 0, 4);
  const std::vector<Problem> problems = source.Validate();
  ASSERT_THAT(problems, ::testing::ElementsAre(IsProblem(ErrorKind::kOverlap, "twice")));
  EXPECT_EQ(problems[0].severity, Severity::kWarning);
}

TEST(ValidateIndex, ReportsAMissingFileForEachEntryThatNeedsIt) {
  IndexOnlySource source({std::nullopt});
  source.builder.AddTensor("a", DType::kInt8, {2});
  source.builder.AddChunk({{0}, {1}}, 0, 0, 0, 1);
  source.builder.AddChunk({{1}, {1}}, 0, 0, 1, 1);
  source.builder.AddObject(
      {.key = "o", .file = 0, .encoding = 0, .offset_bytes = 2, .size_bytes = 1});
  EXPECT_THAT(source.Validate(), ::testing::ElementsAre(IsProblem(ErrorKind::kMissingFile, "a"),
                                                        IsProblem(ErrorKind::kMissingFile, "o")));
}

TEST(ValidateIndex, ReportsEachMissingFileOfATensorOnce) {
  IndexOnlySource source({std::nullopt, std::nullopt});
  for (const char* key : {"a", "b"}) {
    source.builder.AddTensor(key, DType::kInt8, {4});
    for (std::int64_t row = 0; row < 4; ++row) {
      source.builder.AddChunk({{row}, {1}}, static_cast<FileId>(row % 2), 0, 0, 1);
    }
  }
  const std::vector<Problem> problems = source.Validate();
  EXPECT_THAT(problems, ::testing::ElementsAre(IsProblem(ErrorKind::kMissingFile, "a"),
                                               IsProblem(ErrorKind::kMissingFile, "a"),
                                               IsProblem(ErrorKind::kMissingFile, "b"),
                                               IsProblem(ErrorKind::kMissingFile, "b")));
  EXPECT_NE(problems[0].file, problems[1].file);
}

TEST(ValidateIndex, LooksForCopiesOfObjects) {
  IndexOnlySource source({1, 1});
  source.builder.AddObject({.key = "o", .file = 0, .size_bytes = 1});
  source.builder.AddObjectCopy({.key = "o", .file = 1, .offset_bytes = 500, .size_bytes = 1});
  EXPECT_THAT(source.Validate(), ::testing::ElementsAre(IsProblem(ErrorKind::kOutOfRange, "o")));
}

TEST(ValidateIndex, BlamesTheFileWhenItsEntriesFollowEachOther) {
  IndexOnlySource source({5});
  source.builder.AddTensor("a", DType::kInt8, {4});
  source.builder.AddChunk({{0}, {4}}, 0, 0, 0, 4);
  source.builder.AddTensor("b", DType::kInt8, {4});
  source.builder.AddChunk({{0}, {4}}, 0, 0, 4, 4);
  const std::vector<Problem> problems = source.Validate();
  ASSERT_THAT(problems, ::testing::ElementsAre(IsProblem(ErrorKind::kTruncated, "b")));
  EXPECT_EQ(problems[0].file, "f0 [4, +4)");
  EXPECT_EQ(problems[0].actual, "a file of 5 bytes");
}

TEST(ValidateIndex, BlamesTheEntryWhenItLiesApart) {
  IndexOnlySource source({4});
  source.builder.AddTensor("a", DType::kInt8, {4});
  source.builder.AddChunk({{0}, {4}}, 0, 0, 0, 4);
  source.builder.AddTensor("b", DType::kInt8, {4});
  source.builder.AddChunk({{0}, {4}}, 0, 0, UINT64_MAX - 1, 4);
  EXPECT_THAT(source.Validate(), ::testing::ElementsAre(IsProblem(ErrorKind::kOutOfRange, "b")));
}

TEST(ValidateIndex, ReportsChunksThatDoNotFitTheirTensor) {
  IndexOnlySource source({8});
  source.builder.AddTensor("outside", DType::kInt8, {4});
  source.builder.AddChunk({{1}, {4}}, 0, 0, 0, 4);
  source.builder.AddTensor("rank", DType::kInt8, {4});
  source.builder.AddChunk({{0, 0}, {4, 1}}, 0, 0, 0, 4);
  source.builder.AddTensor("volume", DType::kFloat32, {INT64_MAX, 4});
  source.builder.AddChunk({{0, 0}, {1, 1}}, 0, 0, 0, 4);
  EXPECT_THAT(source.Validate(),
              ::testing::ElementsAre(IsProblem(ErrorKind::kOutOfRange, "outside"),
                                     IsProblem(ErrorKind::kBadMetadata, "rank"),
                                     IsProblem(ErrorKind::kResource, "volume")));
}

}  // namespace
}  // namespace ckpt
