// Formats and namings are asked for their properties: their names stand in their own folders and
// where they are registered.
#include <algorithm>
#include <array>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/families/known_namings.h"
#include "formats/registry/registry.h"
#include "tests/hygiene/source_file.h"

namespace ckpt::hygiene {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Where people's words for formats and namings are listed.
constexpr std::array<std::string_view, 3> kRegistrations = {
    "converters/families/known_namings.cc",  // namings, with their words and choices
    "tools/ckpt-convert/verbs.h",            // verbs of the command line
    "/checkpoint_settings.cc",               // values of `save_format`
};

std::set<std::string> Names() {
  std::set<std::string> names(FormatNames().begin(), FormatNames().end());
  for (const KnownNaming& naming : KnownNamings()) names.emplace(naming.name);
  return names;
}

// "path:line: asks for "name"", one for each literal that is a name and nothing else.
std::vector<std::string> NamesOutsideRegistrations(const std::vector<SourceFile>& files) {
  std::vector<std::string> wrong;
  for (const SourceFile& file : files) {
    // Formats that are built on others know those (the layering test has the edges).
    const bool may_name = file.path.starts_with("formats/") ||
                          std::ranges::any_of(kRegistrations, [&](std::string_view place) {
                            return file.path.ends_with(place);
                          });
    if (may_name) continue;
    const std::string code = WithoutComments(file.text);
    for (const std::string& name : Names()) {
      const std::string literal = '"' + name + '"';
      for (std::size_t at = code.find(literal); at != std::string::npos;
           at = code.find(literal, at + 1)) {
        const auto line =
            1 + std::count(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(at), '\n');
        wrong.push_back(file.path + ":" + std::to_string(line) + ": asks for " + literal);
      }
    }
  }
  return wrong;
}

// The folders of formats that stand for themselves: each names itself, and what it is built on.
std::vector<std::string> StrangeNamesInFolders(const std::vector<SourceFile>& files) {
  const auto may_name = [](std::string_view folder, const std::string& name) {
    if (folder == name) return true;
    if (name == "torch_save")
      return folder == "dcp" || folder == "torch_dist";  // an encoding's name
    return name == "zarr" && folder == "torch_dist";     // Megatron-Core's other backend
  };
  std::vector<std::string> wrong;
  for (const SourceFile& file : files) {
    const std::string_view below =
        std::string_view(file.path).substr(std::string("formats/").size());
    const std::string_view folder = below.substr(0, below.find('/'));
    const std::string code = WithoutComments(file.text);
    for (const std::string& name : Names()) {
      const bool is_there = code.find('"' + name + '"') != std::string::npos;
      if (is_there && !may_name(folder, name)) wrong.push_back(file.path + ": names " + name);
    }
  }
  return wrong;
}

TEST(FormatNamesTest, StandOnlyInRegistrations) {
  EXPECT_THAT(
      NamesOutsideRegistrations(ReadSources({"core", "converters", "formats", "trainer", "tools"})),
      IsEmpty());
}

TEST(FormatNamesTest, OfOthersAreNotInAFormatsFolder) {
  EXPECT_THAT(StrangeNamesInFolders(ReadSources({"formats"})), IsEmpty());
}

// Which words a trainer uses for the directories and files around its checkpoints is a matter of
// formats.
TEST(FormatNamesTest, CoreKnowsNoTrainersRoot) {
  const std::regex word(R"re("(\.\./)?(release/?|iter_|latest_checkpointed_iteration\.txt)")re");
  std::vector<std::string> wrong;
  for (const SourceFile& file : ReadSources({"core"})) {
    if (std::regex_search(WithoutComments(file.text), word)) wrong.push_back(file.path);
  }
  EXPECT_THAT(wrong, IsEmpty());
}

TEST(FormatNamesTest, AreCaughtInCodeButNotInAComment) {
  EXPECT_THAT(
      NamesOutsideRegistrations({{"core/a.cc", "// as \"hf\" does\nint x;\n"},
                                 {"tools/b.cc", "int x;\nif (options.to == \"hf\") {}\n"},
                                 {"tools/c.cc", "Hint(\"save as fsdp_dtensor\");\n"},
                                 {"tools/ckpt-convert/verbs.h", "{\"hf\", \"fsdp_dtensor\"}\n"}}),
      ElementsAre("tools/b.cc:2: asks for \"hf\""));
  EXPECT_THAT(StrangeNamesInFolders({{"formats/registry/detect.cc", "if (name == \"dcp\") {}\n"},
                                     {"formats/dcp/format.cc", "{.name = \"dcp\"}\n"}}),
              ElementsAre("formats/registry/detect.cc: names dcp"));
}

}  // namespace
}  // namespace ckpt::hygiene
