// Every include follows an edge that the build declares, and every edge points down.
#include "tests/hygiene/layering.h"

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::hygiene {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::vector<std::string> kAllFolders = {"core",    "formats", "converters",
                                              "trainer", "tools",   "tests"};

constexpr std::string_view kSmallManifest =
    "core/base|||status.h\n"
    "core/io|ckpt::core_base Boost::headers||storage.h\n"
    "core/checkpoint|ckpt::core_io||index.h\n"
    "formats/dcp|ckpt::core_checkpoint|ckpt::core_io|source.h\n";

TEST(LayeringTest, EveryIncludeFollowsADeclaredEdge) {
  const Layering layering = ParseLayering(Manifest());
  ASSERT_TRUE(layering.contains("core/base")) << "no manifest in " << CKPT_BINARY_DIR;
  EXPECT_THAT(WrongIncludes(layering, ReadSources(kAllFolders)), IsEmpty());
}

TEST(LayeringTest, CatchesAPlantedInclude) {
  const SourceFile planted = {"core/io/planted.cc",
                              "// why\n#include \"formats/dcp/metadata.h\"\n"};
  EXPECT_THAT(WrongIncludes(ParseLayering(kSmallManifest), {planted}),
              ElementsAre(HasSubstr("core/io/planted.cc:2: includes \"formats/dcp/metadata.h\"")));
}

TEST(LayeringTest, CatchesAnIncludeOfTests) {
  const SourceFile planted = {"core/io/planted.cc", "#include \"tests/testing/matchers.h\"\n"};
  EXPECT_THAT(WrongIncludes(ParseLayering(kSmallManifest), {planted}),
              ElementsAre(HasSubstr("nobody but tests")));
}

TEST(LayeringTest, CatchesAnIncludeThatIsNotWrittenFromTheRoot) {
  const SourceFile planted = {"core/io/planted.cc", "#include \"storage.h\"\n"};
  EXPECT_THAT(WrongIncludes(ParseLayering(kSmallManifest), {planted}),
              ElementsAre(HasSubstr("not a path from the root")));
}

TEST(LayeringTest, EveryDeclaredEdgeIsFollowed) {
  EXPECT_THAT(UnusedEdges(ParseLayering(Manifest()), ReadSources(kAllFolders)), IsEmpty());
}

TEST(LayeringTest, CatchesAnEdgeThatIsOnlyInherited) {
  const SourceFile file = {"formats/dcp/source.cc", "#include \"core/base/status.h\"\n"};
  EXPECT_THAT(WrongIncludes(ParseLayering(kSmallManifest), {file}),
              ElementsAre(HasSubstr("formats/dcp declares no edge to core/base")));
}

TEST(LayeringTest, CatchesAPublicHeaderThatFollowsAPrivateEdge) {
  const std::string text = "#include \"core/io/storage.h\"\n";
  const Layering layering = ParseLayering(kSmallManifest);
  EXPECT_THAT(WrongIncludes(layering, {{"formats/dcp/source.h", text}}),
              ElementsAre(HasSubstr("not its DEPS")));
  EXPECT_THAT(WrongIncludes(layering, {{"formats/dcp/source.cc", text}}), IsEmpty());
  EXPECT_THAT(WrongIncludes(layering, {{"formats/dcp/internal/item.h", text}}), IsEmpty());
}

TEST(LayeringTest, CatchesAnIncludeOfAnInternalHeader) {
  const SourceFile file = {"formats/dcp/source.cc", "#include \"core/io/internal/x.h\"\n"};
  EXPECT_THAT(WrongIncludes(ParseLayering(kSmallManifest), {file}),
              ElementsAre(HasSubstr("is internal to core/io")));
}

TEST(LayeringTest, CatchesAnEdgeThatNoIncludeFollows) {
  EXPECT_THAT(
      UnusedEdges(ParseLayering(kSmallManifest),
                  {{"core/io/storage.h", "#include \"core/base/status.h\"\n"},
                   {"core/checkpoint/index.cc", "#include \"core/io/storage.h\"\n"},
                   {"formats/dcp/source.h", "#include \"core/checkpoint/index.h\"\n"}}),
      ElementsAre("core/checkpoint declares an edge to core/io, but no public header follows it",
                  "formats/dcp declares an edge to core/io, but no source follows it"));
}

// Folders that implement a kind of device: `trainer/device/cpu`, `trainer/ops/cpu`.
bool IsOfOneDevice(std::string_view folder) {
  return folder.starts_with("trainer/device/") || folder.starts_with("trainer/ops/");
}

// Includes of a kind of device, by files that may not know any. Only the kind itself and
// trainer/backend, which makes it by name, know it; tests may.
std::vector<std::string> NamesOfDevices(const std::vector<SourceFile>& files) {
  std::vector<std::string> names;
  for (const SourceFile& file : files) {
    if (IsOfOneDevice(file.path.substr(0, file.path.rfind('/'))) ||
        file.path.starts_with("trainer/backend/") || file.path.starts_with("tests/")) {
      continue;
    }
    for (const Include& include : FindIncludes(file.text)) {
      if (IsOfOneDevice(include.target.substr(0, include.target.rfind('/')))) {
        names.push_back(file.path + " includes \"" + include.target + "\"");
      }
    }
  }
  return names;
}

TEST(LayeringTest, NothingAboveTheBackendNamesAKindOfDevice) {
  EXPECT_THAT(NamesOfDevices(ReadSources(kAllFolders)), IsEmpty());
}

TEST(LayeringTest, CatchesANameOfAKindOfDevice) {
  const std::string text = "#include \"trainer/device/cpu/host_device.h\"\n";
  EXPECT_THAT(
      NamesOfDevices({{"tools/ckpt-train/planted.cc", text}, {"trainer/backend/b.cc", text}}),
      ElementsAre(HasSubstr("tools/ckpt-train/planted.cc includes")));
}

// The operations' interface is what a backend implements, so it must not link the CPU's library.
TEST(LayeringTest, OnlyTheBackendDependsOnAKindOfDevice) {
  for (const auto& [from, edges] : ParseLayering(Manifest())) {
    if (from == "trainer/backend" || IsOfOneDevice(from)) continue;
    for (const auto& targets : {edges.of_headers, edges.of_sources}) {
      for (const std::string& to : targets) {
        EXPECT_FALSE(IsOfOneDevice(to)) << from << " declares an edge to " << to;
      }
    }
  }
}

// Whether all headers of a folder may be public. `wrong` begins with the path of one.
bool MayShowAll(std::string_view wrong) {
  static const std::set<std::string_view> kFolders = {
      // Programs: nobody includes them.
      "tools/ckpt-convert", "tools/ckpt-inspect", "tools/ckpt-train"};
  const std::string_view header = wrong.substr(0, wrong.find(' '));
  return kFolders.contains(header.substr(0, header.rfind('/')));
}

TEST(LayeringTest, HeadersOfOneFolderAreInternal) {
  std::vector<std::string> files = kAllFolders;
  files.emplace_back("docs");
  std::vector<std::string> wrong =
      HeadersOfOneFolder(ParseLayering(Manifest()), ReadSources(files));
  std::erase_if(wrong, MayShowAll);
  // Storage in memory and ranks on threads are for tests of every folder.
  EXPECT_THAT(wrong, ElementsAre(HasSubstr("core/io/memory_storage.h "),
                                 HasSubstr("trainer/comm/thread_comm.h ")));
}

TEST(LayeringTest, CatchesAPublicHeaderThatNoOtherFolderIncludes) {
  const std::string manifest =
      "core/base|||status.h error_kind.h pieces.h\n"
      "core/io|ckpt::core_base||storage.h\n";
  const std::vector<SourceFile> files = {
      {"core/base/status.cc", "#include \"core/base/pieces.h\"\n"},
      {"core/base/status.h", "#include \"core/base/error_kind.h\"\n"},
      {"core/io/storage.h", "#include \"core/base/status.h\"\n"},
      {"tests/core/base/pieces_test.cc", "#include \"core/base/pieces.h\"\n"},
      {"tools/cli/table.cc", "#include \"core/io/storage.h\"\n"}};
  EXPECT_THAT(HeadersOfOneFolder(ParseLayering(manifest), files),
              ElementsAre("core/base/pieces.h is included by its own folder alone"));
}

TEST(LayeringTest, CatchesAPublicHeaderThatIncludesAnInternalOne) {
  const SourceFile file = {"formats/dcp/source.h", "#include \"formats/dcp/internal/item.h\"\n"};
  EXPECT_THAT(WrongIncludes(ParseLayering(kSmallManifest), {file}),
              ElementsAre(HasSubstr("includes the internal")));
}

// Which formats read and write their files by means of other folders.
bool IsBuiltOn(std::string_view from, std::string_view to) {
  static const std::map<std::string_view, std::set<std::string_view>> kBelow = {
      {"formats/dcp", {"formats/safetensors", "formats/torch_save"}},
      {"formats/fsdp2", {"formats/dcp", "formats/megatron", "formats/torch_save"}},
      {"formats/fsdp_dtensor", {"formats/dcp", "formats/megatron", "formats/torch_save"}},
      {"formats/megatron", {"formats/torch_save"}},  // Megatron-Bridge's train_state.pt
      {"formats/mp_rank", {"formats/megatron", "formats/torch_save"}},
      {"formats/hf", {"formats/safetensors", "formats/torch_save"}},
      {"formats/torch_dist", {"formats/dcp", "formats/megatron", "formats/torch_save"}},
      {"formats/torch_save", {"formats/safetensors"}},  // the index of a sharded repository
      {"formats/verl", {"formats/torch_save"}},
      {"formats/zarr", {"formats/megatron", "formats/torch_save"}},
  };
  const auto found = kBelow.find(from);
  return found != kBelow.end() && found->second.contains(to);
}

// The direction of the table "Folders" of docs/architecture.md, on what the build declares rather
// than on what is included.
bool EdgeIsAllowed(std::string_view from, std::string_view to) {
  const auto in = [](std::string_view path, std::string_view top) {
    return path == top || path.starts_with(std::string(top) + "/");
  };
  if (in(from, "core")) return in(to, "core");
  // What several formats are written in.
  const auto is_notation = [](std::string_view path) {
    return path == "formats/pickle" || path == "formats/zip";
  };
  if (from == "formats" || is_notation(from)) return in(to, "core");
  if (from == "formats/registry") return in(to, "core") || in(to, "formats");  // it lists them all
  if (in(from, "formats")) {
    return in(to, "core") || to == "formats" || is_notation(to) || IsBuiltOn(from, to);
  }
  if (in(from, "converters")) {
    return in(to, "core") || in(to, "converters") || to == "formats" || to == "formats/registry";
  }
  // What opens and writes the files of a run knows the doors of the formats.
  const bool has_files = in(from, "trainer/run") || in(from, "trainer/check");
  if (has_files && in(to, "formats")) return true;
  if (in(from, "trainer")) return in(to, "core") || in(to, "trainer") || in(to, "converters");
  return in(from, "tools");
}

TEST(LayeringTest, EveryDeclaredEdgePointsDown) {
  for (const auto& [from, edges] : ParseLayering(Manifest())) {
    for (const auto& targets : {edges.of_headers, edges.of_sources}) {
      for (const std::string& to : targets) {
        EXPECT_TRUE(EdgeIsAllowed(from, to)) << from << " declares an edge to " << to;
      }
    }
  }
}

}  // namespace
}  // namespace ckpt::hygiene
