#include "formats/hdf5/internal/held_path.h"

#include <cstdint>
#include <string>

#include <gmock/gmock.h>

#include "tests/testing/matchers.h"

namespace ckpt::hdf5 {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;

TEST(HeldPathTest, ComesBackStepByStep) {
  const EntryPath path = {std::string("optim"), NumberKey{-7}, std::int64_t{7}, std::string("7"),
                          std::string("a.\"ä\"/\n")};
  const std::string text = EncodePath(path);
  EXPECT_THAT(text, ::testing::StartsWith(R"({"steps":["optim",{"key":-7},7,"7",)"));
  const auto back = ParsePath(text);
  ASSERT_THAT(back, IsOk());
  EXPECT_EQ(*back, path);
}

TEST(HeldPathTest, FindsEveryFlippedBit) {
  const EntryPath path = {std::string("ab"), NumberKey{3}, std::int64_t{0}};
  const std::string text = EncodePath(path);
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    const auto back = ParsePath(damaged);
    EXPECT_FALSE(back.ok()) << damaged;
  }
}

TEST(HeldPathTest, RefusesWhatIsNoPlaceInAMapping) {
  for (const EntryPath& path :
       {EntryPath{}, EntryPath{std::int64_t{0}}, EntryPath{std::string("a"), std::int64_t{-1}}}) {
    EXPECT_THAT(ParsePath(EncodePath(path)), FailsWith(ErrorKind::kBadMetadata));
  }
}

TEST(HeldPathTest, RefusesWhatIsNoPath) {
  for (const char* text :
       {"", "[]", "{}", R"({"steps":[]})", R"({"steps":["a",0.5],"crc32":0})",
        R"({"steps":["a",{"kex":1}],"crc32":0})", R"({"steps":["a",{"key":1,"more":1}],"crc32":0})",
        R"({"steps":["a",null],"crc32":0})", R"({"steps":"a","crc32":0})",
        R"({"steps":["a"],"crc32":"0"})"}) {
    EXPECT_THAT(ParsePath(text), FailsWith(ErrorKind::kBadMetadata)) << text;
  }
  EXPECT_THAT(ParsePath(R"({"steps":["a"],"crc32":0})"), FailsWith(ErrorKind::kChecksum));
}

}  // namespace
}  // namespace ckpt::hdf5
