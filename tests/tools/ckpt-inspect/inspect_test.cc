#include "tools/ckpt-inspect/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/memory_storage.h"
#include "core/io/path.h"

namespace ckpt::inspect {
namespace {

using cli::ExitCode;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class InspectTest : public ::testing::Test {
 protected:
  ExitCode Run(const std::vector<std::string>& args) {
    cli::Streams streams{.out = out_, .err = err_};
    return RunInspect(args, *storage_, streams);
  }
  // A safetensors file of one tensor `w` of two bytes.
  void WriteFile(const std::string& path) {
    const std::string header = R"({"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
    std::string content(8, '\0');
    content[0] = static_cast<char>(header.size());
    content += header + "\x05\x06";
    ASSERT_TRUE(storage_->MakeDirectories(Path(path).parent_path()).ok());
    ASSERT_TRUE(WriteSmallFile(*storage_, path, AsBytes(content)).ok());
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  cli::StringOutput out_;
  cli::StringOutput err_;
};

TEST_F(InspectTest, SummaryIsTheDefaultVerb) {
  WriteFile("/m/model.safetensors");
  EXPECT_EQ(Run({"/m", "--json"}), ExitCode::kDone);
  EXPECT_THAT(out_.text(), HasSubstr("\"format\": \"safetensors\""));
}

TEST_F(InspectTest, ConfigBesideTheWeightsMakesItHf) {
  WriteFile("/m/model.safetensors");
  ASSERT_TRUE(WriteSmallFile(*storage_, "/m/config.json", AsBytes("{}")).ok());
  EXPECT_EQ(Run({"--json", "summary", "/m"}), ExitCode::kDone);
  EXPECT_THAT(out_.text(), HasSubstr("\"format\": \"hf\""));
}

TEST_F(InspectTest, ShowsValues) {
  WriteFile("/m/model.safetensors");
  EXPECT_EQ(Run({"show", "/m", "w", "--json"}), ExitCode::kDone);
  EXPECT_THAT(out_.text(), HasSubstr("\"values\": [5, 6]"));
}

TEST_F(InspectTest, MissingPathFails) {
  EXPECT_EQ(Run({"/nowhere"}), ExitCode::kFailed);
  EXPECT_EQ(err_.text(), "error: not_found: no such file or directory: /nowhere\n");
  EXPECT_THAT(out_.text(), IsEmpty());
}

TEST_F(InspectTest, UnknownVerbIsUsageAndSuggests) {
  EXPECT_EQ(Run({"sumary", "/m"}), ExitCode::kUsage);
  EXPECT_THAT(err_.text(), HasSubstr("unknown verb \"sumary\""));
  EXPECT_THAT(err_.text(), HasSubstr("did you mean \"summary\"?"));
  EXPECT_THAT(err_.text(), HasSubstr("\nusage: ckpt-inspect"));
}

TEST_F(InspectTest, UnknownOptionIsUsageAndSuggests) {
  EXPECT_EQ(Run({"digest", "/m", "--algoritm=sha256"}), ExitCode::kUsage);
  EXPECT_THAT(err_.text(), HasSubstr("did you mean \"--algorithm\"?"));
}

TEST_F(InspectTest, UnknownFormatIsUsage) {
  WriteFile("/m/model.safetensors");
  EXPECT_EQ(Run({"/m", "--format", "parquet"}), ExitCode::kUsage);
}

TEST_F(InspectTest, BadByteSizeIsUsage) {
  WriteFile("/m/model.safetensors");
  EXPECT_EQ(Run({"digest", "/m", "--memory-budget", "many"}), ExitCode::kUsage);
}

TEST_F(InspectTest, EveryVerbHelpsWithExamples) {
  for (const char* verb : {"summary", "tensors", "show", "shards", "verify", "digest", "diff",
                           "plan", "html", "meta"}) {
    cli::StringOutput out;
    cli::Streams streams{.out = out, .err = err_};
    EXPECT_EQ(RunInspect({verb, "--help"}, *storage_, streams), ExitCode::kDone);
    EXPECT_THAT(out.text(), HasSubstr("Examples:\n  ckpt-inspect")) << verb;
    EXPECT_THAT(out.text(), HasSubstr("--json")) << verb;
  }
}

TEST_F(InspectTest, VersionNamesTheLibraries) {
  EXPECT_EQ(Run({"--version"}), ExitCode::kDone);
  EXPECT_THAT(out_.text(), StartsWith("ckpt-inspect "));
  EXPECT_THAT(out_.text(), HasSubstr("zstd "));
}

// What the tracker and the folders of a Megatron root say.
TEST_F(InspectTest, TrackerDecidesUnlessAnIterationIsGiven) {
  WriteFile("/base/iter_0000002/model.safetensors");
  WriteFile("/base/iter_0000005/model.safetensors");
  ASSERT_TRUE(
      WriteSmallFile(*storage_, "/base/latest_checkpointed_iteration.txt", AsBytes("5\n")).ok());
  EXPECT_EQ(Run({"/base", "--json"}), ExitCode::kDone);
  EXPECT_THAT(out_.text(), HasSubstr("\"iteration\": 5"));
  EXPECT_EQ(Run({"/base", "--json", "--iteration", "2"}), ExitCode::kDone);
  EXPECT_THAT(out_.text(), HasSubstr("\"iteration\": 2"));
  EXPECT_EQ(Run({"/base", "--iteration", "3"}), ExitCode::kFailed);
}

TEST_F(InspectTest, NewestCompleteStepIsOpened) {
  WriteFile("/run/step-2/model.safetensors");
  ASSERT_TRUE(WriteSmallFile(*storage_, "/run/step-2/model.safetensors.index.json",
                             AsBytes(R"({"metadata":{},"weight_map":{"w":"model.safetensors"}})"))
                  .ok());
  // Cut off, and no index: still being written.
  ASSERT_TRUE(storage_->MakeDirectories("/run/step-10").ok());
  ASSERT_TRUE(WriteSmallFile(*storage_, "/run/step-10/model.safetensors",
                             AsBytes(std::string("\x39\0\0\0\0\0\0\0", 8)))
                  .ok());
  EXPECT_EQ(Run({"/run", "--json"}), ExitCode::kDone);
  EXPECT_THAT(out_.text(), HasSubstr("\"iteration\": 2"));
}

TEST_F(InspectTest, DataFilesWithoutMetadataAreAnInterruptedSave) {
  ASSERT_TRUE(storage_->MakeDirectories("/run").ok());
  ASSERT_TRUE(WriteSmallFile(*storage_, "/run/__0_0.distcp", AsBytes("PK")).ok());
  EXPECT_EQ(Run({"/run"}), ExitCode::kFailed);
  EXPECT_THAT(err_.text(), HasSubstr("incomplete: no .metadata: an interrupted save"));
}

}  // namespace
}  // namespace ckpt::inspect
