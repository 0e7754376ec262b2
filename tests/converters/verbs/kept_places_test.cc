// Where entries stood in a nested object, in targets whose keys are texts and in others.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "converters/verbs/internal/carry_objects.h"
#include "converters/verbs/target.h"
#include "core/checkpoint/forwarding_source.h"
#include "formats/registry/registry.h"
#include "tests/testing/stated_source.h"

namespace ckpt {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using testing::StatedObjects;
using testing::StatedSource;

class PlacedSource final : public ForwardingSource {
 public:
  PlacedSource(std::shared_ptr<const CheckpointSource> below, EntryPaths places)
      : ForwardingSource(*below), below_(std::move(below)), places_(std::move(places)) {}

  [[nodiscard]] EntryPaths Paths() const override { return places_; }

 private:
  std::shared_ptr<const CheckpointSource> below_;
  EntryPaths places_;
};

// Of a checkpoint with tensors, and objects at the other places.
PreparedConversion OpenedWith(const EntryPaths& places, std::vector<MemoryTensor> tensors = {}) {
  StatedObjects objects;
  for (const auto& [key, path] : places) objects[key] = "1";
  for (const MemoryTensor& tensor : tensors) objects.erase(tensor.key);
  const auto stated = std::make_shared<const StatedSource>(std::move(tensors), std::move(objects));
  OpenedCheckpoint opened;
  opened.source = std::make_shared<const PlacedSource>(stated, places);
  opened.path = "source.pt";
  PreparedConversion prepared;
  prepared.model.checkpoint = std::make_shared<const OpenedCheckpoint>(std::move(opened));
  return prepared;
}

EntryPaths Twins(const PathStep& key, const std::string& text) {
  const std::string in = "in";
  return {{"in." + text + ".a", {in, key, std::string("a")}},
          {"in." + text + ".b", {in, text, std::string("b")}}};
}

const std::vector<std::pair<PathStep, std::string>> kTwins = {{NumberKey{0}, "0"},
                                                              {ConstantKey::kTrue, "True"},
                                                              {ConstantKey::kFalse, "False"},
                                                              {ConstantKey::kNone, "None"}};

TEST(KeptPlacesTest, MappingsOfOneTextAreNotMerged) {
  for (const auto& [key, text] : kTwins) {
    SCOPED_TRACE(text);
    const EntryPaths places = Twins(key, text);
    PreparedConversion prepared = OpenedWith(places);
    WeightsRequest request;
    KeepPaths(**FindFormat("torch_save"), {}, prepared, request);
    EXPECT_EQ(request.paths, places);
    EXPECT_THAT(prepared.warnings, IsEmpty());
    WeightsRequest as_texts;
    KeepPaths(**FindFormat("dcp"), {}, prepared, as_texts);
    EXPECT_THAT(as_texts.paths, IsEmpty());
    ASSERT_THAT(prepared.warnings, SizeIs(1));
    EXPECT_THAT(prepared.warnings[0].message, HasSubstr("one flat mapping"));
  }
}

RunRequest Carry(const char* container, PreparedConversion& prepared) {
  RunRequest request;
  for (const ObjectEntry& object : prepared.model.source().index().objects()) {
    request.carried.push_back({object.key, {}});
  }
  EXPECT_THAT(KeepCarried(*FormatNamed(**FindFormat(container), "fsdp2"), prepared, request),
              IsOk());
  return request;
}

TEST(KeptPlacesTest, WhatGoesAlongWithARunIsNotMergedEither) {
  for (const auto& [key, text] : kTwins) {
    SCOPED_TRACE(text);
    const EntryPaths places = Twins(key, text);
    PreparedConversion prepared = OpenedWith(places);
    EXPECT_EQ(Carry("torch_save", prepared).carried_paths, places);
    EXPECT_THAT(prepared.warnings, IsEmpty());
    EXPECT_THAT(Carry("dcp", prepared).carried_paths, IsEmpty());
    ASSERT_THAT(prepared.warnings, SizeIs(1));
    EXPECT_THAT(prepared.warnings[0].message, HasSubstr("goes along with the run"));
    EXPECT_EQ(prepared.warnings[0].file, "source.pt");
  }
}

EntryPath InList(const std::string& list, std::int64_t position) { return {list, position}; }

// Two lists in a target: one that torch takes apart, and one that lost an entry, or a tensor.
TEST(KeptPlacesTest, ListsThatTorchWouldNotFindAreTold) {
  const EntryPaths places = {{"a.0", InList("a", 0)},
                             {"a.1", InList("a", 1)},
                             {"b.0", InList("b", 0)},
                             {"b.1", InList("b", 1)}};
  const auto message = [&](const char* format, const std::vector<std::string>& objects) {
    PreparedConversion prepared = OpenedWith(places);
    WeightsRequest request;
    request.tensors = {{"a.0", DType::kInt8, {}}};
    for (const std::string& key : objects) request.carried_objects.push_back({.key = key});
    KeepPaths(**FindFormat(format), {}, prepared, request);
    EXPECT_EQ(request.paths, places);
    if (prepared.warnings.empty()) return std::string();
    EXPECT_EQ(prepared.warnings[0].tensor, "b");
    return prepared.warnings[0].message;
  };
  EXPECT_EQ(message("dcp", {"a.1"}), "");
  EXPECT_THAT(message("dcp", {"a.1", "b.1"}), HasSubstr("1 list becomes a mapping"));
  EXPECT_THAT(message("dcp", {"a.1", "b.0", "b.1"}), HasSubstr("1 list becomes a mapping"));
  EXPECT_EQ(message("torch_save", {"a.1", "b.0", "b.1"}), "");
}

MemoryTensor Rates(const std::string& key, std::int64_t count) {
  return {key, DType::kUint8, {count}, Bytes(static_cast<std::size_t>(count), std::byte{7})};
}

// A run with two tensors beside the objects of its scheduler, and a constant of the model.
PreparedConversion RunWithRates(std::int64_t second_count) {
  PreparedConversion prepared =
      OpenedWith({{"s.last", {std::string("s"), std::string("last")}},
                  {"s.rates.0", {std::string("s"), std::string("rates"), std::int64_t{0}}},
                  {"s.rates.1", {std::string("s"), std::string("rates"), std::int64_t{1}}}},
                 {Rates("s.rates.0", 2), Rates("s.rates.1", second_count), Rates("inv_freq", 3)});
  ModelSource& model = prepared.model;
  model.match.layout.ignores = {{.pattern = "s.*", .reason = "schedule", .is_bookkeeping = true},
                                {.pattern = "inv_*", .reason = "constant", .is_bookkeeping = true}};
  model.left_out = {{"s.rates.0", 2, "schedule", true},
                    {"s.rates.1", static_cast<std::uint64_t>(second_count), "schedule", true},
                    {"inv_freq", 3, "constant", true}};
  return prepared;
}

TEST(KeptPlacesTest, TensorsOfASchedulerGoAlongWithIt) {
  for (const char* container : {"dcp", "torch_save"}) {
    PreparedConversion prepared = RunWithRates(3);
    const RunRequest request = Carry(container, prepared);
    ASSERT_THAT(request.carried_tensors, SizeIs(2)) << container;
    EXPECT_EQ(request.carried_tensors[0].key, "s.rates.0");
    EXPECT_EQ(request.carried_tensors[1].shape, Dims{3});
    EXPECT_EQ(request.carried_tensors[1].values, Bytes(3, std::byte{7}));
    EXPECT_THAT(request.carried_paths, SizeIs(3));
    ASSERT_THAT(prepared.model.left_out, SizeIs(1));
    EXPECT_EQ(prepared.model.left_out[0].key, "inv_freq");
    EXPECT_TRUE(prepared.model.left_out[0].is_bookkeeping);
    EXPECT_THAT(prepared.warnings, IsEmpty());
  }
}

// The plan would have their elements. The summary of the conversion counts them.
TEST(KeptPlacesTest, LargeTensorsBesideARunAreLeftOut) {
  PreparedConversion prepared = RunWithRates(std::int64_t{17} << 20);
  EXPECT_THAT(Carry("dcp", prepared).carried_tensors, SizeIs(1));
  ASSERT_THAT(prepared.model.left_out, SizeIs(2));
  EXPECT_EQ(prepared.model.left_out[0].key, "s.rates.1");
  EXPECT_THAT(prepared.model.left_out[0].why, HasSubstr("more than 16.0 MiB"));
  EXPECT_FALSE(prepared.model.left_out[0].is_bookkeeping);
}

TEST(KeptPlacesTest, OtherKeysBecomeTextsWhereTheyStood) {
  const EntryPath path = {std::string("in"), NumberKey{0}, ConstantKey::kNone};
  PreparedConversion prepared = OpenedWith({{"in.0.None", path}});
  EXPECT_EQ(Carry("dcp", prepared).carried_paths, (EntryPaths{{"in.0.None", WithTextKeys(path)}}));
  WeightsRequest request;
  KeepPaths(**FindFormat("dcp"), {}, prepared, request);
  EXPECT_EQ(request.paths, (EntryPaths{{"in.0.None", WithTextKeys(path)}}));
  EXPECT_THAT(prepared.warnings, IsEmpty());
}

}  // namespace
}  // namespace ckpt
