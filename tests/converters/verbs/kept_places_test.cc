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

// Of a checkpoint with objects at these places.
PreparedConversion OpenedWith(const EntryPaths& places) {
  StatedObjects objects;
  for (const auto& [key, path] : places) objects[key] = "1";
  const auto stated =
      std::make_shared<const StatedSource>(std::vector<MemoryTensor>(), std::move(objects));
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
  KeepCarriedPaths(*FormatNamed(**FindFormat(container), "fsdp2"), prepared, request);
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
