// Manifests whose own digest is right and whose text contradicts itself: what a later version with
// a mistake, or somebody who signs what he changed, could leave.
#include "core/manifest/manifest_text.h"

#include <ostream>
#include <string>

#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/manifest/manifest.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;

Manifest SmallExample() {
  Manifest manifest;
  manifest.tool = "t";
  manifest.files = {
      {.name = "a", .size_bytes = 1, .block_crc32c = {0x1234abcd}, .block_crc32 = {0x5678ef01}},
      {.name = "b", .size_bytes = 0, .block_crc32c = {}}};
  manifest.tensors = {{"v", std::string(32, 'a')}, {"w", std::string(32, '0')}};
  manifest.origin =
      ManifestOrigin{.format = "hf",
                     .shards = {{.file = "s", .metadata = {{{"format", "pt"}}}, .tensors = {"v"}}},
                     .dropped = {"x"},
                     .choices = {{"family", "llama"}}};
  return manifest;
}

// The digest that the text calls for (docs/formats/ckptkit-json.md).
std::string Signed(std::string text) {
  const std::size_t digest = text.find(R"("self":")") + 8;
  text.replace(digest, 32, std::string(32, '0'));
  text.replace(digest, 32, HashHex(HashAlgorithm::kXxh3, AsBytes(text)));
  return text;
}

// The example with one piece of its text replaced.
std::string With(const std::string& piece, const std::string& by) {
  std::string text = SerializeManifest(SmallExample());
  const std::size_t at = text.find(piece);
  EXPECT_NE(at, std::string::npos) << piece << " in " << text;
  if (at != std::string::npos) text.replace(at, piece.size(), by);
  return Signed(std::move(text));
}

struct Contradiction {
  std::string name;
  std::string piece;
  std::string by;
  std::string says;
  ErrorKind kind = ErrorKind::kBadMetadata;
};
void PrintTo(const Contradiction& c, std::ostream* os) { *os << c.name; }

class ManifestTextTest : public ::testing::TestWithParam<Contradiction> {};

const std::string kAs(32, 'a');

INSTANTIATE_TEST_SUITE_P(
    All, ManifestTextTest,
    ::testing::Values(
        Contradiction{"OneNameLess", R"("names":["a","b"])", R"("names":["a"])",
                      "different lengths"},
        Contradiction{"OneSizeMore", R"("sizes":[1,0])", R"("sizes":[1,0,0])", "different lengths"},
        Contradiction{"NoRoots", R"("roots":)", R"("stems":)", "different lengths"},
        Contradiction{"OneChecksumTextLess", R"("crc32c":["1234abcd",""])",
                      R"("crc32c":["1234abcd"])", "different lengths"},
        Contradiction{"OneOtherChecksumTextLess", R"("crc32":["5678ef01",""])",
                      R"("crc32":["5678ef01"])", "different lengths"},
        Contradiction{"OtherChecksumTwice", R"("5678ef01")", R"("5678ef015678ef01")",
                      "number of blocks"},
        Contradiction{"HalfAnotherChecksum", R"("5678ef01")", R"("5678ef")", "8 hex digits"},
        Contradiction{"HalfAChecksum", R"("1234abcd")", R"("1234ab")", "8 hex digits"},
        Contradiction{"UpperCaseDigits", R"("1234abcd")", R"("1234ABCD")", "8 hex digits"},
        Contradiction{"AnotherChecksum", R"("1234abcd")", R"("1234abce")", "root does not follow"},
        Contradiction{"AnotherSize", R"("sizes":[1,0])", R"("sizes":[2,0])",
                      "root does not follow"},
        Contradiction{"ChecksumsOfNothing", R"("sizes":[1,0])", R"("sizes":[0,0])",
                      "number of blocks"},
        Contradiction{"BlocksWithoutChecksums", R"("sizes":[1,0])", R"("sizes":[1,1])",
                      "number of blocks"},
        Contradiction{"NegativeSize", R"("sizes":[1,0])", R"("sizes":[-1,0])", ""},
        Contradiction{"FilesOutOfOrder", R"("names":["a","b"])", R"("names":["b","a"])",
                      "not in order"},
        Contradiction{"FileTwice", R"("names":["a","b"])", R"("names":["b","b"])", "not in order"},
        Contradiction{"FileOutside", R"("names":["a","b"])", R"("names":["../a","b"])", "",
                      ErrorKind::kUnsafePath},
        Contradiction{"OneKeyLess", R"("keys":["v","w"])", R"("keys":["v"])", "different lengths"},
        Contradiction{"KeysOutOfOrder", R"("keys":["v","w"])", R"("keys":["w","v"])",
                      "not in order"},
        Contradiction{"KeyTwice", R"("keys":["v","w"])", R"("keys":["v","v"])", "not in order"},
        Contradiction{"ShortDigest", "\"" + kAs + "\"", "\"aa\"", "32 hex digits"},
        Contradiction{"DigestOfOtherDigits", "\"" + kAs + "\"", "\"g" + kAs.substr(1) + "\"",
                      "32 hex digits"},
        Contradiction{"DigestWithASign", "\"" + kAs + "\"", "\"-" + kAs.substr(1) + "\"",
                      "32 hex digits"},
        Contradiction{"MetadataOfThree", R"(["format","pt"])", R"(["format","pt","x"])",
                      "not a pair"},
        Contradiction{"MetadataOfOne", R"(["format","pt"])", R"(["format"])", "not a pair"},
        Contradiction{"BlocksOfAnotherSize", R"("block_bytes":1048576)", R"("block_bytes":4096)",
                      "", ErrorKind::kUnsupported},
        Contradiction{"NoBlockSize", R"("block_bytes":1048576)", R"("bytes_block":1048576)", "",
                      ErrorKind::kUnsupported},
        Contradiction{"TextForANumber", R"("sizes":[1,0])", R"("sizes":["1",0])", ""},
        Contradiction{"NumberForAText", R"("tool":"t")", R"("tool":1)", ""},
        Contradiction{"TrailingText", "}\n", "}\n{}", ""}),
    [](const auto& test) { return test.param.name; });

TEST_P(ManifestTextTest, IsRefused) {
  const auto manifest = ParseManifest(With(GetParam().piece, GetParam().by), "m");
  ASSERT_THAT(manifest, FailsWith(GetParam().kind));
  EXPECT_THAT(manifest.status().ToString(), ::testing::HasSubstr(GetParam().says));
  EXPECT_EQ(manifest.status().problems()[0].file, "m");
}

TEST(ManifestText, MayLackTheOtherChecksum) {
  for (const auto& [piece, by] : {std::pair(R"(,"crc32":["5678ef01",""])", ""),
                                  std::pair(R"("crc32":["5678ef01",""])", R"("crc32":["",""])")}) {
    const auto manifest = ParseManifest(With(piece, by), "m");
    ASSERT_THAT(manifest, IsOk());
    EXPECT_TRUE(manifest->files[0].block_crc32.empty());
    EXPECT_EQ(manifest->files[0].block_crc32c, SmallExample().files[0].block_crc32c);
  }
}

TEST(ManifestText, RefusesParityOfWhatCannotHaveIt) {
  const std::string tracker = R"("../latest_checkpointed_iteration.txt")";
  struct Case {
    std::string files;
    std::string members;
    std::string says;
  };
  for (const Case& c : {Case{R"(["a"])", "[]", "different lengths"},
                        Case{R"(["q"])", R"([["a"]])", "a file that cannot be in one"},
                        Case{R"(["a"])", R"([["q"]])", "a file that cannot be in one"},
                        Case{"[" + tracker + "]", R"([["b"]])", "a file that cannot be in one"},
                        Case{R"(["b"])", "[[" + tracker + "]]", "a file that cannot be in one"},
                        Case{R"(["a"])", R"([["a"]])", "a file is in two parity groups"},
                        Case{R"(["a"])", R"([["b"]])", "not as long as its longest member"},
                        Case{R"(["b"])", R"([["a"]])", "not as long as its longest member"}}) {
    const std::string parity =
        "\"parity\":{\"files\":" + c.files + ",\"members\":" + c.members + "},";
    std::string text = With(R"("tensors":)", parity + R"("tensors":)");
    if ((c.files + c.members).find(tracker) != std::string::npos) {
      text.replace(text.find(R"(["a","b"])"), 9, "[" + tracker + R"(,"b"])");
    }
    const auto manifest = ParseManifest(Signed(text), "m");
    ASSERT_THAT(manifest, FailsWith(ErrorKind::kBadMetadata)) << parity;
    EXPECT_THAT(manifest.status().first().message, ::testing::HasSubstr(c.says)) << parity;
  }
}

TEST(ManifestText, RefusesACopyOfAnotherName) {
  const std::string parity = R"("parity":{"files":[],"members":[],"copy":"elsewhere.json"},)";
  const auto manifest = ParseManifest(Signed(With(R"("tensors":)", parity + R"("tensors":)")), "m");
  ASSERT_THAT(manifest, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(manifest.status().first().message, ::testing::HasSubstr("another name"));
}

// Later versions may say more, wherever they like.
TEST(ManifestText, SkipsMembersItDoesNotKnow) {
  const std::string more = R"("later":{"x":[1,{}]},)";
  for (const std::string piece :
       {R"("tool":)", R"("names":)", R"("keys":)", R"("format":)", R"("file":)"}) {
    EXPECT_THAT(ParseManifest(With(piece, more + piece), "m"), IsOkAndHolds(SmallExample()))
        << piece;
  }
}

// Without the digest's digits there is nothing to compare.
TEST(ManifestText, EndsBeforeItsDigestDoes) {
  EXPECT_THAT(ParseManifest(R"({"ckptkit":1,"self":"00"})", "m"),
              FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(ParseManifest("", "m"), FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(ParseManifest(R"({"ckptkit":1,"self":")" + std::string(31, '0'), "m"),
              FailsWith(ErrorKind::kBadMetadata));
  EXPECT_THAT(ParseManifest(R"({"ckptkit":1,"self":")" + std::string(32, '0'), "m"),
              FailsWith(ErrorKind::kChecksum));
}

TEST(ManifestText, OfTheExampleIsGood) {
  EXPECT_THAT(ParseManifest(SerializeManifest(SmallExample()), "m"), IsOk());
}

}  // namespace
}  // namespace ckpt
