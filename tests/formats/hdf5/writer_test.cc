#include "formats/hdf5/internal/writer.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "formats/hdf5/internal/names.h"
#include "formats/hdf5/internal/parts.h"
#include "formats/hdf5/internal/source.h"
#include "formats/hdf5/internal/structure_writer.h"
#include "tests/testing/matchers.h"

namespace ckpt::hdf5 {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

WeightsRequest RequestOf(std::vector<TargetTensor> tensors) {
  WeightsRequest request;
  request.tensors = std::move(tensors);
  request.file_name = "out.h5";
  return request;
}

TEST(LinkNameTest, HasNoSlashAndNamesOneKey) {
  EXPECT_EQ(LinkNameOf("model.layers.0"), "model.layers.0");
  EXPECT_EQ(LinkNameOf("a/b%2F"), "a%2Fb%252F");
  EXPECT_EQ(LinkNameOf(""), "%");
  EXPECT_EQ(LinkNameOf("."), "%2E");
}

TEST(PlanHdf5Test, RefusesWhatAFileCannotHold) {
  const TargetTensor deep{.key = "deep", .dtype = DType::kInt8, .shape = Dims(33, 1)};
  EXPECT_THAT(PlanHdf5(RequestOf({deep})), FailsWith(ErrorKind::kUnsupported));
  const TargetTensor small{.key = "w", .dtype = DType::kInt8, .shape = {2}};
  EXPECT_THAT(PlanHdf5(RequestOf({small, small})), FailsWith(ErrorKind::kAlreadyExists));
  WeightsRequest compressed_parts = RequestOf({small});
  compressed_parts.zstd_level = 3;
  compressed_parts.files = 2;
  EXPECT_THAT(PlanHdf5(std::move(compressed_parts)), FailsWith(ErrorKind::kUsage));
  WeightsRequest long_rows =
      RequestOf({{.key = "w", .dtype = DType::kFloat32, .shape = {2, std::int64_t{1} << 31}}});
  long_rows.zstd_level = 3;
  EXPECT_THAT(PlanHdf5(std::move(long_rows)), FailsWith(ErrorKind::kUnsupported));
}

// The library would end the name there.
TEST(PlanHdf5Test, RefusesAKeyWithAZeroByte) {
  const std::string key("model\0norm", 10);
  for (const bool links : {false, true}) {
    WeightsRequest request = RequestOf({{.key = key, .dtype = DType::kFloat32, .shape = {2}}});
    if (links) request.links.emplace(1);
    const auto planned = PlanHdf5(std::move(request));
    ASSERT_THAT(planned, FailsWith(ErrorKind::kUnsupported));
    EXPECT_EQ(planned.status().first().tensor, key);
  }
}

TEST(PlanHdf5Test, PartsAreAboutEqualAndNamedInOrder) {
  WeightsRequest request = RequestOf({{.key = "a", .dtype = DType::kFloat32, .shape = {100, 100}},
                                      {.key = "b", .dtype = DType::kFloat32, .shape = {10}},
                                      {.key = "c", .dtype = DType::kFloat32, .shape = {200, 100}}});
  request.files = 3;
  const auto planned = PlanHdf5(std::move(request));
  ASSERT_THAT(planned, IsOk());
  std::vector<std::string> names;
  for (const WriteFile& file : planned->plan.files) names.push_back(file.name);
  EXPECT_THAT(names, ElementsAre("out.h5", "out-00001-of-00003.h5", "out-00002-of-00003.h5",
                                 "out-00003-of-00003.h5"));
  std::vector<std::uint64_t> bytes(4);
  for (const WriteItem& item : planned->plan.items) bytes[item.file] += item.payload_bytes;
  EXPECT_EQ(bytes[0], 0);
  for (std::size_t f = 1; f < bytes.size(); ++f)
    EXPECT_NEAR(static_cast<double>(bytes[f]), 40013, 500);
}

TEST(PlanHdf5Test, PartsHaveNamesThatAreNotInUse) {
  const auto names_beside = [](const std::vector<std::string>& in_use) {
    WeightsRequest request =
        RequestOf({{.key = "a", .dtype = DType::kFloat32, .shape = {100, 100}}});
    request.files = 2;
    request.names_in_use = in_use;
    const auto planned = PlanHdf5(std::move(request));
    EXPECT_THAT(planned, IsOk());
    std::vector<std::string> names;
    for (const WriteFile& file : planned->plan.files) names.push_back(file.name);
    return names;
  };
  const auto usual = ElementsAre("out.h5", "out-00001-of-00002.h5", "out-00002-of-00002.h5");
  EXPECT_THAT(names_beside({"out.h5", "out-00003-of-00003.h5"}), usual);
  EXPECT_THAT(names_beside({"out-00002-of-00002.h5"}),
              ElementsAre("out.h5", "out-00001-of-00002-b.h5", "out-00002-of-00002-b.h5"));
  EXPECT_THAT(names_beside({"out-00001-of-00002-b.h5"}), usual);
}

TEST(PartTest, IsKnownByItsNameAndByWhoWroteIt) {
  const std::unique_ptr<Storage> storage = MakeMemoryStorage();
  const auto is_part = [&](const std::string& name) {
    return IsPart(*storage, "/d/out.h5", "/d/" + name);
  };
  for (const char* const name :
       {"out.h5", "outer-00001-of-00002.h5", "out-00001-of-00002.hdf5", "out-0001-of-0002.h5",
        "out-00003-of-00002.h5", "out-00000-of-00002.h5", "out-00001-of-00002-c.h5"}) {
    const auto other = is_part(name);
    EXPECT_TRUE(other.ok() && !*other) << name;
  }
  ASSERT_THAT(storage->MakeDirectories("/d"), IsOk());
  const auto file_of = [](const std::vector<std::string>& groups) {
    const NewStructure structure = EncodeStructure(groups, {}, 64);
    Bytes file = structure.superblock;
    file.resize(64);
    Append(structure.tail, file);
    return file;
  };
  for (const char* const name : {"out-00001-of-00002.h5", "out-00002-of-00002-b.h5"}) {
    ASSERT_THAT(WriteSmallFile(*storage, std::string("/d/") + name, file_of({kChunksGroup})),
                IsOk());
    const auto part = is_part(name);
    EXPECT_TRUE(part.ok() && *part) << name;
  }
  ASSERT_THAT(WriteSmallFile(*storage, "/d/out-00002-of-00002.h5", AsBytes("a text")), IsOk());
  EXPECT_THAT(is_part("out-00002-of-00002.h5"), FailsWith(ErrorKind::kAlreadyExists));
  // A checkpoint of its own, which somebody has called so.
  ASSERT_THAT(WriteSmallFile(*storage, "/d/out-00001-of-00003.h5",
                             file_of({kTensorsGroup, kObjectsGroup, kChunksGroup})),
              IsOk());
  EXPECT_THAT(is_part("out-00001-of-00003.h5"), FailsWith(ErrorKind::kAlreadyExists));
  ASSERT_THAT(storage->MakeDirectories("/d/out-00002-of-00003.h5"), IsOk());
  EXPECT_THAT(is_part("out-00002-of-00003.h5"), FailsWith(ErrorKind::kAlreadyExists));
}

TEST(SourceNameTest, APercentSignIsNoNumberOfABlock) {
  EXPECT_EQ(SourceNameIn("a%b%%.h5"), "a%%b%%%%.h5");
  EXPECT_EQ(NameOfSource(SourceNameIn("a%b%%.h5")), "a%b%%.h5");
  for (const char* const numbered : {"a%b.h5", "%", "a%%%", "a%d"}) {
    EXPECT_EQ(NameOfSource(numbered), std::nullopt) << numbered;
  }
}

class StructureTest : public ::testing::Test {
 protected:
  // A file with this structure. Elements lie outside; they are not read.
  static Bytes FileOf(const std::vector<NewDataSet>& sets) {
    const NewStructure structure = EncodeStructure({kTensorsGroup, kObjectsGroup}, sets, 64);
    Bytes file = structure.superblock;
    file.resize(64);
    Append(structure.tail, file);
    return file;
  }

  Result<std::unique_ptr<CheckpointSource>> OpenBytes(const Bytes& file) {
    EXPECT_THAT(storage_->RemoveAll("/d"), IsOk());
    EXPECT_THAT(storage_->MakeDirectories("/d"), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, "/d/f.h5", file), IsOk());
    return OpenSource(*storage_, "/d/f.h5");
  }

  std::unique_ptr<CheckpointSource> Open(const std::vector<NewDataSet>& sets) {
    auto source = OpenBytes(FileOf(sets));
    EXPECT_THAT(source, IsOk());
    return source.ok() ? std::move(source).value() : nullptr;
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

// More links and more chunks than two levels of their trees hold.
TEST_F(StructureTest, TreesGrowToThreeLevels) {
  std::vector<NewDataSet> sets;
  for (int i = 0; i < 9000; ++i) {
    const std::string key = fmt::format("layers.{}/w", i);
    sets.push_back({.group = kTensorsGroup,
                    .name = LinkNameOf(key),
                    .dtype = DType::kBfloat16,
                    .shape = {0},
                    .attributes = {{kKeyAttribute, key}, {kDtypeAttribute, "bfloat16"}}});
  }
  NewDataSet chunked{.group = kTensorsGroup,
                     .name = "z",
                     .dtype = DType::kInt32,
                     .shape = {10'000, 3},
                     .attributes = {{kKeyAttribute, "z"}, {kDtypeAttribute, "int32"}},
                     .chunks = NewChunks{.rows = 2, .extents = {}, .zstd_level = 1}};
  for (std::uint64_t c = 0; c < 5000; ++c) {
    chunked.chunks->extents.push_back({.offset_bytes = 64 + c, .size_bytes = 1});
  }
  sets.push_back(std::move(chunked));
  const auto source = Open(sets);
  ASSERT_NE(source, nullptr);
  const CheckpointIndex& index = source->index();
  EXPECT_THAT(index.tensors(), SizeIs(9001));
  EXPECT_EQ(index.FindTensor("layers.8999/w")->dtype, DType::kBfloat16);
  const GlobalTensor* const z = index.FindTensor("z");
  ASSERT_NE(z, nullptr);
  ASSERT_EQ(z->num_chunks, 5000);
  const Chunk& last = index.chunks(*z).back();
  EXPECT_EQ(last.offset_bytes, 64 + 4999);
  EXPECT_THAT(index.offsets(last), ElementsAre(9998, 0));
  EXPECT_THAT(ValidateIndex(*source), IsEmpty());
}

// What a reader sees: tensors with their places, objects with their values; nothing if one of these
// cannot be read.
std::vector<std::string> ListContent(CheckpointSource& source) {
  std::vector<std::string> content;
  const CheckpointIndex& index = source.index();
  for (const GlobalTensor& tensor : index.tensors()) {
    for (const Chunk& chunk : index.chunks(tensor)) {
      content.push_back(fmt::format("{} {} {} {} {}", tensor.key, DTypeName(tensor.dtype),
                                    FormatDims(tensor.shape), chunk.offset_bytes,
                                    chunk.size_bytes));
    }
  }
  for (const ObjectEntry& object : index.objects()) {
    const auto value = source.ReadObject(object);
    if (!value.ok()) return {};
    content.push_back(fmt::format("{} {}", object.key, value->json));
  }
  return content;
}

TEST_F(StructureTest, OneFlippedBitHidesNothingInSilence) {
  std::vector<NewDataSet> sets;
  for (const char* const key : {"a", "b/c", "d"}) {
    sets.push_back({.group = kTensorsGroup,
                    .name = LinkNameOf(key),
                    .dtype = DType::kFloat32,
                    .shape = {1},
                    .attributes = {{kKeyAttribute, key}, {kDtypeAttribute, "float32"}},
                    .at = 48,
                    .crc32 = 7});
  }
  sets.push_back({.group = kObjectsGroup,
                  .name = "step",
                  .shape = {},
                  .attributes = {{kKeyAttribute, "step"}, {kTypeAttribute, "int"}},
                  .text = "12"});
  sets.push_back({.group = {}, .name = kOriginName, .shape = {}, .text = "{}"});
  const Bytes whole = FileOf(sets);
  const auto intact = OpenBytes(whole);
  ASSERT_THAT(intact, IsOk());
  const std::vector<std::string> expected = ListContent(**intact);
  ASSERT_THAT(expected, SizeIs(4));
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    Bytes flipped = whole;
    flipped[bit / 8] ^= std::byte{1} << bit % 8;
    const auto source = OpenBytes(flipped);
    // Who reads a warning goes on.
    const auto is_error = [](const Problem& p) { return p.severity == Severity::kError; };
    if (!source.ok() || std::ranges::any_of(ValidateIndex(**source), is_error)) continue;
    EXPECT_THAT(ListContent(**source), AnyOf(IsEmpty(), expected))
        << fmt::format("bit {} of byte {}", bit % 8, bit / 8);
  }
}

TEST_F(StructureTest, IsAFunctionOfWhatItDescribes) {
  const std::vector<NewDataSet> sets = {
      {.group = kTensorsGroup, .name = "a", .dtype = DType::kBool, .shape = {0, 3}},
      {.group = kObjectsGroup, .name = "b", .shape = {}, .text = "[1]"}};
  EXPECT_EQ(EncodeStructure({}, sets, 64).tail, EncodeStructure({}, sets, 64).tail);
  EXPECT_EQ(EncodeStructure({}, {sets[1], sets[0]}, 64).tail.size(),
            EncodeStructure({}, sets, 64).tail.size());
}

}  // namespace
}  // namespace ckpt::hdf5
