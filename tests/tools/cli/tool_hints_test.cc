// Which command a hint of core stands for.
#include "tools/cli/internal/tool_hints.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/status.h"
#include "core/checkpoint/no_match.h"
#include "core/json/json_writer.h"
#include "core/manifest/read_manifest.h"
#include "core/training/run_format.h"
#include "tools/cli/error_report.h"

namespace ckpt::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ToolHintsTest, NameWhatCanBeTyped) {
  EXPECT_THAT(InWordsOfTools(kListKeys), HasSubstr("ckpt-inspect tensors"));
  EXPECT_THAT(InWordsOfTools(kRepairManifest), HasSubstr("ckpt-inspect repair"));
  EXPECT_THAT(InWordsOfTools(kTakeWeightsAlone), HasSubstr("ckpt-convert --weights-only"));
  EXPECT_THAT(InWordsOfTools(kTakeWeightsAlone), HasSubstr("ckpt-train --set finetune=true"));
}

TEST(ToolHintsTest, LeaveOtherHintsAsTheyAre) {
  EXPECT_EQ(InWordsOfTools("choose another name"), "choose another name");
  EXPECT_EQ(InWordsOfTools(""), "");
}

// For people, in lists of findings, and for scripts.
TEST(ToolHintsTest, AreToldInEveryReport) {
  const Status status = Error(ErrorKind::kUnsupported, "another optimizer").Hint(kTakeWeightsAlone);
  StringOutput out;
  StringOutput err;
  Streams streams{.out = out, .err = err};
  (void)Conclude(status, true, streams);
  JsonWriter json;
  AppendProblemList(status.problems(), json.BeginObject());
  json.End();
  for (const std::string& text :
       {out.text(), err.text(), DescribeProblem(status.first()), json.Take()}) {
    EXPECT_THAT(text, HasSubstr("--weights-only"));
    EXPECT_THAT(text, Not(HasSubstr(std::string(kTakeWeightsAlone))));
  }
}

}  // namespace
}  // namespace ckpt::cli
