// Folders that Megatron never writes, and what becomes of them.
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "core/checkpoint/read.h"
#include "core/io/memory_storage.h"
#include "formats/torch_dist/internal/source.h"
#include "formats/torch_save/torch_item.h"
#include "formats/zip/writer.h"
#include "tests/formats/dcp/metadata_pickle.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::Dict;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::Int;
using testing::IsOk;
using testing::IsOkAndHolds;
using testing::MetadataPickle;
using testing::Size;
using testing::Text;

constexpr const char* kBackend = R"({"sharded_backend": "torch_dist"})";

Bytes Pickled(const testing::WriteValue& value) {
  pickle::PickleWriter out(pickle::Dialect::kWeightsOnly);
  value(out);
  return out.Take();
}

void ListOfOne(pickle::PickleWriter& out) { out.BeginList().Text("common").EndList(); }
void ListOfTwo(pickle::PickleWriter& out) { out.BeginList().Int(1).Int(2).EndList(); }
void EmptyDict(pickle::PickleWriter& out) { out.BeginDict().EndDict(); }

// The archive of floats in the given shape.
Bytes Archive(const Dims& shape, std::span<const float> values) {
  const torch_save::TensorItem item(DType::kFloat32, shape);
  const ByteSpan payload = std::as_bytes(values);
  Bytes bytes = item.head();
  Append(payload, bytes);
  Append(item.Tail(Crc32(payload)), bytes);
  return bytes;
}

class TorchDistFolderTest : public ::testing::Test {
 protected:
  // Puts an item behind those that are there.
  testing::PickledChunk Put(Box box, const Bytes& item) {
    const auto offset = static_cast<std::int64_t>(data_.size());
    Append(item, data_);
    return {std::move(box), offset, static_cast<std::int64_t>(item.size())};
  }

  void PutObject(std::string key, const testing::WriteValue& value) {
    metadata_.object_key = std::move(key);
    metadata_.object = Put({}, torch_save::ObjectItem(Pickled(value)));
  }

  // "w" of two floats, not flattened.
  void PutPlainTensor() {
    metadata_.shape = {2};
    metadata_.chunks = {Put({{0}, {2}}, Archive({2}, std::vector<float>{1, 2}))};
  }

  // "w" of 4 x 6 floats 0, 1, …, as two blocks of 2 x 6 whose first one two ranks share.
  void PutFlattenedTensor() {
    std::vector<float> values(24);
    std::iota(values.begin(), values.end(), 0.0F);
    const std::span<const float> all(values);
    metadata_.shape = {2, 1, 12};
    metadata_.chunks = {Put({{0, 0, 0}, {1, 1, 5}}, Archive({1, 1, 5}, all.first(5))),
                        Put({{0, 0, 5}, {1, 1, 7}}, Archive({1, 1, 7}, all.subspan(5, 7))),
                        Put({{1, 0, 0}, {1, 1, 12}}, Archive({1, 1, 12}, all.subspan(12)))};
    SetOriginalShape({4, 6});
  }

  void SetOriginalShape(const Dims& shape) {
    metadata_.instead["mcore_data"] =
        Dict({{Text("w"), Dict({{Text("nd_reformulated_orig_global_shape"), Size(shape)}})}});
  }

  Result<std::unique_ptr<torch_dist::Source>> Open() {
    storage_ = MakeMemoryStorage();
    EXPECT_THAT(storage_->MakeDirectories("/ck"), IsOk());
    Write("metadata.json", AsBytes(std::string_view(backend_)));
    Write(".metadata", metadata_.Write());
    Write("__0_0.distcp", data_);
    if (common_) Write("common.pt", *common_);
    return torch_dist::Source::Open(*storage_, "/ck");
  }

  // The source of what was put, which must be good enough to open.
  std::unique_ptr<torch_dist::Source> Opened() {
    auto source = Open();
    EXPECT_THAT(source, IsOk());
    return source.ok() ? *std::move(source) : nullptr;
  }

  void Write(const std::string& name, ByteSpan content) {
    EXPECT_THAT(WriteSmallFile(*storage_, Path("/ck") / name, content), IsOk());
  }

  static Result<RenderedObject> CommonState(const torch_dist::Source& source) {
    const ObjectEntry* const object = source.index().FindObject("common_state");
    if (object == nullptr) return Error(ErrorKind::kMissing, "no common state");
    return source.ReadObject(*object);
  }

  static std::vector<float> ReadW(const torch_dist::Source& source) {
    const GlobalTensor* const tensor = source.index().FindTensor("w");
    if (tensor == nullptr) return {};
    std::vector<float> values(static_cast<std::size_t>(NumElements(tensor->shape)));
    Gatherer gatherer(1 << 10);
    LocatedChunks chunks(source, 1 << 10);
    TensorReader reader(*tensor, gatherer, chunks);
    EXPECT_THAT(reader.Read(WholeBox(tensor->shape), std::as_writable_bytes(std::span(values))),
                IsOk());
    return values;
  }

  std::string backend_ = kBackend;
  MetadataPickle metadata_;
  Bytes data_;
  std::optional<Bytes> common_;
  std::unique_ptr<Storage> storage_;
};

TEST_F(TorchDistFolderTest, AsksForItsOwnBackend) {
  struct Case {
    const char* text;
    ErrorKind kind;
    const char* part;
  };
  for (const Case& c :
       {Case{"{", ErrorKind::kBadMetadata, "not valid JSON"},
        Case{"[]", ErrorKind::kBadMetadata, ""},
        Case{R"({"sharded_backend_version": 1})", ErrorKind::kBadMetadata, "sharded_backend"},
        Case{R"({"sharded_backend": 1})", ErrorKind::kBadMetadata, ""},
        Case{R"({"sharded_backend": "zarr"})", ErrorKind::kUnsupported, "found \"zarr\""}}) {
    backend_ = c.text;
    const auto source = Open();
    ASSERT_THAT(source, FailsWith(c.kind)) << c.text;
    EXPECT_THAT(source.status().ToString(), HasSubstr(c.part));
  }
  backend_.assign((1 << 20) + 1, ' ');
  EXPECT_THAT(Open(), FailsWith(ErrorKind::kResource));
}

TEST_F(TorchDistFolderTest, NeedsMetadataOfBothKinds) {
  PutPlainTensor();
  PutObject("o", EmptyDict);
  ASSERT_THAT(Open(), IsOk());
  ASSERT_THAT(storage_->RemoveAll("/ck/.metadata"), IsOk());
  EXPECT_THAT(torch_dist::Source::Open(*storage_, "/ck"), FailsWith(ErrorKind::kIncomplete));
  ASSERT_THAT(storage_->RemoveAll("/ck/metadata.json"), IsOk());
  EXPECT_THAT(torch_dist::Source::Open(*storage_, "/ck"), FailsWith(ErrorKind::kNotFound));
}

TEST_F(TorchDistFolderTest, UnfoldsFlattenedTensors) {
  PutFlattenedTensor();
  PutObject("o", EmptyDict);
  const auto source = Opened();
  const GlobalTensor* const tensor = source->index().FindTensor("w");
  ASSERT_NE(tensor, nullptr);
  EXPECT_THAT(tensor->shape, ElementsAre(4, 6));
  std::vector<float> expected(24);
  std::iota(expected.begin(), expected.end(), 0.0F);
  EXPECT_EQ(ReadW(*source), expected);
}

TEST_F(TorchDistFolderTest, ATensorOfTheSameShapeWasNotFlattened) {
  PutPlainTensor();
  PutObject("o", EmptyDict);
  SetOriginalShape({2});
  EXPECT_THAT(ReadW(*Opened()), ElementsAre(1, 2));
}

TEST_F(TorchDistFolderTest, ADamagedSliceIsAnErrorOfItsTensor) {
  PutObject("o", EmptyDict);
  PutFlattenedTensor();
  data_.pop_back();
  const auto source = Opened();
  const GlobalTensor* const tensor = source->index().FindTensor("w");
  ASSERT_NE(tensor, nullptr);
  const auto chunks = source->index().chunks(*tensor);
  EXPECT_THAT(source->Locate(*tensor, chunks.front()), IsOk());
  const auto cut_off = source->Locate(*tensor, chunks.back());
  ASSERT_THAT(cut_off, FailsWith(ErrorKind::kTruncated));
  EXPECT_EQ(cut_off.status().first().tensor, "w");
}

TEST_F(TorchDistFolderTest, ShapesThatDoNotBelongTogetherBarTheTensor) {
  struct Case {
    const char* name;
    Dims original;
    Dims stored;
    Box chunk;
    ErrorKind kind;
    const char* message;
  };
  const char* const misfit = "a flattened tensor's stored shape does not fit its own";
  for (const Case& c :
       {Case{"too large to count",
             {std::int64_t{1} << 62, 4},
             {1, 1, 8},
             {{0, 0, 0}, {1, 1, 8}},
             ErrorKind::kResource,
             "overflows"},
        Case{"less than nothing",
             {-2, 4},
             {1, 1, 8},
             {{0, 0, 0}, {1, 1, 8}},
             ErrorKind::kBadMetadata,
             "negative size"},
        Case{"other dims", {2, 4}, {8}, {{0}, {8}}, ErrorKind::kBadMetadata, misfit},
        Case{"blocks that do not tile",
             {3, 4},
             {2, 1, 6},
             {{0, 0, 0}, {1, 1, 6}},
             ErrorKind::kBadMetadata,
             misfit},
        Case{"blocks of another size",
             {2, 4},
             {2, 1, 3},
             {{0, 0, 0}, {1, 1, 3}},
             ErrorKind::kBadMetadata,
             misfit},
        Case{"a chunk of two blocks",
             {2, 4},
             {2, 1, 4},
             {{0, 0, 0}, {2, 1, 4}},
             ErrorKind::kBadMetadata,
             "a flattened chunk spans several blocks"}}) {
    SCOPED_TRACE(c.name);
    PutObject("o", EmptyDict);
    metadata_.shape = c.stored;
    metadata_.chunks = {{c.chunk, 0, 10}};
    SetOriginalShape(c.original);
    const auto source = Opened();
    EXPECT_EQ(source->index().FindTensor("w"), nullptr);
    const Status refused = source->index().CheckDeliverable("w");
    ASSERT_THAT(refused, FailsWith(c.kind));
    EXPECT_THAT(refused.first().message, HasSubstr(c.message));
  }
}

TEST_F(TorchDistFolderTest, WhatIsWrongWithATensorIsPassedOn) {
  PutPlainTensor();
  PutObject("o", EmptyDict);
  metadata_.instead["stored_offset"] = Int(-1);
  EXPECT_THAT(Opened()->index().CheckDeliverable("w"), FailsWith(ErrorKind::kOutOfRange));
}

TEST_F(TorchDistFolderTest, TheCommonStateIsWhatTheListHolds) {
  PutPlainTensor();
  PutObject("common_state/shard_0_1", ListOfOne);
  EXPECT_EQ(CommonState(*Opened())->json, "\"common\"");
  PutObject("common_state/shard_0_1", ListOfTwo);
  EXPECT_EQ(CommonState(*Opened())->json, "[1,2]");
  PutObject("common_state/shard_0_1", EmptyDict);
  EXPECT_EQ(CommonState(*Opened())->json, "{}");
}

TEST_F(TorchDistFolderTest, TheFileOfTheCommonStateStandsBeforeTheItem) {
  PutPlainTensor();
  PutObject("common_state/shard_0_1", ListOfOne);
  common_ = torch_save::ObjectItem(Pickled(Int(5)));
  const auto source = Opened();
  EXPECT_EQ(CommonState(*source)->json, "5");
  EXPECT_EQ(source->index().FindObject("common_state/shard_0_1"), nullptr);
  const FileId file = source->index().FindObject("common_state")->file;
  EXPECT_EQ(source->index().files()[file], "common.pt");
  EXPECT_THAT(source->FileSize(file), IsOkAndHolds(common_->size()));
  EXPECT_THAT(source->FileSize(0), IsOkAndHolds(data_.size()));
}

TEST_F(TorchDistFolderTest, WarningsAboutTheFileOfTheCommonStateArePassedOn) {
  PutPlainTensor();
  PutObject("o", EmptyDict);
  zip::Writer zip;
  zip.Add("data.pkl", Pickled(Int(5)));
  zip.Add("../outside", {});
  common_ = std::move(zip).Finish().front().bytes;
  const auto source = Opened();
  ASSERT_EQ(source->index().problems().size(), 1U);
  EXPECT_EQ(source->index().problems()[0].kind, ErrorKind::kUnsafePath);
  EXPECT_THAT(source->index().problems()[0].file, HasSubstr("common.pt"));
}

TEST_F(TorchDistFolderTest, ADamagedCommonStateIsAnError) {
  PutPlainTensor();
  PutObject("common_state/shard_0_1", ListOfOne);
  data_.pop_back();
  const auto cut_off = CommonState(*Opened());
  ASSERT_THAT(cut_off, FailsWith(ErrorKind::kTruncated));
  common_ = Bytes(100);
  EXPECT_THAT(Open(), FailsWith(ErrorKind::kUnsupported));
}

TEST_F(TorchDistFolderTest, AnotherObjectOfThatNameIsNoCommonState) {
  PutPlainTensor();
  PutObject("common_state", EmptyDict);
  EXPECT_THAT(CommonState(*Opened()), FailsWith(ErrorKind::kNotFound));
  common_ = torch_save::ObjectItem(Pickled(Int(5)));
  const auto twice = Open();
  ASSERT_THAT(twice, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_EQ(twice.status().first().tensor, "common_state");
}

TEST_F(TorchDistFolderTest, OtherObjectsAreThoseOfTheItems) {
  PutPlainTensor();
  PutObject("o", ListOfTwo);
  const auto source = Opened();
  EXPECT_EQ(source->ReadObject(*source->index().FindObject("o"))->json, "[1,2]");
}

}  // namespace
}  // namespace ckpt
