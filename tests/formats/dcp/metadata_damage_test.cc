// What a `.metadata` says that torch never writes, and what becomes of it.
#include <cstdint>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/dcp/metadata.h"
#include "tests/formats/dcp/metadata_pickle.h"
#include "tests/testing/matchers.h"

namespace ckpt::dcp {
namespace {

using pickle::PickleWriter;
using ::testing::AllOf;
using testing::Dict;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::Field;
using ::testing::HasSubstr;
using testing::Instance;
using testing::Int;
using ::testing::IsEmpty;
using testing::IsOk;
using testing::kMetadataModule;
using testing::MetadataPickle;
using testing::None;
using testing::Size;
using testing::Text;
using testing::WriteValue;

// What ReadMetadata leaves behind.
struct Outcome {
  Result<MetadataExtras> extras;
  CheckpointIndex index;
};

Outcome Read(const std::vector<Bytes>& pickles) {
  std::vector<MetadataFile> files;
  for (const Bytes& bytes : pickles) {
    files.push_back({.name = fmt::format("__{}.metadata", files.size()), .bytes = bytes});
  }
  IndexBuilder builder;
  Result<MetadataExtras> extras = ReadMetadata(files, builder);
  Result<CheckpointIndex> index = builder.Build();
  EXPECT_THAT(index, IsOk());
  return {std::move(extras), *std::move(index)};
}

Outcome Read(const MetadataPickle& pickle) { return Read(std::vector<Bytes>{pickle.Write()}); }

void List(PickleWriter& out) { out.BeginList().EndList(); }

WriteValue ListOf(std::vector<WriteValue> values) {
  return [values = std::move(values)](PickleWriter& out) {
    out.BeginList();
    for (const WriteValue& value : values) value(out);
    out.EndList();
  };
}

WriteValue TupleOf(std::vector<WriteValue> values) {
  return [values = std::move(values)](PickleWriter& out) {
    out.BeginTuple();
    for (const WriteValue& value : values) value(out);
    out.EndTuple();
  };
}

WriteValue Global(std::string module, std::string name) {
  return [=](PickleWriter& out) { out.Global(module, name); };
}

// 2^63.
void BigInt(PickleWriter& out) { out.BigInt(std::string_view("\0\0\0\0\0\0\0\x80\0", 9)); }

WriteValue ChunkValue(WriteValue offsets, WriteValue sizes) {
  return Instance(kMetadataModule, "ChunkStorageMetadata",
                  Dict({{Text("offsets"), std::move(offsets)}, {Text("sizes"), std::move(sizes)}}));
}

struct Damage {
  std::string name;
  std::map<std::string, WriteValue> instead;
  ErrorKind kind;
  std::string message;
  std::string actual = {};
};
void PrintTo(const Damage& damage, std::ostream* os) { *os << damage.name; }

std::string Name(const ::testing::TestParamInfo<Damage>& info) { return info.param.name; }

// Parts that say how the rest is to be understood: nothing of such a file is believed.
std::vector<Damage> OfTheWhole() {
  constexpr ErrorKind kBad = ErrorKind::kBadMetadata;
  const std::string no_metadata = "does not hold a torch.distributed.checkpoint Metadata";
  const std::string neither = "neither TensorStorageMetadata nor BytesStorageMetadata";
  const std::string tensor_class = std::string(kMetadataModule) + ".TensorStorageMetadata";
  return {
      {"no_object", {{"root", List}}, kBad, no_metadata, "list"},
      {"another_object", {{"root", Instance("a", "B", Dict({}))}}, kBad, no_metadata, "a.B"},
      {"no_state",
       {{"root", Instance(kMetadataModule, "Metadata")}},
       kBad,
       no_metadata,
       "Metadata"},
      {"state_is_no_dict", {{"state", List}}, kBad, no_metadata, "Metadata"},
      {"no_dict_of_tensors",
       {{"state_dict_metadata", None}},
       kBad,
       "state_dict_metadata is not a dict"},
      {"no_tensors_at_all", {{"state", Dict({})}}, kBad, "state_dict_metadata is not a dict"},
      {"no_storage_data",
       {{"state", Dict({{Text("state_dict_metadata"), Dict({})}})}},
       kBad,
       "storage_data is missing"},
      {"storage_data_is_a_list",
       {{"storage_data", List}},
       kBad,
       "storage_data is not a dict",
       "list"},
      {"key_is_a_number", {{"key", Int(3)}}, kBad, "a key of state_dict_metadata is not text"},
      {"key_twice", {{"key", Text("o")}}, kBad, "the same key twice"},
      {"index_is_a_text",
       {{"index", Text("w")}},
       kBad,
       "a key of storage_data is not a MetadataIndex"},
      {"index_is_a_size",
       {{"index", Size({0})}},
       kBad,
       "a key of storage_data is not a MetadataIndex"},
      {"offset_of_the_index_is_a_text",
       {{"index_offset", Text("0")}},
       kBad,
       "a key of storage_data is not a MetadataIndex"},
      {"item_is_a_number",
       {{"stored", Int(3)}},
       kBad,
       "a value of storage_data is not a _StorageInfo"},
      {"item_is_a_size",
       {{"stored", Size({0})}},
       kBad,
       "a value of storage_data is not a _StorageInfo"},
      {"path_is_a_number",
       {{"relative_path", Int(3)}},
       kBad,
       "a value of storage_data is not a _StorageInfo"},
      {"tensor_is_a_number", {{"tensor", Int(3)}}, kBad, neither},
      {"tensor_is_a_size", {{"tensor", Size({2})}}, kBad, neither},
      {"tensor_is_another_object",
       {{"tensor", Instance("a", "B", Dict({}))}},
       kBad,
       neither,
       "a.B"},
      {"tensor_is_its_class",
       {{"tensor", Global(kMetadataModule, "TensorStorageMetadata")}},
       kBad,
       neither,
       tensor_class},
      {"tensor_is_a_call",
       {{"tensor", [](PickleWriter& out) { out.Global("a", "b").EmptyTuple().Reduce(); }}},
       kBad,
       neither,
       "a.b"},
      {"tensor_without_state",
       {{"tensor", Instance(kMetadataModule, "TensorStorageMetadata")}},
       kBad,
       neither,
       tensor_class},
      {"state_of_the_tensor_is_a_list", {{"tensor_state", List}}, kBad, neither, tensor_class},
      {"tensor_without_size", {{"tensor_state", Dict({})}}, kBad, "size is not a list of integers"},
      {"too_many_fields",
       {{"properties_state",
         Dict(testing::WrittenPairs(33, {Text("dtype"), Global("torch", "float32")}))}},
       kBad,
       "properties holds no dtype"},
      {"size_is_a_number", {{"size", Int(2)}}, kBad, "size is not a list of integers"},
      {"size_of_texts", {{"size", ListOf({Text("2")})}}, kBad, "size is not a list of integers"},
      {"size_of_too_many_dims",
       {{"size", ListOf(std::vector<WriteValue>(65, Int(1)))}},
       kBad,
       "size is not a list of integers"},
      {"size_with_a_state",
       {{"size", Instance("torch", "Size", Dict({}))}},
       kBad,
       "size is not a list of integers"},
      {"size_of_two_arguments",
       {{"size",
         [](PickleWriter& out) {
           out.Global("torch", "Size").BeginTuple().IntTuple(Dims{2}).Int(1).EndTuple().Reduce();
         }}},
       kBad,
       "size is not a list of integers"},
      {"no_chunks",
       {{"tensor_state", Dict({{Text("size"), Size({2})}})}},
       kBad,
       "chunks is not a list"},
      {"chunks_are_a_number", {{"chunks", Int(1)}}, kBad, "chunks is not a list"},
      {"chunk_is_a_number", {{"chunk", Int(1)}}, kBad, "a chunk is not a pair of integer lists"},
      {"chunk_is_a_size", {{"chunk", Size({2})}}, kBad, "a chunk is not a pair of integer lists"},
      {"chunk_of_a_tuple_is_a_number",
       {{"chunks", TupleOf({Int(1)})}},
       kBad,
       "a chunk is not a pair of integer lists"},
      {"offsets_are_a_text",
       {{"offsets", Text("0")}},
       kBad,
       "a chunk is not a pair of integer lists"},
      {"sizes_are_none", {{"sizes", None}}, kBad, "a chunk is not a pair of integer lists"},
      {"no_properties", {{"properties", None}}, kBad, "properties holds no dtype"},
      {"properties_of_nothing",
       {{"properties_state", TupleOf({})}},
       kBad,
       "properties holds no dtype"},
      {"dtype_is_a_text",
       {{"properties_state", TupleOf({Text("float32")})}},
       kBad,
       "properties holds no dtype"},
      {"dtype_of_numpy",
       {{"properties_state", TupleOf({Global("numpy", "float32")})}},
       kBad,
       "properties holds no dtype"},
      {"chunks_by_the_million",
       {{"chunks",
         [](PickleWriter& out) {
           out.BeginList();
           ChunkValue(Size({0}), Size({2}))(out);
           const std::uint32_t slot = out.Memoize();
           for (int i = 0; i < 5000; ++i) out.Recall(slot);
           out.EndList();
         }}},
       ErrorKind::kResource,
       "tensors list more chunks than the file can hold"},
  };
}

class WholeDamageTest : public ::testing::TestWithParam<Damage> {};
INSTANTIATE_TEST_SUITE_P(Cases, WholeDamageTest, ::testing::ValuesIn(OfTheWhole()), Name);

TEST_P(WholeDamageTest, IsRefused) {
  const Result<MetadataExtras> read = Read({.instead = GetParam().instead}).extras;
  ASSERT_THAT(read, FailsWith(GetParam().kind));
  const Problem& problem = read.status().first();
  EXPECT_THAT(problem.message, HasSubstr(GetParam().message));
  EXPECT_THAT(problem.actual, HasSubstr(GetParam().actual));
  EXPECT_EQ(problem.file, "__0.metadata");
}

// Parts that concern one tensor: it is not delivered, and nothing else suffers.
std::vector<Damage> OfOneTensor() {
  const std::string no_short_list = "transform_descriptors is not a short list of texts";
  return {
      {"chunk_of_other_offsets",
       {{"chunk", ChunkValue(Size({0, 0}), Size({2}))}},
       ErrorKind::kBadMetadata,
       "a chunk has 2 dimensions, the tensor 1"},
      {"chunk_of_fewer_offsets",
       {{"chunk", ChunkValue(Size({}), Size({2}))}},
       ErrorKind::kBadMetadata,
       "a chunk has 0 dimensions, the tensor 1"},
      {"chunk_of_other_sizes",
       {{"chunk", ChunkValue(Size({0}), Size({2, 1}))}},
       ErrorKind::kBadMetadata,
       "a chunk has 2 dimensions, the tensor 1"},
      {"negative_size",
       {{"sizes", Size({-1})}},
       ErrorKind::kBadMetadata,
       "negative size of a chunk"},
      {"negative_offset",
       {{"offsets", Size({-1})}},
       ErrorKind::kOutOfRange,
       "negative offset of a chunk"},
      {"chunk_longer_than_its_tensor",
       {{"sizes", Size({3})}},
       ErrorKind::kOutOfRange,
       "a chunk lies outside its tensor",
       "[0:3]"},
      {"chunk_behind_its_tensor",
       {{"offsets", Size({1})}},
       ErrorKind::kOutOfRange,
       "a chunk lies outside its tensor",
       "[1:3]"},
      {"chunk_whose_end_wraps",
       {{"offsets", Size({INT64_MAX})}},
       ErrorKind::kOutOfRange,
       "a chunk lies outside its tensor"},
      {"dtype_of_another_time",
       {{"properties_state", TupleOf({Global("torch", "float3")})}},
       ErrorKind::kUnsupported,
       "unknown dtype",
       "float3"},
      {"item_of_another_chunk",
       {{"index_offset", Size({1})}},
       ErrorKind::kBadMetadata,
       "no storage entry"},
      {"item_of_an_object", {{"index_offset", None}}, ErrorKind::kBadMetadata, "no storage entry"},
      {"negative_offset_of_the_item",
       {{"stored_offset", Int(-1)}},
       ErrorKind::kOutOfRange,
       "negative offset",
       "-1"},
      {"offset_of_64_bits",
       {{"stored_offset", BigInt}},
       ErrorKind::kOutOfRange,
       "offset is not a 64-bit integer"},
      {"length_is_a_text",
       {{"stored_length", Text("4")}},
       ErrorKind::kBadMetadata,
       "length is not an integer"},
      {"transforms_are_a_number", {{"transforms", Int(1)}}, ErrorKind::kBadMetadata, no_short_list},
      {"transform_is_a_number",
       {{"transforms", ListOf({Int(1)})}},
       ErrorKind::kBadMetadata,
       no_short_list},
      {"too_many_transforms",
       {{"transforms", ListOf(std::vector<WriteValue>(17, Text("stream.zstd/1")))}},
       ErrorKind::kBadMetadata,
       no_short_list},
      {"transform_without_version",
       {{"transforms", ListOf({Text("stream.zstd")})}},
       ErrorKind::kUnsupported,
       "unknown transform \"stream.zstd\""},
      {"transform_of_version_10",
       {{"transforms", ListOf({Text("stream.zstd/10")})}},
       ErrorKind::kUnsupported,
       "unknown transform \"stream.zstd/10\""},
      {"unknown_inner_transform",
       {{"transforms", TupleOf({Text("stream.zstd/1"), Text("lz4/1")})}},
       ErrorKind::kUnsupported,
       "unknown transform \"lz4/1\""},
  };
}

class TensorDamageTest : public ::testing::TestWithParam<Damage> {};
INSTANTIATE_TEST_SUITE_P(Cases, TensorDamageTest, ::testing::ValuesIn(OfOneTensor()), Name);

TEST_P(TensorDamageTest, BarsTheTensor) {
  const Outcome outcome = Read({.instead = GetParam().instead});
  ASSERT_THAT(outcome.extras, IsOk());
  const Status refused = outcome.index.CheckDeliverable("w");
  ASSERT_THAT(refused, FailsWith(GetParam().kind));
  EXPECT_THAT(refused.first().message, HasSubstr(GetParam().message));
  EXPECT_THAT(refused.first().actual, HasSubstr(GetParam().actual));
  EXPECT_EQ(refused.first().file, "__0.metadata");
}

// The other way of writing the same.
struct Variant {
  std::string name;
  std::map<std::string, WriteValue> instead;
};
void PrintTo(const Variant& variant, std::ostream* os) { *os << variant.name; }

class VariantTest : public ::testing::TestWithParam<Variant> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, VariantTest,
    ::testing::Values(
        Variant{"nothing_replaced", {}},
        Variant{"chunks_in_a_tuple", {{"chunks", TupleOf({ChunkValue(Size({0}), Size({2}))})}}},
        Variant{"sizes_as_plain_lists",
                {{"size", ListOf({Int(2)})},
                 {"offsets", ListOf({Int(0)})},
                 {"sizes", TupleOf({Int(2)})}}},
        Variant{"later_version_of_the_transform",
                {{"transforms", TupleOf({Text("stream.zstd/1.5")})}}},
        Variant{"as_many_transforms_as_may_be",
                {{"transforms", ListOf(std::vector<WriteValue>(16, Text("stream.zstd/1")))}}},
        Variant{"properties_by_name",
                {{"properties_state", Dict({{Text("dtype"), Global("torch", "float32")}})}}}),
    [](const auto& of) { return of.param.name; });

TEST_P(VariantTest, IsRead) {
  const Outcome outcome = Read({.instead = GetParam().instead});
  ASSERT_THAT(outcome.extras, IsOk());
  EXPECT_THAT(outcome.index.problems(), IsEmpty());
  const GlobalTensor* const tensor = outcome.index.FindTensor("w");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->dtype, DType::kFloat32);
  EXPECT_THAT(tensor->shape, ElementsAre(2));
  ASSERT_EQ(tensor->num_chunks, 1U);
  EXPECT_EQ(outcome.index.box(outcome.index.chunks(*tensor)[0]), (Box{{0}, {2}}));
  EXPECT_NE(outcome.index.FindObject("o"), nullptr);
}

TEST(MetadataLimitsTest, ATensorMayHaveAsManyDimsAsTorchAllows) {
  const Dims ones(64, 1);
  const Outcome outcome = Read({.shape = ones, .chunks = {{{Dims(64, 0), ones}, 0, 700}}});
  ASSERT_THAT(outcome.extras, IsOk());
  EXPECT_THAT(outcome.index.problems(), IsEmpty());
  ASSERT_NE(outcome.index.FindTensor("w"), nullptr);
  EXPECT_EQ(outcome.index.FindTensor("w")->shape, ones);
}

// Ranks that saved alone, each with a file of its own.
class RanksTest : public ::testing::Test {
 protected:
  static Outcome ReadBoth(const MetadataPickle& first, const MetadataPickle& second) {
    return Read({first.Write(), second.Write()});
  }
};

TEST_F(RanksTest, MustDescribeATensorInTheSameWay) {
  for (const MetadataPickle& other :
       {MetadataPickle{.shape = {3}},
        MetadataPickle{.instead = {{"properties_state", TupleOf({Global("torch", "int32")})}}}}) {
    const Outcome outcome = ReadBoth({}, other);
    ASSERT_THAT(outcome.extras, IsOk());
    const Status refused = outcome.index.CheckDeliverable("w");
    ASSERT_THAT(refused, FailsWith(ErrorKind::kShapeMismatch));
    EXPECT_EQ(refused.first().file, "__1.metadata");
  }
}

TEST_F(RanksTest, MustAgreeWhetherAKeyIsATensor) {
  const Outcome outcome =
      ReadBoth({}, {.instead = {{"tensor", Instance(kMetadataModule, "BytesStorageMetadata")}}});
  ASSERT_THAT(outcome.extras, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_EQ(outcome.extras.status().first().message, "a tensor in one file, an object in another");
  EXPECT_EQ(outcome.extras.status().first().tensor, "w");
}

TEST_F(RanksTest, AddToThePathsOfTheLowestRank) {
  const auto paths = [](const std::string& own) {
    return Dict({{Text("w"), TupleOf({Text("of"), Text(own)})}, {Text(own), TupleOf({Int(0)})}});
  };
  const Outcome outcome = ReadBoth({.instead = {{"planner_data", paths("a")}}},
                                   {.instead = {{"planner_data", paths("b")}}});
  ASSERT_THAT(outcome.extras, IsOk());
  using Path = std::vector<PathStep>;
  EXPECT_THAT(
      outcome.extras->planner_data,
      ::testing::Optional(ElementsAre(PlannerEntry{"w", Path{std::string("of"), std::string("a")}},
                                      PlannerEntry{"a", Path{0}}, PlannerEntry{"b", Path{0}})));
}

// Parts that no tensor needs.
struct Extra {
  std::string name;
  std::string part;
  WriteValue value;
};
void PrintTo(const Extra& extra, std::ostream* os) { *os << extra.name; }

class UselessPathsTest : public ::testing::TestWithParam<Extra> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, UselessPathsTest,
    ::testing::Values(Extra{"no_dict", "planner_data", Int(1)},
                      Extra{"key_is_a_number", "planner_data",
                            Dict({{Int(1), TupleOf({Text("w")})}})},
                      Extra{"path_is_a_text", "planner_data", Dict({{Text("w"), Text("w")}})},
                      Extra{"step_is_none", "planner_data", Dict({{Text("w"), TupleOf({None})}})},
                      Extra{"path_of_too_many_steps", "planner_data",
                            Dict({{Text("w"), ListOf(std::vector<WriteValue>(257, Int(0)))}})}),
    [](const auto& of) { return of.param.name; });

TEST_P(UselessPathsTest, AreIgnoredWithAWarning) {
  const Outcome outcome = Read({.instead = {{GetParam().part, GetParam().value}}});
  ASSERT_THAT(outcome.extras, IsOk());
  EXPECT_EQ(outcome.extras->planner_data, std::nullopt);
  EXPECT_THAT(outcome.index.CheckDeliverable("w"), IsOk());
  EXPECT_THAT(outcome.index.problems(),
              ElementsAre(AllOf(Field(&Problem::severity, Severity::kWarning),
                                Field(&Problem::kind, ErrorKind::kBadMetadata),
                                Field(&Problem::message, HasSubstr("is ignored")))));
}

TEST(MetadataExtrasTest, TakePathsOfAsManyStepsAsMayBe) {
  const WriteValue path = ListOf(std::vector<WriteValue>(256, Int(7)));
  const Outcome outcome = Read({.instead = {{"planner_data", Dict({{Text("w"), path}})}}});
  ASSERT_THAT(outcome.extras, IsOk());
  EXPECT_THAT(outcome.extras->planner_data,
              ::testing::Optional(
                  ElementsAre(PlannerEntry{"w", std::vector<PathStep>(256, std::int64_t{7})})));
}

TEST(MetadataExtrasTest, TakeOnlyShapesFromWhatMegatronAdds) {
  const std::string shape_field = "nd_reformulated_orig_global_shape";
  const WriteValue shape = Dict({{Text(shape_field), TupleOf({Int(4), Int(6)})}});
  testing::WrittenPairs many = {{Text(shape_field), Size({1})}};
  for (int i = 0; i < 31; ++i) many.emplace_back(Text(fmt::format("field {}", i)), None);
  testing::WrittenPairs too_many = many;
  too_many.emplace_back(Text("one more"), None);
  const Outcome outcome = Read({.instead = {{"mcore_data", Dict({{Text("w"), shape},
                                                                 {Int(1), shape},
                                                                 {Text("x"), Size({1})},
                                                                 {Text("y"), Dict({})},
                                                                 {Text("v"), Dict(many)},
                                                                 {Text("z"), Dict(too_many)}})}}});
  ASSERT_THAT(outcome.extras, IsOk());
  EXPECT_THAT(outcome.extras->original_shapes,
              ElementsAre(::testing::Pair("v", Dims{1}), ::testing::Pair("w", Dims{4, 6})));
  EXPECT_THAT(Read({.instead = {{"mcore_data", Int(1)}}}).extras->original_shapes, IsEmpty());
}

TEST(MetadataExtrasTest, DoWithoutAStateOfTheStorage) {
  const WriteValue names = Dict({{Text("checkpoint_id"), Int(1)}, {Text("save_id"), Text("id")}});
  const Outcome usual =
      Read({.instead = {{"storage_meta", Instance(kMetadataModule, "StorageMeta", names)}}});
  ASSERT_THAT(usual.extras, IsOk());
  EXPECT_EQ(usual.extras->checkpoint_id, std::nullopt);
  EXPECT_EQ(usual.extras->save_id, "id");
  for (const WriteValue& meta :
       {Instance(kMetadataModule, "StorageMeta"),
        Instance(kMetadataModule, "StorageMeta", ListOf({names})), names}) {
    const Outcome outcome = Read({.instead = {{"storage_meta", meta}}});
    ASSERT_THAT(outcome.extras, IsOk());
    EXPECT_EQ(outcome.extras->save_id, std::nullopt);
  }
}

}  // namespace
}  // namespace ckpt::dcp
