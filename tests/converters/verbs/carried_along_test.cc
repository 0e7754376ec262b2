// What goes with the tensors of a checkpoint: side files, objects, the arguments of a run. A
// conversion takes it along or lists it.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/filesystem/operations.hpp>
#include <gmock/gmock.h>

#include "converters/config/model_settings.h"
#include "converters/config/run_settings.h"
#include "converters/verbs/convert.h"
#include "converters/verbs/model_source.h"
#include "formats/registry/registry.h"
#include "formats/registry/stored_run.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

using testing::Content;
using testing::ConvertTest;
using ::testing::HasSubstr;
using testing::IsOk;

// Arguments and progress of a run have no place in a repository, where they would be of no use.
TEST_F(ConvertTest, KnowsWhichLeftOutEntriesAreBookkeeping) {
  ASSERT_THAT(Convert(ToFsdp(Golden("llama-tied-fp32"))), IsOk());
  ConvertOptions options = ToHf(dir_.path() / "fsdp");
  options.model.drop = {"*layers.1.*"};
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  std::set<std::string> bookkeeping;
  for (const LeftOutEntry& entry : report->dropped) {
    if (entry.is_bookkeeping) bookkeeping.insert(entry.key);
    EXPECT_EQ(entry.is_bookkeeping, entry.why != "left out on request") << entry.key;
  }
  EXPECT_TRUE(bookkeeping.contains("args"));
  EXPECT_LT(bookkeeping.size(), report->dropped.size());
}

TEST_F(ConvertTest, FilesThatStayBehindAreListedWithTheirSize) {
  ConvertOptions options = Between("hf", "hdf5", Golden("llama-untied-bf16"), "model.h5");
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  EXPECT_FALSE(report->dropped.empty());
  for (const LeftOutEntry& entry : report->dropped) {
    EXPECT_EQ(entry.bytes, boost::filesystem::file_size(options.source / entry.key)) << entry.key;
  }
}

// A trainer's, a person's, or a checkpoint of something else.
TEST_F(ConvertTest, FilesBesideACheckpointAreListed) {
  const auto listed = [](const Path& source, const Path& directory) {
    const testing::TempDir dir;
    ConvertOptions options;
    options.source = source;
    options.target = dir.path() / "target";
    options.to.container = *FindFormat("dcp");
    const auto report = Convert(options);
    EXPECT_THAT(report, IsOk());
    std::vector<std::string> names;
    if (!report.ok()) return names;
    for (const LeftOutEntry& entry : report->dropped) {
      if (!boost::filesystem::exists(directory / entry.key)) continue;  // an object
      EXPECT_EQ(entry.bytes, boost::filesystem::file_size(directory / entry.key)) << entry.key;
      EXPECT_FALSE(entry.why.empty()) << entry.key;
      names.push_back(entry.key);
    }
    return names;
  };
  ConvertOptions file = Between("", "torch_save", Golden("llama-tied-fp32"), "of_torch");
  boost::filesystem::create_directories(file.target);
  file.target /= "pytorch_model.bin";
  for (const ConvertOptions& there : {Between("", "dcp", file.source, "dcp"),
                                      Between("hf", "torch_dist", file.source, "core"), file}) {
    SCOPED_TRACE(there.target);
    ASSERT_THAT(Convert(there), IsOk());
    const bool is_file = there.to.container->is_one_file;
    const auto opened =
        OpenCheckpoint(PosixStorage(), is_file ? there.target.parent_path() : there.target);
    ASSERT_THAT(opened, IsOk());
    const Path& directory = opened->directory;
    EXPECT_THAT(listed(directory, directory), ::testing::IsEmpty()) << "all is read or carried";
    boost::filesystem::create_directories(directory / "modelopt_state");
    for (const char* name : {"README.md", "modelopt_state/common.pt", "rng.pt"}) {
      ASSERT_THAT(WriteSmallFile(PosixStorage(), directory / name, AsBytes("text")), IsOk());
    }
    ASSERT_THAT(WriteSmallFile(PosixStorage(), directory / "empty", {}), IsOk());
    EXPECT_THAT(listed(directory, directory),
                ::testing::ElementsAre("README.md", "modelopt_state/common.pt", "rng.pt"));
    if (is_file) {
      EXPECT_THAT(listed(there.target, directory), ::testing::IsEmpty())
          << "nothing lies beside one file";
    }
  }
}

TEST_F(ConvertTest, FilesBesideACheckpointGoAlongWithAConfiguration) {
  ASSERT_THAT(Convert(Between("", "dcp", Golden("llama-tied-fp32"), "dcp")), IsOk());
  const Path source = dir_.path() / "dcp";
  boost::filesystem::rename(source / "hf_assets" / "config.json", source / "config.json");
  boost::filesystem::remove_all(source / "hf_assets");
  boost::filesystem::remove(source / "ckptkit.json");
  for (const char* name : {"README.md", "rng.pt"}) {
    ASSERT_THAT(WriteSmallFile(PosixStorage(), source / name, AsBytes("x")), IsOk());
  }
  const auto report = Convert(Between("", "dcp", source, "again"));
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->dropped.size(), 1U);
  EXPECT_EQ(report->dropped[0].key, "rng.pt");
  EXPECT_TRUE(boost::filesystem::exists(dir_.path() / "again" / "hf_assets" / "README.md"));
}

TEST_F(ConvertTest, AFileBesideACheckpointThatCannotBeNamedIsAWarning) {
  ASSERT_THAT(Convert(Between("", "dcp", Golden("llama-tied-fp32"), "dcp")), IsOk());
  const Path source = dir_.path() / "dcp";
  ASSERT_THAT(WriteSmallFile(PosixStorage(), source / "a\xff.txt", AsBytes("x")), IsOk());
  const auto report = Convert(Between("", "dcp", source, "again"));
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->warnings.size(), 1U);
  EXPECT_THAT(report->warnings[0].message, HasSubstr("what lies beside the checkpoint"));
}

TEST_F(ConvertTest, AnAdapterTravelsWithItsConfiguration) {
  const Path source = dir_.path() / "adapter";
  boost::filesystem::create_directories(source);
  WriteSafetensors(source / "adapter_model.safetensors",
                   R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   )", 1);
  for (const char* name : {"adapter_config.json", "notes.json"}) {
    ASSERT_THAT(WriteSmallFile(PosixStorage(), source / name, AsBytes("{}")), IsOk());
  }
  ConvertOptions there;
  there.source = source;
  there.target = dir_.path() / "dcp";
  there.to.container = *FindFormat("dcp");
  const auto report = Convert(there);
  ASSERT_THAT(report, IsOk());
  ASSERT_EQ(report->dropped.size(), 1U);
  EXPECT_EQ(report->dropped[0].key, "notes.json");
  EXPECT_EQ(report->dropped[0].bytes, 2U);
  ConvertOptions back;
  back.source = there.target;
  back.target = dir_.path() / "back";
  back.to.container = *FindFormat("safetensors");
  ASSERT_THAT(Convert(back), IsOk());
  for (const char* name : {"adapter_model.safetensors", "adapter_config.json"}) {
    EXPECT_EQ(Content(back.target / name), Content(source / name)) << name;
  }
}

TEST_F(ConvertTest, WhatHeadersOfSafetensorsSayIsCarriedOrListed) {
  const Path source = dir_.path() / "model.safetensors";
  WriteSafetensors(
      source,
      R"({"__metadata__":{"note":"mine"},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1);
  const auto dropped = [&](const Path& from, const std::string& to, const Path& target,
                           const std::map<std::string, std::string>& rename = {}) {
    ConvertOptions options;
    options.source = from;
    options.target = target;
    options.to.container = *FindFormat(to);
    options.model.rename = rename;
    std::vector<std::string> keys;
    const auto report = Convert(options);
    EXPECT_THAT(report, IsOk()) << to;
    if (!report.ok()) return keys;
    for (const LeftOutEntry& entry : report->dropped) keys.push_back(entry.key);
    return keys;
  };
  const auto note_in = [](const Path& path) {
    const auto opened = OpenCheckpoint(PosixStorage(), path, {});
    EXPECT_THAT(opened, IsOk());
    const ObjectEntry* const note = opened->source->index().FindObject("__metadata__.note");
    return note == nullptr ? "absent" : opened->source->ReadObject(*note).value().json;
  };
  for (const std::string to : {"dcp", "hdf5", "safetensors", "torch_save"}) {
    const Path target = dir_.path() / to;
    EXPECT_THAT(dropped(source, to, target), ::testing::IsEmpty()) << to;
    EXPECT_EQ(note_in(target), R"("mine")") << to;
    // And the way back.
    const Path back = dir_.path() / ("back-" + to);
    EXPECT_THAT(dropped(target, "safetensors", back), ::testing::IsEmpty()) << to;
    EXPECT_EQ(note_in(back), R"("mine")") << to;
    // Other files have headers of their own.
    const Path other = dir_.path() / ("other-" + to);
    EXPECT_THAT(dropped(target, "safetensors", other, {{"a", "b"}}),
                ::testing::ElementsAre("__metadata__.note"))
        << to;
    EXPECT_EQ(note_in(other), "absent") << to;
  }
}

// The way to HDF5 leaves out what only a digest is left of there, and says so with its bytes.
TEST_F(ConvertTest, ObjectsTravelAsTextAndBecomePicklesAgain) {
  const Path run = testing::GoldenDir() / "fsdp_dtensor" / "dense_fsdp2" / "ckpt";
  ConvertOptions there;
  there.source = run;
  there.target = dir_.path() / "run.h5";
  there.to.container = *FindFormat("hdf5");
  const auto to_hdf5 = Convert(there);
  ASSERT_THAT(to_hdf5, IsOk());
  std::set<std::string> told;  // on the way there
  for (const LeftOutEntry& entry : to_hdf5->dropped) {
    if (!entry.why.starts_with("as a text alone: ")) continue;
    EXPECT_GT(entry.bytes, 0U) << entry.key;
    told.insert(entry.key);
  }
  EXPECT_THAT(told, ::testing::Not(::testing::IsEmpty()));
  ConvertOptions back;
  back.source = there.target;
  back.target = dir_.path() / "run";
  back.to.container = *FindFormat("dcp");
  const auto report = Convert(back);
  ASSERT_THAT(report, IsOk());
  std::set<std::string> dropped;
  for (const LeftOutEntry& entry : report->dropped) {
    EXPECT_THAT(entry.why, HasSubstr("only a digest is known")) << entry.key;
    dropped.insert(entry.key);
  }
  EXPECT_EQ(dropped, told);

  const auto first = OpenCheckpoint(PosixStorage(), run);
  ASSERT_THAT(first, IsOk());
  const auto last = OpenCheckpoint(PosixStorage(), back.target);
  ASSERT_THAT(last, IsOk());
  EXPECT_EQ(last->format->name, "fsdp_dtensor");
  const CheckpointIndex& index = first->source->index();
  EXPECT_LT(dropped.size(), index.objects().size());
  for (const ObjectEntry& object : index.objects()) {
    const ObjectEntry* const again = last->source->index().FindObject(object.key);
    EXPECT_EQ(again == nullptr, dropped.contains(object.key)) << object.key;
    if (again == nullptr) continue;
    const auto expected = first->source->ReadObject(object);
    ASSERT_THAT(expected, IsOk());
    const auto actual = last->source->ReadObject(*again);
    ASSERT_THAT(actual, IsOk());
    EXPECT_EQ(actual->type, expected->type) << object.key;
    EXPECT_EQ(actual->json, expected->json) << object.key;
  }
  EXPECT_THAT(ReadStoredRun(*last), IsOk());

  // Whoever takes the weights alone, does not get the run's arguments with them.
  back.target = dir_.path() / "weights";
  back.model.only = {"model.*"};
  const auto weights = Convert(back);
  ASSERT_THAT(weights, IsOk());
  const auto opened = OpenCheckpoint(PosixStorage(), back.target);
  ASSERT_THAT(opened, IsOk());
  EXPECT_THAT(opened->source->index().objects(), ::testing::IsEmpty());
  EXPECT_TRUE(std::ranges::any_of(weights->dropped, [](const LeftOutEntry& entry) {
    return entry.key == "args" && entry.why == kLeftOutOnRequest;
  }));
}

// Objects of one pickle have no bytes of their own in it.
TEST_F(ConvertTest, ObjectsOfATorchFileAreLeftOutWithTheirBytes) {
  ConvertOptions options;
  options.source = testing::GoldenDir() / "dcp" / "pt_nested" / "ckpt";
  options.target = dir_.path() / "tensors";
  options.to.container = *FindFormat("safetensors");
  const auto report = Convert(options);
  ASSERT_THAT(report, IsOk());
  EXPECT_FALSE(report->dropped.empty());
  for (const LeftOutEntry& entry : report->dropped) EXPECT_GT(entry.bytes, 0U) << entry.key;
}

// HDF5 is one level of data sets. What comes out of it stands where it stood before.
TEST_F(ConvertTest, PlacesInANestedObjectGoThroughHdf5) {
  for (const std::string name : {"pt_nested", "pt_training", "nested"}) {
    const Path source = testing::GoldenDir() / "dcp" / name / "ckpt";
    for (const std::string form : {"plain", "compressed", "files", "linked"}) {
      SCOPED_TRACE(name + ", " + form);
      const testing::TempDir dir;
      ConvertOptions there;
      there.source = source;
      there.target = dir.path() / "all.h5";
      there.to.container = *FindFormat("hdf5");
      there.link = form == "linked";
      if (form == "files") there.files = 2;
      if (form == "compressed") there.zstd_level = 3;
      const auto stored = Convert(there);
      ASSERT_THAT(stored, IsOk());
      const auto before = OpenCheckpoint(PosixStorage(), source);
      ASSERT_THAT(before, IsOk());
      EntryPaths expected = before->source->Paths();
      for (const LeftOutEntry& entry : stored->dropped) expected.erase(entry.key);
      for (const char* container : {"torch_save", "dcp"}) {
        ConvertOptions back;
        back.source = there.target;
        back.target = dir.path() / container;
        back.to.container = *FindFormat(container);
        ASSERT_THAT(Convert(back), IsOk());
        const auto after = OpenCheckpoint(PosixStorage(), back.target);
        ASSERT_THAT(after, IsOk());
        const EntryPaths found = after->source->Paths();
        EXPECT_GT(std::ranges::count_if(found, [](const auto& p) { return p.second.size() > 1; }),
                  0);
        for (const auto& [key, path] : expected) {
          const bool has_numbers = container == std::string_view("torch_save");
          ASSERT_TRUE(found.contains(key)) << key;
          EXPECT_EQ(found.at(key), has_numbers ? path : WithTextKeys(path)) << key;
        }
      }
    }
  }
}

TEST_F(ConvertTest, ArgsTellTheTargetsDtype) {
  struct Case {
    std::optional<DType> dtype;
    bool fp16;
    bool bf16;
  };
  for (const Case& c : {Case{std::nullopt, true, false}, Case{DType::kBfloat16, false, true},
                        Case{DType::kFloat32, false, false}}) {
    const testing::TempDir dir;
    ConvertOptions options = ToFsdp(Golden("llama-bias-fp16"));
    options.target = dir.path() / "fsdp";
    options.dtype = c.dtype;
    ASSERT_THAT(Convert(options), IsOk());
    const auto model = OpenModel(PosixStorage(), options.target, {});
    ASSERT_THAT(model, IsOk());
    const auto args = ReadRunArgs(*model->checkpoint);
    ASSERT_THAT(args, IsOk());
    EXPECT_EQ(args->at("fp16"), layout::Value(c.fp16));
    EXPECT_EQ(args->at("bf16"), layout::Value(c.bf16));
  }
}

// Through the file and back: the trainer finds the model that config.json describes.
TEST_F(ConvertTest, ArgsDescribeTheModelOfTheSource) {
  for (const std::string& name : testing::GoldenCases("hf")) {
    SCOPED_TRACE(name);
    const auto source = OpenModel(PosixStorage(), Golden(name), {});
    if (!source.ok()) continue;  // of no family here
    const auto settings = ModelSettings(source->config);
    if (!settings.ok()) continue;
    const testing::TempDir dir;
    ConvertOptions options = ToFsdp(Golden(name));
    options.target = dir.path() / "fsdp";
    ASSERT_THAT(Convert(options), IsOk());
    const auto model = OpenModel(PosixStorage(), options.target, {});
    ASSERT_THAT(model, IsOk());
    const auto args = ReadRunArgs(*model->checkpoint);
    ASSERT_THAT(args, IsOk());
    const auto stored = StoredModelSettings(*args);
    ASSERT_THAT(stored, IsOk());
    for (const auto& [setting, value] : *settings) {
      ASSERT_TRUE(stored->contains(setting)) << setting;
      EXPECT_EQ(stored->at(setting), value) << setting;
    }
  }
}

// Megatron's own checkpoints have no config.json, and their arguments say more than one could.
TEST_F(ConvertTest, ArgsOfARunWithoutAConfigurationArePassedOn) {
  for (const std::string& name : testing::GoldenCases("hf")) {
    SCOPED_TRACE(name);
    const auto source = OpenModel(PosixStorage(), Golden(name), {});
    if (!source.ok() || !ModelSettings(source->config).ok()) continue;
    const testing::TempDir dir;
    ConvertOptions there = ToFsdp(Golden(name));
    there.target = dir.path() / "fsdp";
    ASSERT_THAT(Convert(there), IsOk());
    boost::filesystem::remove_all(there.target / "release/hf_assets");
    boost::filesystem::remove(there.target / "release/ckptkit.json");
    ConvertOptions on = Between("fsdp_dtensor", "torch_dist", there.target, "core");
    on.target = dir.path() / "core";
    const auto report = Convert(on);
    ASSERT_THAT(report, IsOk());
    EXPECT_THAT(report->warnings, ::testing::IsEmpty());
    std::vector<layout::Configuration> settings;
    for (const Path& path : {there.target, on.target}) {
      const auto opened = OpenCheckpoint(PosixStorage(), path, {});
      ASSERT_THAT(opened, IsOk());
      const auto args = ReadRunArgs(*opened);
      ASSERT_THAT(args, IsOk());
      const auto stored = StoredModelSettings(*args);
      ASSERT_THAT(stored, IsOk());
      settings.push_back(*stored);
    }
    EXPECT_EQ(settings[0], settings[1]);
  }
}

}  // namespace
}  // namespace ckpt
