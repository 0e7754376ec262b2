// `ckpt-inspect verify` on what ranks stored each on its own.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/endian.h"
#include "tests/converters/verbs/convert_fixture.h"
#include "tests/testing/ranks_alone.h"
#include "tools/ckpt-inspect/inspect.h"

namespace ckpt::inspect {
namespace {

using ::ckpt::testing::ConvertTest;
using ::ckpt::testing::IsOk;
using cli::ExitCode;
using ::testing::HasSubstr;
using ::testing::Not;

class VerifyCopiesTest : public ConvertTest {
 protected:
  // A DCP of ranks that have one element and one object each, of these characters.
  Path Save(const std::string& elements, const std::string& notes) {
    std::vector<Path> ranks;
    for (std::size_t rank = 0; rank < elements.size(); ++rank) {
      const Path file = dir_.path() / ("rank" + std::to_string(rank) + ".safetensors");
      const std::string header = std::string(R"({"__metadata__":{"note":")") + notes[rank] +
                                 R"("},"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
      Bytes bytes;
      AppendLe(std::uint64_t{header.size()}, bytes);
      Append(header + elements[rank], bytes);
      EXPECT_THAT(WriteSmallFile(PosixStorage(), file, bytes), IsOk());
      const ConvertOptions options = Between("", "dcp", file, "rank" + std::to_string(rank));
      EXPECT_THAT(Convert(options), IsOk());
      ranks.push_back(options.target);
    }
    const Path joined = dir_.path() / "joined";
    testing::JoinRanks(ranks, joined);
    return joined;
  }

  // What the verb prints. A save without collectives is legal, whatever the ranks stored.
  static std::string Run(std::vector<std::string> args) {
    cli::StringOutput out;
    cli::Streams streams{.out = out, .err = out};
    EXPECT_EQ(RunInspect(args, PosixStorage(), streams), ExitCode::kDone);
    return out.text();
  }
};

constexpr const char* kMessage = "ranks stored different values";

TEST_F(VerifyCopiesTest, WarnsOfATensorThatDiffers) {
  const std::string text = Run({"verify", Save("aab", "nnn").string()});
  EXPECT_THAT(text, HasSubstr(kMessage));
  EXPECT_THAT(text, HasSubstr("__0_0.distcp: w: found others in __2_0.distcp"));
  EXPECT_THAT(text, HasSubstr("ok: "));
  EXPECT_THAT(text, Not(HasSubstr("note")));
}

TEST_F(VerifyCopiesTest, WarnsOfAnObjectThatDiffers) {
  const Path saved = Save("aa", "nm");
  const std::string text = Run({"verify", saved.string(), "--json"});
  EXPECT_THAT(text, HasSubstr(kMessage));
  EXPECT_THAT(text, HasSubstr("\"tensor\": \"__metadata__.note\""));
  EXPECT_THAT(text, Not(HasSubstr("\"tensor\": \"w\"")));
  EXPECT_THAT(Run({"meta", saved.string()}), HasSubstr("n")) << "the first rank's";
}

TEST_F(VerifyCopiesTest, SaysNothingOfEqualCopies) {
  EXPECT_THAT(Run({"verify", Save("aa", "nn").string()}), Not(HasSubstr(kMessage)));
}

}  // namespace
}  // namespace ckpt::inspect
