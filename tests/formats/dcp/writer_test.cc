#include "formats/dcp/writer.h"

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/entry_paths.h"
#include "core/checkpoint/index.h"
#include "formats/dcp/internal/item_framing.h"
#include "formats/dcp/metadata.h"
#include "tests/testing/matchers.h"

namespace ckpt::dcp {
namespace {

using testing::FailsWith;
using testing::IsOk;

// None, pickled.
PickledEntry Object(std::string key) {
  const ByteSpan none = AsBytes("\x80\x02N.");
  return {.key = std::move(key), .value = {Bytes(none.begin(), none.end())}};
}

TEST(PlanDcpTest, RefusesAKeyTwice) {
  const TargetTensor tensor = {.key = "a", .dtype = DType::kFloat32, .shape = {1}};
  const auto both_tensors = PlanDcp({tensor, tensor}, {});
  ASSERT_THAT(both_tensors, FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_EQ(both_tensors.status().first().tensor, "a");
  EXPECT_THAT(PlanDcp({tensor}, {.objects = {Object("a")}}), FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(PlanDcp({}, {.objects = {Object("b"), Object("b")}}),
              FailsWith(ErrorKind::kAlreadyExists));
  EXPECT_THAT(PlanDcp({tensor}, {.objects = {Object("b")}}), IsOk());
}

TEST(PlanDcpTest, StoresKnownTensorsBesideTheObjects) {
  const TargetTensor tensor = {.key = "a", .dtype = DType::kFloat32, .shape = {1}};
  const MemoryTensor step = {
      .key = "step", .dtype = DType::kInt16, .shape = {}, .values = Bytes(2)};
  const auto plan = PlanDcp({tensor}, {.known_tensors = {step}});
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(plan->tensors.size(), 1U);  // nothing is read for it
  EXPECT_EQ(plan->literals.size(), 2U);
  EXPECT_EQ(plan->literals[0].bytes.size(), MeasureItem(DType::kInt16, {}).size_bytes);
  EXPECT_THAT(PlanDcp({tensor}, {.known_tensors = {step, step}}),
              FailsWith(ErrorKind::kAlreadyExists));
  const MemoryTensor cut = {.key = "b", .dtype = DType::kInt16, .shape = {2}, .values = Bytes(3)};
  EXPECT_THAT(PlanDcp({tensor}, {.known_tensors = {cut}}), FailsWith(ErrorKind::kSizeMismatch));
}

TEST(PlanDcpTest, RefusesSizesThatCannotBeCounted) {
  const std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_THAT(PlanDcp({{"a", DType::kFloat32, {huge}}}, {}), FailsWith(ErrorKind::kResource));
  EXPECT_THAT(PlanDcp({{"a", DType::kInt8, {huge}},
                       {"b", DType::kInt8, {huge}},
                       {"c", DType::kInt8, {huge}},
                       {"d", DType::kInt8, {huge}}},
                      {}),
              FailsWith(ErrorKind::kResource));
}

std::vector<std::int64_t> RowsOf(const WritePlan& plan) {
  std::vector<std::int64_t> rows;
  for (const WriteItem& item : plan.items) rows.push_back(item.box.sizes[0]);
  return rows;
}

TEST(PlanDcpTest, CutsATensorIntoRowsThatFit) {
  const std::vector<TargetTensor> tensors = {{"a", DType::kInt8, {7, 4}}};
  for (const auto& [max_bytes, rows] :
       std::vector<std::pair<std::uint64_t, std::vector<int>>>{{28, {7}},
                                                               {27, {6, 1}},
                                                               {8, {2, 2, 2, 1}},
                                                               {7, {1, 1, 1, 1, 1, 1, 1}},
                                                               {3, {1, 1, 1, 1, 1, 1, 1}}}) {
    const auto plan = PlanDcp(tensors, {.max_chunk_bytes = max_bytes});
    ASSERT_THAT(plan, IsOk());
    EXPECT_THAT(RowsOf(*plan), ::testing::ElementsAreArray(rows)) << max_bytes;
  }
}

TEST(PlanDcpTest, EndsChunksWhereItIsAskedTo) {
  WriterOptions options;
  options.max_chunk_bytes = 40;
  options.chunk_ends["a"] = {0, 3, 3, 24};
  const auto plan = PlanDcp({{"a", DType::kFloat32, {30}}, {"b", DType::kFloat32, {10}}}, options);
  ASSERT_THAT(plan, IsOk());
  std::vector<std::int64_t> ends;
  for (const WriteItem& item : plan->items) ends.push_back(item.box.offsets[0] + item.box.sizes[0]);
  EXPECT_THAT(ends, ::testing::ElementsAre(3, 13, 23, 24, 30, 10));
}

TEST(PlanDcpTest, StoresATensorWithoutElementsAsOneItem) {
  const auto plan = PlanDcp({{"a", DType::kInt8, {3, 0}}}, {.max_chunk_bytes = 1});
  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ(plan->items.size(), 1U);
  EXPECT_EQ(plan->items[0].box, (Box{{0, 0}, {3, 0}}));
  EXPECT_EQ(plan->items[0].payload_bytes, 0U);
}

TEST(PlanDcpTest, OpensAFileWhenMoreThanHalfOfAnItemIsTooMuch) {
  const std::vector<TargetTensor> tensors = {{"a", DType::kInt8, {8}}, {"b", DType::kInt8, {8}}};
  const std::uint64_t item_bytes = MeasureItem(DType::kInt8, Dims{8}).size_bytes;
  const auto num_data_files = [&](std::uint64_t max_file_bytes) {
    return PlanDcp(tensors, {.max_file_bytes = max_file_bytes})->files.size() - 1;
  };
  EXPECT_EQ(num_data_files(item_bytes + item_bytes / 2), 1U);
  EXPECT_EQ(num_data_files(item_bytes + item_bytes / 2 - 1), 2U);
}

// Objects, and what stands around small tensors, are bytes like others.
TEST(PlanDcpTest, MakesFilesOfLikeSizes) {
  PickledEntry large = Object("large");
  large.value.pickle.resize(20000);
  std::vector<TargetTensor> tensors;
  for (char name = 'a'; name < 'u'; ++name) {
    tensors.push_back({std::string(1, name), DType::kFloat32, {16}});
  }
  const auto plan = PlanDcp(tensors, {.objects = {large}, .files = 3});
  ASSERT_THAT(plan, IsOk());
  ASSERT_EQ(plan->files.size(), 4U);
  std::uint64_t bytes = 0;
  for (std::size_t f = 0; f < 3; ++f) bytes += plan->files[f].size_bytes;
  for (std::size_t f = 0; f < 3; ++f) {
    EXPECT_GT(plan->files[f].size_bytes, bytes / 6) << f;
    EXPECT_LT(plan->files[f].size_bytes, bytes / 2) << f;
  }
}

// Where `.metadata` says that entries stand which come from these places: objects, but for
// `tensors`.
EntryPaths StoredPaths(const EntryPaths& places, const std::set<std::string>& tensors = {}) {
  WriterOptions options;
  for (const auto& [key, path] : places) {
    if (tensors.contains(key)) {
      options.known_tensors.push_back({key, DType::kInt8, {}, Bytes(1)});
    } else {
      options.objects.push_back(Object(key));
    }
  }
  options.path_of = [&](const std::string& key) { return places.at(key); };
  const auto plan = PlanDcp({}, options);
  EXPECT_THAT(plan, IsOk());
  const MetadataFile file = {.name = ".metadata", .bytes = plan->literals.back().bytes};
  IndexBuilder builder;
  const auto extras = ReadMetadata(std::span(&file, 1), builder);
  EXPECT_THAT(extras, IsOk());
  EntryPaths stored;
  for (const PlannerEntry& entry : *extras->planner_data) stored.emplace(entry.key, entry.path);
  return stored;
}

EntryPath TextPath(const std::vector<std::string>& steps) { return {steps.begin(), steps.end()}; }

// Torch joins the steps of a path with points, and looks for an entry of that name.
TEST(PlanDcpTest, AKeyThatItsPathDoesNotSpellStandsOnTop) {
  EntryPath in_list = TextPath({"l"});
  in_list.emplace_back(std::int64_t{0});
  in_list.emplace_back(std::string("x"));
  const EntryPaths places = {{"['a.b']", TextPath({"a.b"})},
                             {"['a']['b']", TextPath({"a", "b"})},
                             {"l.0.x", in_list},
                             {"m.w.x", TextPath({"m", "w.x"})},
                             {"top", TextPath({"top"})}};
  EntryPaths expected = places;
  for (const char* key : {"['a.b']", "['a']['b']"}) expected[key] = TextPath({key});
  EXPECT_EQ(StoredPaths(places), expected);
}

// Keys of one mapping that are the same as text.
TEST(PlanDcpTest, KeysThatAreOneTextStandOnTop) {
  EntryPath number = TextPath({"d"});
  number.emplace_back(NumberKey{.number = 0});
  const EntryPaths places = {{"['d'][0]", number}, {"['d']['0']", TextPath({"d", "0"})}};
  EXPECT_EQ(StoredPaths(places), (EntryPaths{{"['d'][0]", TextPath({"['d'][0]"})},
                                             {"['d']['0']", TextPath({"['d']['0']"})}}));
  number.emplace_back(std::string("w"));
  EXPECT_EQ(StoredPaths({{"d.0.w", number}}), (EntryPaths{{"d.0.w", TextPath({"d", "0", "w"})}}));
}

TEST(PlanDcpTest, KeysThatAreConstantsAreTexts) {
  const EntryPath constant = {ConstantKey::kTrue, std::string("w")};
  EXPECT_EQ(StoredPaths({{"True.w", constant}}), (EntryPaths{{"True.w", TextPath({"True", "w"})}}));
}

// Torch takes a list apart if a tensor is in it, and asks for every position up to the last.
TEST(PlanDcpTest, ListsThatTorchWouldNotFindAreMappings) {
  const auto at = [](std::int64_t position) { return EntryPath{std::string("l"), position}; };
  const EntryPaths whole = {{"l.0", at(0)}, {"l.1", at(1)}};
  EXPECT_EQ(StoredPaths(whole, {"l.1"}), whole);
  EXPECT_EQ(StoredPaths(whole),
            (EntryPaths{{"l.0", TextPath({"l", "0"})}, {"l.1", TextPath({"l", "1"})}}));
  EXPECT_EQ(StoredPaths({{"l.0", at(0)}, {"l.2", at(2)}}, {"l.0", "l.2"}),
            (EntryPaths{{"l.0", TextPath({"l", "0"})}, {"l.2", TextPath({"l", "2"})}}));
  // What stands on top leaves a gap.
  EXPECT_EQ(StoredPaths({{"['l'][0]", at(0)}, {"l.1", at(1)}}, {"l.1"}),
            (EntryPaths{{"['l'][0]", TextPath({"['l'][0]"})}, {"l.1", TextPath({"l", "1"})}}));
}

TEST(PlanDcpTest, AllStandOnTopWhereOneWouldReplaceAnother) {
  const EntryPaths places = {{"['a']", TextPath({"b"})}, {"['a'].c", TextPath({"['a']", "c"})}};
  EXPECT_EQ(StoredPaths(places),
            (EntryPaths{{"['a']", TextPath({"['a']"})}, {"['a'].c", TextPath({"['a'].c"})}}));
}

TEST(PlanDcpTest, MakesNoMoreFilesThanAskedFor) {
  std::vector<TargetTensor> tensors;
  for (const char* key : {"a", "b", "c", "d", "e"}) tensors.push_back({key, DType::kInt8, {900}});
  for (const int files : {1, 2, 3}) {
    const auto plan = PlanDcp(tensors, {.files = files});
    ASSERT_THAT(plan, IsOk());
    EXPECT_EQ(plan->files.size() - 1, static_cast<std::size_t>(files));
  }
}

}  // namespace
}  // namespace ckpt::dcp
