#include "tools/ckpt-inspect/html_page.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/memory_storage.h"
#include "core/json/json_reader.h"
#include "tests/testing/matchers.h"
#include "tests/tools/ckpt-inspect/fake_source.h"
#include "tools/ckpt-inspect/commands.h"

namespace ckpt::inspect {
namespace {

using ::ckpt::testing::BytesOf;
using ::ckpt::testing::FailsWith;
using ::ckpt::testing::FakeSource;
using ::ckpt::testing::IsOk;
using ::ckpt::testing::IsOkAndHolds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHostile[] = "</script><img src=x onerror=alert(1)>\"'&\x1b[31m\xff";

ListedCheckpoint Checkpoint(const std::vector<std::string>& keys) {
  auto source = std::make_unique<FakeSource>();
  for (const std::string& key : keys) {
    source->AddTensor(key, DType::kFloat32, {2}, BytesOf<float>({1, 2}));
  }
  source->Finish();
  ListedCheckpoint checkpoint;
  checkpoint.path = "/run/<b>7</b>";
  checkpoint.source = std::move(source);
  return checkpoint;
}

// What the script of the page reads.
std::string TableOf(const std::string& page) {
  const std::string open = "<script id=\"data\" type=\"application/json\">";
  const std::size_t begin = page.find(open) + open.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

TEST(HtmlPageTest, EscapesMarkupAndControls) {
  EXPECT_EQ(EscapeHtml("<a href=\"x\">'&'\x1b"),
            "&lt;a href=&quot;x&quot;&gt;&#39;&amp;&#39;\\x1b");
  EXPECT_EQ(EscapeScript(R"(["</script>&"])"), R"(["\u003c/script\u003e\u0026"])");
}

TEST(HtmlPageTest, TextOfTheCheckpointIsNeverMarkup) {
  const std::string page = MakePage(Checkpoint({kHostile, "plain"}));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<b>7")));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  // One script is the table, the other one the page's own.
  std::size_t scripts = 0;
  for (std::size_t at = page.find("<script"); at != std::string::npos;
       at = page.find("<script", at + 1)) {
    ++scripts;
  }
  EXPECT_EQ(scripts, 2U);
  const auto table = JsonDocument::Parse(TableOf(page), "table");
  ASSERT_THAT(table, IsOk());
  const auto tensors = table->root().At("tensors")->Items();
  ASSERT_EQ(tensors->size(), 2U);
  const auto row = tensors->front().Items();
  EXPECT_THAT(row->front().Text(),
              IsOkAndHolds(HasSubstr("</script><img src=x onerror=alert(1)>\"'&\\x1b[31m\\xff")));
}

TEST(HtmlPageTest, LoadsNothing) {
  const std::string page = MakePage(Checkpoint({"a"}));
  for (const char* what : {"http:", "https:", "//", "src=", "href=", "@import", "url("}) {
    const std::string without_comments = [&] {
      std::string text = page;
      const std::size_t note = text.find("// Shows the tensors");
      if (note != std::string::npos) text.erase(note, text.find('\n', note) - note);
      return text;
    }();
    EXPECT_THAT(without_comments, Not(HasSubstr(what))) << what;
  }
  EXPECT_THAT(page, HasSubstr("default-src 'none'"));
}

TEST(HtmlPageTest, StaysBoundedForManyTensors) {
  std::vector<std::string> keys;
  for (int i = 0; i < 45'000; ++i) {
    keys.push_back("model.layers." + std::to_string(i) + ".mlp.experts.weight");
  }
  const std::string page = MakePage(Checkpoint(keys));
  EXPECT_LT(page.size(), 16U << 20);
  const auto table = JsonDocument::Parse(TableOf(page), "table");
  ASSERT_THAT(table, IsOk());
  EXPECT_EQ(table->root().At("tensors")->Items()->size(), keys.size());
}

TEST(HtmlPageTest, LongKeysAreCut) {
  const std::string page = MakePage(Checkpoint({std::string(1 << 20, 'k')}));
  EXPECT_LT(page.size(), 64U << 10);
}

TEST(HtmlPageTest, AnEmptyCheckpointHasAPage) {
  EXPECT_THAT(MakePage(Checkpoint({})), HasSubstr("No tensor has a chunk"));
}

TEST(HtmlPageTest, ReplacesNothingUnlessAsked) {
  const auto storage = MakeMemoryStorage();
  cli::StringOutput out;
  cli::StringOutput err;
  Streams streams{.out = out, .err = err};
  const ListedCheckpoint checkpoint = Checkpoint({"a"});
  HtmlOptions options{.common = {}, .path = checkpoint.path, .output = "/page.html"};
  EXPECT_THAT(RunHtml(*storage, checkpoint, options, streams), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(RunHtml(*storage, checkpoint, options, streams),
              FailsWith(ErrorKind::kAlreadyExists));
  options.overwrite = true;
  EXPECT_THAT(RunHtml(*storage, checkpoint, options, streams), IsOkAndHolds(ExitCode::kDone));
  EXPECT_THAT(ReadSmallFile(*storage, "/page.html", 1 << 20), IsOkAndHolds(MakePage(checkpoint)));
}

// Whatever --overwrite allows.
TEST(HtmlPageTest, ReplacesNoPartOfTheCheckpoint) {
  const auto storage = MakeMemoryStorage();
  cli::StringOutput out;
  cli::StringOutput err;
  Streams streams{.out = out, .err = err};
  struct Case {
    const char* path;
    const char* output;
  };
  for (const Case& c :
       {Case{"/run", "/run/tracker"}, Case{"/run", "/run/7/a.bin"}, Case{"/run/7", "/run/7/a.bin"},
        Case{"/run/7", "/run/7/page.html"}, Case{"/run/7", "/run/7"}}) {
    SCOPED_TRACE(c.output);
    ASSERT_TRUE(storage->MakeDirectories("/run/7").ok());
    ListedCheckpoint checkpoint = Checkpoint({"a"});
    checkpoint.path = "/run/7";
    const HtmlOptions options{.common = {}, .path = c.path, .output = c.output, .overwrite = true};
    EXPECT_THAT(RunHtml(*storage, checkpoint, options, streams), FailsWith(ErrorKind::kUsage));
  }
  // One file of several, and the name under which the page is prepared.
  for (const char* output : {"/other/a.bin", "/other/b"}) {
    ListedCheckpoint checkpoint = Checkpoint({"a"});
    checkpoint.path = "/other/b.ckptkit-partial";
    ASSERT_TRUE(storage->MakeDirectories("/other").ok());
    ASSERT_TRUE(WriteSmallFile(*storage, "/other/a.bin", AsBytes("kept")).ok());
    ASSERT_TRUE(WriteSmallFile(*storage, checkpoint.path, AsBytes("kept")).ok());
    const HtmlOptions options{
        .common = {}, .path = checkpoint.path, .output = output, .overwrite = true};
    EXPECT_THAT(RunHtml(*storage, checkpoint, options, streams), FailsWith(ErrorKind::kUsage));
    ASSERT_TRUE(storage->RemoveAll("/other").ok());
  }
}

}  // namespace
}  // namespace ckpt::inspect
