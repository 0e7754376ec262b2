// Rules about single files: guards, width, third-party includes, model names, kernels.
#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/hygiene/source_file.h"

namespace ckpt::hygiene {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string> kLibraries = {"core", "formats", "converters", "trainer"};
constexpr std::ptrdiff_t kMaxWidth = 100;  // ColumnLimit of .clang-format

std::string GuardOf(std::string path) {
  std::string guard = "CKPT_";
  for (const char c : path) {
    guard += std::isalnum(static_cast<unsigned char>(c)) != 0
                 ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
                 : '_';
  }
  return guard + "_";
}

std::vector<std::string> WrongGuards(const std::vector<SourceFile>& files) {
  std::vector<std::string> wrong;
  for (const SourceFile& file : files) {
    if (!IsHeader(file)) continue;
    const std::string guard = GuardOf(file.path);
    const bool opens =
        file.text.find("#ifndef " + guard + "\n#define " + guard + "\n") != std::string::npos;
    const bool closes = file.text.ends_with("#endif  // " + guard + "\n");
    if (!opens || !closes) wrong.push_back(file.path + ": the guard is not " + guard);
  }
  return wrong;
}

// Characters of UTF-8 text.
std::ptrdiff_t Width(std::string_view line) {
  return std::ranges::count_if(line, [](unsigned char c) { return (c & 0xC0U) != 0x80U; });
}

// Whether the line is an include or one word, as a literal or an address.
bool CannotBeBroken(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  if (line.starts_with("#include ")) return true;
  if (line.starts_with("// ")) line.remove_prefix(3);
  return line.find(' ') == std::string_view::npos;
}

// Lines that are too wide and could be broken. clang-format leaves comments as they are.
std::vector<std::string> WideLines(const std::vector<SourceFile>& files) {
  std::vector<std::string> wide;
  for (const SourceFile& file : files) {
    std::istringstream lines(file.text);
    std::string line;
    for (int number = 1; std::getline(lines, line); ++number) {
      if (Width(line) <= kMaxWidth || CannotBeBroken(line)) continue;
      wide.push_back(file.path + ":" + std::to_string(number) + ": is wider than 100 characters");
    }
  }
  return wide;
}

// Third-party types stay out of public headers; the path alias is the exception.
std::vector<std::string> ThirdPartyIncludes(const std::vector<SourceFile>& files) {
  static const std::regex kThirdParty(
      "^(boost|fmt|nlohmann|openssl|CLI|isa-l|hdf5|spdlog)[./].*|^(zstd|xxhash|isa-l|hdf5).*");
  std::vector<std::string> wrong;
  for (const SourceFile& file : files) {
    if (!IsHeader(file)) continue;
    for (const Include& include : FindIncludes(file.text)) {
      const bool is_path_alias =
          file.path == "core/io/path.h" && include.target == "boost/filesystem/path.hpp";
      if (!include.quoted && !is_path_alias && std::regex_match(include.target, kThirdParty)) {
        wrong.push_back(file.path + ":" + std::to_string(include.line) + ": includes <" +
                        include.target + ">");
      }
    }
  }
  return wrong;
}

// Kernels of operations, which are set up while the one before them runs, that do not first wait
// for it; and launches that bypass Launch().
std::vector<std::string> WrongKernels(const std::vector<SourceFile>& files) {
  static const std::regex kKernel(R"(__global__[^{]*\{\s*(\w*))");
  std::vector<std::string> wrong;
  for (const SourceFile& file : files) {
    const std::string code = WithoutComments(file.text);
    for (std::sregex_iterator at(code.begin(), code.end(), kKernel), end; at != end; ++at) {
      if ((*at)[1] == "AwaitEarlier") continue;
      wrong.push_back(file.path + ": a kernel begins with " + at->str(1));
    }
    if (code.find("<<<") != std::string::npos) wrong.push_back(file.path + ": launches by <<<");
  }
  return wrong;
}

// Names of other software that several families use: of a kind of scaled positions, and of
// Megatron-Bridge's classes.
std::string WithoutForeignNames(std::string code) {
  static const std::regex kForeign(R"(llama3(?![0-9.])|megatron\.bridge\.models\.[a-z_.]+)");
  return std::regex_replace(code, kForeign, "******");
}

// Lines of a table without what stands behind a #.
std::string WithoutTableComments(const std::string& text) {
  static const std::regex kComment("#[^\n]*");
  return std::regex_replace(text, kComment, "");
}

// The types of models that *.family files match, by quoted name, each with its file.
std::vector<std::pair<std::string, std::string>> MatchedNames(
    const std::vector<SourceFile>& families) {
  static const std::regex kMatch("\nmatch [^\n]*");
  static const std::regex kQuoted("\"[^\"]+\"");
  std::vector<std::pair<std::string, std::string>> names;
  for (const SourceFile& family : families) {
    std::smatch match;
    if (!std::regex_search(family.text, match, kMatch)) continue;
    const std::string line = match.str();
    for (std::sregex_iterator name(line.begin(), line.end(), kQuoted), end; name != end; ++name) {
      names.emplace_back(name->str(), family.path);
    }
  }
  return names;
}

// Names of families, and of models that may come, as far as they tell one from other words.
std::vector<std::string> NamesOfModels() {
  std::vector<std::string> names = {"llama", "mistral", "mixtral", "qwen", "deepseek",
                                    "olmo",  "gpt_oss", "gptoss",  "glm4"};
  for (const auto& [quoted, file] : MatchedNames(ReadFiles({"converters"}, {".family"}))) {
    const std::string name = quoted.substr(1, quoted.size() - 2);
    const bool is_known = std::ranges::any_of(
        names, [&](const std::string& stem) { return name.find(stem) != std::string::npos; });
    // Megatron is also a trainer.
    if (!is_known && name != "megatron") names.push_back(name);
  }
  return names;
}

// Families are data: no code may know the name of one.
std::vector<std::string> ModelNames(const std::vector<SourceFile>& files) {
  static const std::vector<std::string> names = NamesOfModels();
  std::vector<std::string> wrong;
  for (const SourceFile& file : files) {
    std::string code = WithoutComments(file.text);
    std::ranges::transform(code, code.begin(), [](unsigned char c) { return std::tolower(c); });
    code = WithoutForeignNames(std::move(code));
    for (const std::string& name : names) {
      const std::size_t at = code.find(name);
      if (at == std::string::npos) continue;
      const auto line =
          1 + std::count(code.begin(), code.begin() + static_cast<std::ptrdiff_t>(at), '\n');
      wrong.push_back(file.path + ":" + std::to_string(line) + ": names the model " + name);
    }
  }
  return wrong;
}

// A family is one file: tables ask facts, never which model it is.
std::vector<std::string> FamiliesOutsideTheirFiles(const std::vector<SourceFile>& tables,
                                                   const std::vector<SourceFile>& families) {
  std::vector<std::string> wrong;
  const auto look = [&](const SourceFile& file, const std::string& text) {
    for (const auto& [name, home] : MatchedNames(families)) {
      // A run of Megatron is of a family of its own, which the table of its arguments chooses.
      const bool is_chosen = name == "\"megatron\"" && file.path.ends_with("/megatron_to_hf.table");
      if (file.path == home || is_chosen || text.find(name) == std::string::npos) continue;
      wrong.push_back(file.path + ": names the family " + name);
    }
  };
  for (const SourceFile& family : families) look(family, WithoutTableComments(family.text));
  for (const SourceFile& table : tables) {
    const std::string text = WithoutTableComments(table.text);
    look(table, text);
    if (text.find("model_type ") != std::string::npos &&
        !table.path.ends_with("/megatron_to_hf.table")) {
      wrong.push_back(table.path + ": asks which model it is");
    }
  }
  return wrong;
}

TEST(SourceRulesTest, FamiliesAreNamedInTheirFilesOnly) {
  const std::vector<SourceFile> families = ReadFiles({"converters"}, {".family"});
  EXPECT_GE(MatchedNames(families).size(), 10U);
  EXPECT_THAT(FamiliesOutsideTheirFiles(
                  ReadFiles({"converters", "formats"}, {".table", ".layout", ".facts"}), families),
              IsEmpty());
}

TEST(SourceRulesTest, CatchesATableThatAsksForAFamily) {
  const std::vector<SourceFile> families = {
      {"f/a.family", "family a\nmatch model_type == \"a\"\n"},
      {"f/b.family", "family b\nmatch model_type == \"b\"\n"}};
  EXPECT_THAT(
      FamiliesOutsideTheirFiles({{"c/t.table", "# \"a\"\nx = kind == \"a\" ? 1 : 0\n"}}, families),
      ElementsAre(HasSubstr("names the family \"a\"")));
  EXPECT_THAT(FamiliesOutsideTheirFiles({{"c/t.table", "x = model_type == \"c\"\n"}}, families),
              ElementsAre(HasSubstr("asks which model it is")));
}

TEST(SourceRulesTest, EveryHeaderHasItsGuard) {
  EXPECT_THAT(
      WrongGuards(ReadSources({"core", "formats", "converters", "trainer", "tools", "tests"})),
      IsEmpty());
}

TEST(SourceRulesTest, CatchesAWrongGuard) {
  EXPECT_THAT(WrongGuards({{"core/io/a.h", "#ifndef A_H\n#define A_H\n#endif\n"}}),
              ElementsAre(HasSubstr("CKPT_CORE_IO_A_H_")));
}

TEST(SourceRulesTest, LinesAreNotTooWide) {
  EXPECT_THAT(WideLines(ReadSources(
                  {"core", "formats", "converters", "trainer", "tools", "tests", "docs"})),
              IsEmpty());
}

TEST(SourceRulesTest, CatchesAWideLine) {
  const std::string word(90, 'x');
  EXPECT_THAT(
      WideLines({{"a.cc", "// 5678901 " + word + "\n"},      // 101
                 {"b.cc", "// 567890 " + word + "\n"},       // 100
                 {"c.cc", "// 5678 \u2192 " + word + "\n"},  // 100, one of three bytes
                 {"d.cc", "  // https://" + word + "\n"},    // 102
                 {"e.cc", "          \"" + word + "\";\n"},  // 103
                 {"f.cc", "#include \"core/" + word + ".h\"\n"},
                 {"g.cc", "int x;  // " + word + "\n"}}),
      ElementsAre("a.cc:1: is wider than 100 characters", "g.cc:1: is wider than 100 characters"));
}

TEST(SourceRulesTest, PublicHeadersIncludeNoThirdParty) {
  EXPECT_THAT(ThirdPartyIncludes(ReadSources(kLibraries)), IsEmpty());
}

TEST(SourceRulesTest, CatchesAThirdPartyInclude) {
  EXPECT_THAT(
      ThirdPartyIncludes({{"core/io/a.h", "#include <fmt/format.h>\n#include <sys/stat.h>\n"},
                          {"core/io/b.h", "#include <zstd.h>\n"},
                          {"core/io/c.cc", "#include <zstd.h>\n"}}),
      ElementsAre(HasSubstr("core/io/a.h:1"), HasSubstr("core/io/b.h:1")));
}

// Tools may name one in the examples of their help.
TEST(SourceRulesTest, CodeNamesNoModel) {
  EXPECT_THAT(ModelNames(ReadSources(kLibraries)), IsEmpty());
}

TEST(SourceRulesTest, CatchesAModelNameInCodeButNotInAComment) {
  EXPECT_THAT(
      ModelNames({{"core/a.cc", "// as Llama does\nint x;\n"},
                  {"core/b.cc", "int x;\nif (type == \"Qwen3\") {}\n"},
                  {"core/c.cc", "if (rope == \"llama3\") {}\n"},
                  {"core/d.cc", "if (type == \"llama3.1\") {}\n"}}),
      ElementsAre("core/b.cc:2: names the model qwen", "core/d.cc:1: names the model llama"));
}

TEST(SourceRulesTest, KernelsWaitForTheWorkBeforeThem) {
  const std::vector<SourceFile> files = ReadFiles({"trainer/ops/cuda"}, {".cu", ".cuh"});
  EXPECT_GE(files.size(), 20U);
  EXPECT_THAT(WrongKernels(files), IsEmpty());
}

TEST(SourceRulesTest, CatchesAKernelThatDoesNotWait) {
  EXPECT_THAT(
      WrongKernels({{"a.cu", "__global__ void A(int* x) {\n  // why\n  AwaitEarlier();\n}\n"},
                    {"b.cu", "__global__ void B(int* x) {\n  *x = 1;\n  AwaitEarlier();\n}\n"},
                    {"c.cu", "void C() { B<<<1, 1>>>(x); }\n"}}),
      ElementsAre(HasSubstr("b.cu: a kernel"), HasSubstr("c.cu: launches")));
}

}  // namespace
}  // namespace ckpt::hygiene
