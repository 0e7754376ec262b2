// What the registry says of places, by their names and first bytes alone, and of the formats it
// lists.
#include "formats/registry/registry.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "core/io/memory_storage.h"
#include "formats/registry/internal/detect.h"
#include "formats/registry/locate.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

std::string Printed(const Status& status) {
  return status.ok() ? "" : std::string(status.first().message) + " / " + status.first().hint;
}

TEST(FormatsTest, HaveNamesOfTheirOwn) {
  const std::set<std::string_view> names(FormatNames().begin(), FormatNames().end());
  EXPECT_EQ(names.size(), Formats().size());
  for (const Format* format : Formats()) {
    const auto found = FindFormat(format->name);
    ASSERT_THAT(found, IsOk());
    EXPECT_EQ(*found, format);
  }
  EXPECT_THAT(FindFormat("npz"), FailsWith(ErrorKind::kUsage));
}

// Else the format below would claim what belongs to the one above.
TEST(FormatsTest, AreAskedBeforeTheFormatTheyAreBuiltOn) {
  const auto position = [](const Format* format) {
    return std::ranges::find(Formats(), format) - Formats().begin();
  };
  for (const Format* format : Formats()) {
    if (format->built_on == nullptr) continue;
    EXPECT_LT(position(format), position(format->built_on)) << format->name;
  }
}

TEST(FormatsTest, CanBeRecognisedByNamesOrByKeys) {
  for (const Format* format : Formats()) {
    const bool by_keys = format->has_keys_of != nullptr && format->built_on != nullptr;
    EXPECT_TRUE(format->recognise != nullptr || by_keys) << format->name;
  }
}

TEST(FormatsTest, SayByNameWhatThisBuildCannotDo) {
  const std::unique_ptr<Storage> storage = MakeMemoryStorage();
  for (const Format* format : Formats()) {
    if (format->open == nullptr) {
      const Status status = OpenAs(*format, *storage, "/x").status();
      EXPECT_THAT(status, FailsWith(ErrorKind::kUnsupported));
      EXPECT_THAT(Printed(status), HasSubstr(format->name)) << "reading";
    }
    if (format->plan_weights == nullptr) {
      const Status status = PlanWeights(*format, {}).status();
      EXPECT_THAT(status, FailsWith(ErrorKind::kUnsupported));
      EXPECT_THAT(Printed(status), HasSubstr(format->name)) << "writing";
    }
  }
}

struct PlaceCase {
  const char* name;
  std::vector<std::string> files;  // in the directory
  const char* format;              // what is recognised
  const char* path;                // what is opened
};
void PrintTo(const PlaceCase& c, std::ostream* os) { *os << c.name; }

class RecogniseTest : public ::testing::TestWithParam<PlaceCase> {};

TEST_P(RecogniseTest, TellsADirectoryByItsNames) {
  const std::unique_ptr<Storage> storage = MakeMemoryStorage();
  for (const std::string& name : GetParam().files) {
    const Path path = Path("/c") / name;
    ASSERT_THAT(storage->MakeDirectories(path.parent_path()), IsOk());
    const bool is_state = name == "metadata.json";
    ASSERT_THAT(WriteSmallFile(*storage, path,
                               AsBytes(is_state ? R"({"sharded_backend":"torch_dist"})" : "x")),
                IsOk());
  }
  const auto detected = DetectFormat(*storage, {.path = "/c", .is_directory = true});
  ASSERT_THAT(detected, IsOk());
  EXPECT_EQ(detected->format->name, GetParam().format);
  EXPECT_EQ(detected->path, Path(GetParam().path));
}

INSTANTIATE_TEST_SUITE_P(
    Directories, RecogniseTest,
    ::testing::Values(
        PlaceCase{"Dcp", {".metadata", "__0_0.distcp"}, "dcp", "/c"},
        PlaceCase{"DcpOfRanks", {"__0.metadata", "__0_0.distcp"}, "dcp", "/c"},
        PlaceCase{"TorchDist", {"metadata.json", ".metadata", "common.pt"}, "torch_dist", "/c"},
        PlaceCase{"Repository", {"config.json", "model.safetensors"}, "hf", "/c"},
        PlaceCase{"OldRepository", {"config.json", "pytorch_model.bin"}, "hf", "/c"},
        PlaceCase{"Safetensors", {"a.safetensors", "b.pt"}, "safetensors", "/c"},
        PlaceCase{"MegatronRanks", {"mp_rank_00_000/model_optim_rng.pt"}, "mp_rank", "/c"},
        PlaceCase{"TorchDistWithLoaders",
                  {"metadata.json", ".metadata", "mp_rank_00/train_dataloader_dprank000.pt"},
                  "torch_dist",
                  "/c"},
        PlaceCase{"OneTorchFile", {"a.pt", "log.txt"}, "torch_save", "/c/a.pt"},
        PlaceCase{"OneFileOfDeepSpeed",
                  {"mp_rank_00_model_states.pt"},
                  "torch_save",
                  "/c/mp_rank_00_model_states.pt"},
        PlaceCase{"WeightsBesideDeepSpeed",
                  {"latest", "global_step3/a.pt", "config.json", "model.safetensors"},
                  "hf",
                  "/c"},
        PlaceCase{"TorchFileBesideAFolder", {"a.pt", "sharded/x"}, "torch_save", "/c/a.pt"},
        PlaceCase{"TorchShards",
                  {"pytorch_model.bin.index.json", "pytorch_model-00001-of-00001.bin"},
                  "torch_save",
                  "/c"}),
    [](const auto& test) { return std::string(test.param.name); });

struct RefusedCase {
  const char* name;
  std::vector<std::string> files;
  ErrorKind kind;
  const char* says;
};
void PrintTo(const RefusedCase& c, std::ostream* os) { *os << c.name; }

class RefusedPlaceTest : public ::testing::TestWithParam<RefusedCase> {};

TEST_P(RefusedPlaceTest, SaysWhatTheDirectoryIs) {
  const std::unique_ptr<Storage> storage = MakeMemoryStorage();
  for (const std::string& name : GetParam().files) {
    const Path path = Path("/c") / name;
    ASSERT_THAT(storage->MakeDirectories(path.parent_path()), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage, path, AsBytes(R"({"sharded_backend":"other"})")), IsOk());
  }
  const Status status = DetectFormat(*storage, {.path = "/c", .is_directory = true}).status();
  EXPECT_THAT(status, FailsWith(GetParam().kind));
  EXPECT_THAT(Printed(status), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Directories, RefusedPlaceTest,
    ::testing::Values(
        RefusedCase{"InterruptedDcp", {"__0_0.distcp"}, ErrorKind::kIncomplete, "no .metadata"},
        RefusedCase{"InterruptedTorchDist",
                    {".metadata", "common.pt"},
                    ErrorKind::kIncomplete,
                    "no metadata.json"},
        RefusedCase{"UnknownBackend",
                    {"metadata.json", ".metadata"},
                    ErrorKind::kUnsupported,
                    "unknown backend"},
        RefusedCase{"FilesOfRanksBesideARepository",
                    {"model_world_size_2_rank_0.pt", "config.json", "model.safetensors"},
                    ErrorKind::kUnsupported,
                    "one file a rank"},
        RefusedCase{"SeveralFiles", {"a.pt", "b.pt"}, ErrorKind::kUnsupported, "several"},
        RefusedCase{"Zero3",
                    {"zero_pp_rank_0_mp_rank_00_model_states.pt"},
                    ErrorKind::kUnsupported,
                    "a DeepSpeed checkpoint / DeepSpeed's zero_to_fp32.py"},
        RefusedCase{"DeepSpeed",
                    {"mp_rank_00_model_states.pt", "mp_rank_00_optim_states.pt"},
                    ErrorKind::kUnsupported,
                    "a DeepSpeed checkpoint"},
        RefusedCase{"AroundDeepSpeed",
                    {"latest", "global_step3/mp_rank_00_model_states.pt", "rng_state_0.pth"},
                    ErrorKind::kUnsupported,
                    "a DeepSpeed checkpoint"},
        RefusedCase{"AroundShards",
                    {"pytorch_model_fsdp_0/.metadata", "optimizer_0/.metadata", "rng_state_0.pth",
                     "scheduler.pt"},
                    ErrorKind::kUnsupported,
                    "open pytorch_model_fsdp_0/"},
        RefusedCase{"FilesOfAccelerateRanks",
                    {"pytorch_model_fsdp_0_rank0.bin", "pytorch_model_fsdp_0_rank1.bin"},
                    ErrorKind::kUnsupported,
                    "files of ranks"},
        RefusedCase{"StepOfVerl",
                    {"actor/model_world_size_1_rank_0.pt", "critic/model_world_size_1_rank_0.pt"},
                    ErrorKind::kUnsupported,
                    "/actor"},
        RefusedCase{"AroundStepsOfVerl",
                    {"latest_checkpointed_iteration.txt", "global_step_2/actor/a.pt"},
                    ErrorKind::kUnsupported,
                    "global_step_2/actor"},
        RefusedCase{
            "UnjoinedShards", {"sharded/a.safetensors"}, ErrorKind::kIncomplete, "only the shards"},
        RefusedCase{"Pipeline",
                    {"model_index.json", "scheduler/scheduler_config.json",
                     "text_encoder/model.safetensors", "unet/diffusion_pytorch_model.bin"},
                    ErrorKind::kUnsupported,
                    "open one of text_encoder/, unet/"},
        RefusedCase{"AroundSavesOfTrainer",
                    {"checkpoint-500/model.safetensors", "checkpoint-1000/model.safetensors",
                     "checkpoint-best/notes.txt"},
                    ErrorKind::kUnsupported,
                    "/checkpoint-1000, or one before it"},
        RefusedCase{"FileOfLightning", {"epoch=0.ckpt"}, ErrorKind::kUnsupported, "/epoch=0.ckpt"},
        RefusedCase{"FilesOfLightning",
                    {"epoch=0.ckpt", "last.ckpt"},
                    ErrorKind::kUnsupported,
                    "open one of"},
        RefusedCase{"PipelineOfNothing",
                    {"model_index.json", "scheduler/scheduler_config.json"},
                    ErrorKind::kUnsupported,
                    "pipeline"},
        RefusedCase{
            "Nothing",
            {"notes.txt"},
            ErrorKind::kUnsupported,
            "step-N folders, metadata.json, .metadata, *.safetensors, mp_rank_*, *.pt and *.bin"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(RecogniseFileTest, TellsAFileByItsFirstBytesBeforeItsName) {
  const std::unique_ptr<Storage> storage = MakeMemoryStorage();
  ASSERT_THAT(storage->MakeDirectories("/c"), IsOk());
  const auto format_of = [&](const char* name, std::string_view content) -> std::string {
    const Path path = Path("/c") / name;
    EXPECT_THAT(WriteSmallFile(*storage, path, AsBytes(content)), IsOk());
    const auto detected = DetectFormat(*storage, {.path = path});
    return detected.ok() ? std::string(detected->format->name) : Printed(detected.status());
  };
  const std::string header = std::string("\x02\0\0\0\0\0\0\0{}", 10);
  EXPECT_EQ(format_of("weights.bin", "\x89HDF\r\n\x1a\n"), "hdf5");
  EXPECT_EQ(format_of("weights.pt", header), "safetensors");
  EXPECT_EQ(format_of("weights", header), "safetensors");
  EXPECT_EQ(format_of("archive", "PK\x03\x04"), "torch_save");
  EXPECT_EQ(format_of("other.pt", "?"), "torch_save");
  EXPECT_EQ(format_of("weights.h5", "?"), "hdf5");
  EXPECT_THAT(format_of("__0_0.distcp", "PK\x03\x04"), HasSubstr("open the folder"));
  EXPECT_THAT(format_of("zero_pp_rank_0_mp_rank_00_model_states.pt", "PK\x03\x04"),
              HasSubstr("DeepSpeed"));
  EXPECT_THAT(format_of("pytorch_model_fsdp_0_rank0.bin", "PK\x03\x04"),
              HasSubstr("a rank's file of Accelerate"));
  EXPECT_THAT(format_of("notes", "?"), HasSubstr("safetensors, torch.save (zip or legacy)"));
}

TEST(OpenTest, TellsWhichFilesWereRead) {
  const std::unique_ptr<Storage> storage = MakeMemoryStorage();
  ASSERT_THAT(storage->MakeDirectories("/c"), IsOk());
  const std::string header = std::string("\x02\0\0\0\0\0\0\0{}", 10);
  for (const char* name : {"a.safetensors", "b.safetensors", "notes.txt"}) {
    ASSERT_THAT(WriteSmallFile(*storage, Path("/c") / name, AsBytes(header)), IsOk());
  }
  const auto all = OpenCheckpoint(*storage, "/c");
  ASSERT_THAT(all, IsOk());
  EXPECT_EQ(all->directory, "/c");
  EXPECT_THAT(all->read_files, ElementsAre("/c/a.safetensors", "/c/b.safetensors"));
  const auto one = OpenCheckpoint(*storage, "/c/a.safetensors");
  ASSERT_THAT(one, IsOk());
  EXPECT_EQ(one->directory, Path()) << "what lies beside one file is its own";
  EXPECT_THAT(one->read_files, ElementsAre("/c/a.safetensors"));
}

// torchtitan saves its last step as a repository.
TEST(LocateTest, TakesTheNewestStepWhoseOnlyFileIsWhole) {
  const std::unique_ptr<Storage> storage = MakeMemoryStorage();
  const auto add = [&](const char* name, std::string_view content) {
    const Path path = Path("/run") / name;
    ASSERT_THAT(storage->MakeDirectories(path.parent_path()), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage, path, AsBytes(content)), IsOk());
  };
  const auto located = [&] {
    const auto location = LocateCheckpoint(*storage, "/run", std::nullopt);
    return location.ok() ? location->path.string() : Printed(location.status());
  };
  const std::string whole("\x02\0\0\0\0\0\0\0{}", 10);
  add("step-20/model.safetensors", whole.substr(0, 9));
  EXPECT_THAT(located(), HasSubstr("none of the step folders holds a finished save"));
  add("step-3/.metadata", "x");
  EXPECT_EQ(located(), "/run/step-3");
  ASSERT_THAT(storage->RemoveAll("/run/step-20"), IsOk());
  add("step-20/model.safetensors", whole);
  EXPECT_EQ(located(), "/run/step-20");
}

}  // namespace
}  // namespace ckpt
