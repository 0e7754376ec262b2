// Formats, namings and families are asked for their properties: their names stand in their own
// folders and where they are registered.
#include <algorithm>
#include <array>
#include <cctype>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/families/family_registry.h"
#include "converters/families/known_namings.h"
#include "formats/registry/registry.h"
#include "tests/hygiene/source_file.h"

namespace ckpt::hygiene {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Where names and people's words for them are listed.
constexpr std::array<std::string_view, 3> kRegistrations = {
    "converters/families/known_namings.",    // namings, with their words and choices
    "converters/families/family_registry.",  // families
    "tools/ckpt-convert/verbs.h",            // verbs of the command line
};

// Of formats, and of namings in the tables.
std::set<std::string> Names() {
  std::set<std::string> names(FormatNames().begin(), FormatNames().end());
  for (const KnownNaming& naming : KnownNamings()) names.emplace(naming.name);
  for (const Family& family : BuiltInFamilies().value()) {
    for (const layout::Naming& naming : LayoutOf(family).value()->namings) names.insert(naming.id);
  }
  return names;
}

// Of families, and of the types of models that they match.
std::set<std::string> FamilyNames() {
  std::set<std::string> names;
  for (const Family& family : BuiltInFamilies().value()) {
    names.insert(family.name);
    for (std::string& type : family.match->texts()) names.insert(std::move(type));
  }
  return names;
}

// "fsdp_dtensor" → "kFsdpDtensor".
std::string ConstantOf(const std::string& name) {
  std::string constant = "k";
  bool begins = true;
  for (const char c : name) {
    if (c != '_') constant += begins ? static_cast<char>(std::toupper(c)) : c;
    begins = c == '_';
  }
  return constant;
}

bool IsOfWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// How code can say the name of a format, a naming or a family, and nothing else: as a literal, as
// an enumerator, as the format itself.
std::vector<std::string> Spellings() {
  std::vector<std::string> spellings;
  for (const std::string& name : Names()) {
    spellings.push_back('"' + name + '"');
    spellings.push_back(ConstantOf(name));
    spellings.push_back(name + "::kFormat");
  }
  for (const std::string& name : FamilyNames()) {
    spellings.push_back('"' + name + '"');
    spellings.push_back(ConstantOf(name));
  }
  return spellings;
}

// "path:line: asks for "name"", one for each spelling of a name.
std::vector<std::string> NamesOutsideRegistrations(const std::vector<SourceFile>& files) {
  const std::vector<std::string> spellings = Spellings();
  std::vector<std::string> wrong;
  for (const SourceFile& file : files) {
    // Formats that are built on others know those (the layering test has the edges).
    const bool may_name = file.path.starts_with("formats/") ||
                          std::ranges::any_of(kRegistrations, [&](std::string_view place) {
                            return file.path.starts_with(place);
                          });
    if (may_name) continue;
    const std::string code = WithoutComments(file.text);
    for (const std::string& spelling : spellings) {
      for (std::size_t at = code.find(spelling); at != std::string::npos;
           at = code.find(spelling, at + 1)) {
        const std::size_t end = at + spelling.size();
        const bool is_part =
            (IsOfWord(spelling.front()) && at > 0 && IsOfWord(code[at - 1])) ||
            (IsOfWord(spelling.back()) && end < code.size() && IsOfWord(code[end]));
        if (is_part) continue;
        const auto line =
            1 + std::count(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(at), '\n');
        wrong.push_back(file.path + ":" + std::to_string(line) + ": asks for " + spelling);
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
      return folder == "dcp" || folder == "torch_dist" || folder == "zarr";  // an encoding's name
    // The backends of Megatron-Core, by the names that it gives them.
    return folder == "megatron" && (name == "torch_dist" || name == "zarr");
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
                                 {"tools/c.cc", "Hint(\"save as fsdp_dtensor\"); kHfConfig;\n"},
                                 {"trainer/d.cc", "naming = \"fsdp2\";\n"},
                                 {"trainer/e.cc", "if (to == SaveFormat::kFsdpDtensor) {}\n"},
                                 {"trainer/f.cc", "if (&to == &hf::kFormat) {}\n"},
                                 {"trainer/g.cc", "if (type == \"qwen3_moe\") {}\n"},
                                 {"tools/ckpt-convert/verbs.h", "{\"hf\", \"fsdp_dtensor\"}\n"}}),
      ElementsAre("tools/b.cc:2: asks for \"hf\"", "trainer/d.cc:1: asks for \"fsdp2\"",
                  "trainer/e.cc:1: asks for kFsdpDtensor", "trainer/f.cc:1: asks for hf::kFormat",
                  "trainer/g.cc:1: asks for \"qwen3_moe\""));
  EXPECT_THAT(
      StrangeNamesInFolders({{"formats/registry/internal/detect.cc", "if (name == \"dcp\") {}\n"},
                             {"formats/dcp/format.cc", "{.name = \"dcp\"}\n"}}),
      ElementsAre("formats/registry/internal/detect.cc: names dcp"));
}

}  // namespace
}  // namespace ckpt::hygiene
