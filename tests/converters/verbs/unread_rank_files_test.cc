// Files of ranks that a reader opens and does not read: a conversion lists them.
#include <cstdint>
#include <map>
#include <string>

#include <boost/filesystem/operations.hpp>
#include <gmock/gmock.h>

#include "converters/verbs/convert.h"
#include "tests/converters/verbs/convert_fixture.h"

namespace ckpt {
namespace {

using testing::Content;
using testing::ConvertTest;
using testing::FailsWith;
using testing::IsOk;

class UnreadRankFilesTest : public ConvertTest {
 protected:
  // A model and its optimizer, as two ranks of verl save them.
  void SetUp() override {
    boost::filesystem::create_directories(source_);
    for (const char* state : {"model", "optim"}) {
      for (const char* rank : {"0", "1"}) {
        const std::string name = std::string(state) + "_world_size_2_rank_" + rank + ".pt";
        Write(name, Content(Verl("optimizer") / name));
      }
    }
    Write("extra_state_world_size_2_rank_0.pt", "a scheduler");
  }

  static Path Verl(const std::string& save) {
    return Path(CKPT_SOURCE_DIR) / "tests/golden/verl" / save;
  }
  void Write(const std::string& name, const std::string& content) {
    ASSERT_THAT(PosixStorage().RemoveAll(source_ / name), IsOk());
    ASSERT_THAT(WriteSmallFile(PosixStorage(), source_ / name, AsBytes(content)), IsOk());
  }
  ConvertOptions Options() {
    ConvertOptions options;
    options.source = source_;
    options.target = dir_.path() / "target";
    options.to.container = *FindFormat("dcp");
    return options;
  }
  // The files among what a conversion leaves out, and their bytes.
  std::map<std::string, std::uint64_t> LeftOut() {
    const auto report = Convert(Options());
    EXPECT_THAT(report, IsOk());
    std::map<std::string, std::uint64_t> files;
    if (!report.ok()) return files;
    for (const LeftOutEntry& entry : report->dropped) {
      if (!boost::filesystem::exists(source_ / entry.key)) continue;  // an object
      EXPECT_FALSE(entry.why.empty()) << entry.key;
      files.emplace(entry.key, entry.bytes);
    }
    return files;
  }

  const Path source_ = dir_.path() / "actor";
};

TEST_F(UnreadRankFilesTest, OfAnOptimizerThatIsReadAreNone) {
  EXPECT_THAT(LeftOut(),
              ::testing::ElementsAre(::testing::Pair("extra_state_world_size_2_rank_0.pt", 11)));
}

// A problem names one of them: that says that it is another's, not that it stays behind.
TEST_F(UnreadRankFilesTest, OfAnOptimizerOfAnotherModelAreListed) {
  Write("optim_world_size_2_rank_0.pt",
        Content(Verl("torch_2.15") / "optim_world_size_4_rank_0.pt"));
  std::map<std::string, std::uint64_t> expected = {{"extra_state_world_size_2_rank_0.pt", 11}};
  for (const char* name : {"optim_world_size_2_rank_0.pt", "optim_world_size_2_rank_1.pt"}) {
    expected.emplace(name, boost::filesystem::file_size(source_ / name));
  }
  EXPECT_EQ(LeftOut(), expected);
}

TEST_F(UnreadRankFilesTest, ThatAreDamagedStopTheConversion) {
  Write("optim_world_size_2_rank_1.pt", "no zip");
  const Status status = Convert(Options()).status();
  ASSERT_THAT(status, FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(status.first().file, ::testing::HasSubstr("optim_world_size_2_rank_1.pt"));
  // Without them there is the model.
  for (const char* name : {"optim_world_size_2_rank_0.pt", "optim_world_size_2_rank_1.pt"}) {
    ASSERT_THAT(PosixStorage().RemoveAll(source_ / name), IsOk());
  }
  EXPECT_THAT(LeftOut(), ::testing::SizeIs(1));
}

}  // namespace
}  // namespace ckpt
