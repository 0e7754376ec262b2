#include "formats/dcp/metadata.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/dcp/internal/metadata_writer.h"
#include "formats/pickle/writer.h"
#include "tests/testing/matchers.h"

namespace ckpt::dcp {
namespace {

using ::ckpt::testing::FailsWith;
using ::ckpt::testing::IsOk;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A 4x3 tensor in two chunks, a scalar and an object.
class MetadataTest : public ::testing::Test {
 protected:
  MetadataTest() {
    files_ = {{"__0_0.distcp", 0}, {"__1_0.distcp", 0}};
    tensors_ = {{"a.w", DType::kBfloat16, {4, 3}}, {"s", DType::kFloat32, {}}};
    AddItem(0, 0, {{0, 0}, {3, 3}}, 5'000'000'000);
    AddItem(0, 1, {{3, 0}, {1, 3}}, 70);
    AddItem(1, 0, {{}, {}}, 9);
    objects_ = {{"step", 1, 100, 11}};
  }

  void AddItem(std::uint32_t tensor, std::uint32_t file, Box box, std::uint64_t offset) {
    WriteItem item;
    item.tensor = tensor;
    item.file = file;
    item.box = std::move(box);
    item.offset_bytes = offset;
    item.size_bytes = 40;
    items_.push_back(std::move(item));
  }

  [[nodiscard]] Bytes Encode() const {
    return EncodeMetadata({.files = files_,
                           .tensors = tensors_,
                           .items = items_,
                           .objects = objects_,
                           .planner_data = planner_data_,
                           .checkpoint_id = "/ck",
                           .save_id = "id"});
  }

  Result<MetadataExtras> Read() {
    bytes_ = Encode();
    const MetadataFile file{.name = ".metadata", .bytes = bytes_};
    Result<MetadataExtras> extras = ReadMetadata(std::span(&file, 1), builder_);
    if (extras.ok()) index_ = *builder_.Build();
    return extras;
  }

  std::vector<WriteFile> files_;
  std::vector<TargetTensor> tensors_;
  std::vector<WriteItem> items_;
  std::vector<StoredObject> objects_;
  std::optional<std::vector<PlannerEntry>> planner_data_;
  Bytes bytes_;
  IndexBuilder builder_;
  CheckpointIndex index_;
};

TEST_F(MetadataTest, ReadsBackWhatWasWritten) {
  planner_data_ = {{{"a.w", {std::string("a"), std::string("w")}}, {"l.0", {std::string("l"), 0}}}};
  const auto extras = Read();
  ASSERT_THAT(extras, IsOk());
  EXPECT_EQ(extras->version, "1.0.0");
  EXPECT_EQ(extras->checkpoint_id, "/ck");
  EXPECT_EQ(extras->save_id, "id");
  EXPECT_EQ(extras->planner_data, planner_data_);
  EXPECT_THAT(index_.problems(), IsEmpty());
  const GlobalTensor* tensor = index_.FindTensor("a.w");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::kBfloat16);
  EXPECT_THAT(tensor->shape, ElementsAre(4, 3));
  ASSERT_EQ(tensor->num_chunks, 2U);
  const Chunk& first = index_.chunks(*tensor)[0];
  EXPECT_EQ(index_.box(first), (Box{{0, 0}, {3, 3}}));
  EXPECT_EQ(first.offset_bytes, 5'000'000'000U);
  EXPECT_EQ(index_.encoding(first), "torch_save");
  EXPECT_EQ(index_.files()[index_.chunks(*tensor)[1].file], "__1_0.distcp");
  ASSERT_NE(index_.FindObject("step"), nullptr);
  EXPECT_EQ(index_.FindObject("step")->offset_bytes, 100U);
}

TEST_F(MetadataTest, AScalarIsNotAnObject) {
  ASSERT_THAT(Read(), IsOk());
  ASSERT_NE(index_.FindTensor("s"), nullptr);
  EXPECT_EQ(index_.FindTensor("s")->num_chunks, 1U);
  EXPECT_EQ(index_.FindObject("s"), nullptr);
}

TEST_F(MetadataTest, WritesTheSameBytesEveryTime) { EXPECT_EQ(Encode(), Encode()); }

TEST_F(MetadataTest, WithoutPlannerDataThereIsNone) {
  const auto extras = Read();
  ASSERT_THAT(extras, IsOk());
  EXPECT_EQ(extras->planner_data, std::nullopt);
}

TEST_F(MetadataTest, AnUnsafePathBarsOnlyItsTensors) {
  files_[1].name = "../b";
  objects_.clear();
  ASSERT_THAT(Read(), IsOk());
  EXPECT_THAT(index_.CheckDeliverable("a.w"), FailsWith(ErrorKind::kUnsafePath));
  EXPECT_THAT(index_.CheckDeliverable("s"), IsOk());
  EXPECT_THAT(index_.files(), ElementsAre("__0_0.distcp"));
}

TEST_F(MetadataTest, AChunkOutsideItsTensorBarsIt) {
  items_[1].box.offsets[0] = 4;
  ASSERT_THAT(Read(), IsOk());
  EXPECT_THAT(index_.CheckDeliverable("a.w"), FailsWith(ErrorKind::kOutOfRange));
}

TEST_F(MetadataTest, EntriesInAnotherOrderFindTheirChunks) {
  tensors_.push_back({"z", DType::kBfloat16, {4, 3}});
  AddItem(2, 0, {{3, 0}, {1, 3}}, 200);
  AddItem(2, 1, {{0, 0}, {3, 3}}, 300);
  ASSERT_THAT(Read(), IsOk());
  const GlobalTensor* tensor = index_.FindTensor("z");
  ASSERT_NE(tensor, nullptr);
  ASSERT_EQ(tensor->num_chunks, 2U);
  for (const Chunk& chunk : index_.chunks(*tensor)) {
    EXPECT_EQ(chunk.offset_bytes, index_.offsets(chunk)[0] == 3 ? 200U : 300U);
  }
}

TEST_F(MetadataTest, AHugeShapeIsReportedAndNotListed) {
  tensors_[0].shape = {std::int64_t{1} << 62, 8};
  ASSERT_THAT(Read(), IsOk());
  EXPECT_EQ(index_.FindTensor("a.w"), nullptr);
  EXPECT_THAT(index_.CheckDeliverable("a.w"), FailsWith(ErrorKind::kResource));
}

TEST_F(MetadataTest, FilesOfSeveralRanksBecomeOneIndex) {
  const Bytes first = Encode();
  items_ = {items_[0]};
  items_[0].file = 1;
  tensors_ = {tensors_[0]};
  objects_[0].offset_bytes = 200;
  const Bytes second = Encode();
  const std::vector<MetadataFile> files = {{.name = "__0.metadata", .bytes = first},
                                           {.name = "__1.metadata", .bytes = second}};
  ASSERT_THAT(ReadMetadata(files, builder_), IsOk());
  index_ = *builder_.Build();
  EXPECT_EQ(index_.FindTensor("a.w")->num_chunks, 3U) << "the replica is kept beside the original";
  ASSERT_EQ(index_.objects().size(), 1U);
  EXPECT_EQ(index_.objects()[0].offset_bytes, 100U);
  const auto copies = index_.copies(index_.objects()[0]);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies[0].offset_bytes, 200U);
  EXPECT_TRUE(index_.ranks_saved_alone());
}

TEST_F(MetadataTest, OneFileIsOfRanksThatSavedTogether) {
  ASSERT_THAT(Read(), IsOk());
  EXPECT_FALSE(index_.ranks_saved_alone());
}

TEST_F(MetadataTest, EveryCutIsAnErrorAndEveryFlipIsSurvived) {
  const Bytes whole = Encode();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const MetadataFile file{.name = "m", .bytes = ByteSpan(whole).first(length)};
    IndexBuilder builder;
    EXPECT_FALSE(ReadMetadata(std::span(&file, 1), builder).ok()) << length;
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      Bytes flipped = whole;
      flipped[at] ^= std::byte{1} << bit;
      const MetadataFile file{.name = "m", .bytes = flipped};
      IndexBuilder builder;
      (void)ReadMetadata(std::span(&file, 1), builder);
    }
  }
}

TEST(MetadataRefusalTest, NamesTheCallInPlaceOfTheMetadata) {
  pickle::PickleWriter writer(pickle::Dialect::kProtocol4);
  writer.Global("posix", "system").Text("ls").InTuple().Reduce();
  const Bytes bytes = writer.Take();
  const MetadataFile file{.name = ".metadata", .bytes = bytes};
  IndexBuilder builder;
  const auto read = ReadMetadata(std::span(&file, 1), builder);
  ASSERT_THAT(read, FailsWith(ErrorKind::kUnsafePickle));
  EXPECT_THAT(read.status().ToString(), HasSubstr("posix.system"));
}

}  // namespace
}  // namespace ckpt::dcp
