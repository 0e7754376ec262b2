// What ckpt-inspect finds in checkpoints that real software wrote, against the account that comes
// with each.
#include "tests/testing/golden.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/io/posix_storage.h"
#include "core/json/json_reader.h"
#include "core/json/json_writer.h"
#include "core/tensor/shape.h"
#include "tests/golden/megatron_notation.h"
#include "tests/testing/json_text.h"
#include "tools/ckpt-inspect/inspect.h"

namespace ckpt {
namespace {

using cli::ExitCode;
using testing::GoldenCase;
using testing::NormalizedJson;

// Where the checkpoints are: tests over the full collection and over the selection look the same.
struct CaseName {
  std::string group;
  std::string name;
};
void PrintTo(const CaseName& c, std::ostream* os) { *os << c.group << "/" << c.name; }

std::vector<CaseName> CasesOf(const std::vector<std::string>& groups) {
  std::vector<CaseName> cases;
  for (const std::string& group : groups) {
    for (const std::string& name : testing::GoldenCases(group)) cases.push_back({group, name});
  }
  return cases;
}

std::string TestName(const ::testing::TestParamInfo<CaseName>& info) {
  std::string name = info.param.group + "_" + info.param.name;
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

struct Answer {
  ExitCode code = ExitCode::kFailed;
  std::optional<JsonDocument> document;

  [[nodiscard]] JsonCursor root() const { return document->root(); }
};

Answer Inspect(std::vector<std::string> args) {
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams streams{.out = out, .err = err};
  args.emplace_back("--json");
  Answer answer;
  answer.code = inspect::RunInspect(args, PosixStorage(), streams);
  // Values of the goldens nest deeper than what our formats allow.
  Result<JsonDocument> document =
      JsonDocument::Parse(out.text(), args.front(), JsonLimits{.max_depth = 2000});
  if (!document.ok()) ADD_FAILURE() << document.status().ToString() << "\n" << out.text();
  answer.document = document.ok() ? *std::move(document) : *JsonDocument::Parse("{}", "");
  return answer;
}

std::string TextAt(const JsonCursor& object, std::string_view key) {
  const auto found = object.Find(key);
  return found && found->kind() == JsonKind::kText ? found->Text().value() : std::string();
}

class GoldenTest : public ::testing::TestWithParam<CaseName> {
 protected:
  void SetUp() override {
    golden_ = testing::LoadGolden(GetParam().group, GetParam().name);
    const auto text =
        ReadSmallFile(PosixStorage(), golden_.directory / "expected.json", 256ULL << 20);
    ASSERT_TRUE(text.ok());
    auto account = JsonDocument::Parse(*text, "expected.json", JsonLimits{.max_depth = 2000});
    ASSERT_TRUE(account.ok()) << account.status().ToString();
    account_ = *std::move(account);
  }

  [[nodiscard]] std::string path() const { return golden_.path.string(); }

  GoldenCase golden_;
  std::optional<JsonDocument> account_;
};

TEST_P(GoldenTest, FormatIsDetected) {
  const Answer answer = Inspect({"summary", path()});
  EXPECT_EQ(TextAt(answer.root(), "format"), golden_.format);
}

TEST_P(GoldenTest, TensorsHaveTheirShapesAndDtypes) {
  const Answer answer = Inspect({"tensors", path()});
  ASSERT_EQ(answer.code, ExitCode::kDone);
  std::map<std::string, std::string> want;
  for (const auto& [key, tensor] : golden_.tensors) {
    want[key] = tensor.dtype + FormatDims(tensor.shape);
  }
  std::map<std::string, std::string> got;
  const auto tensors = answer.root().At("tensors")->Items();
  for (const JsonCursor& tensor : *tensors) {
    got[TextAt(tensor, "key")] =
        TextAt(tensor, "dtype") + FormatDims(tensor.At("shape")->Int64Array().value());
  }
  EXPECT_EQ(got, want);
}

TEST_P(GoldenTest, DigestsAreThoseOfTheAccount) {
  const Answer answer = Inspect({"digest", path(), "--algorithm", "sha256"});
  ASSERT_EQ(answer.code, ExitCode::kDone);
  const JsonCursor tensors = *answer.root().At("tensors");
  for (const auto& [key, tensor] : golden_.tensors) {
    if (tensor.sha256.empty()) continue;
    EXPECT_EQ(TextAt(tensors, key), tensor.sha256) << key;
  }
}

// Boxes as text, for the tensors of which the account lists them as they are stored. Not those of
// Hugging Face files, where it lists what the ranks held and files may be consolidated, and not
// Megatron's flattened ones, of which we show the true shape.
std::map<std::string, std::vector<std::string>> ListedBoxes(const JsonCursor& account) {
  std::map<std::string, std::vector<std::string>> boxes;
  if (TextAt(account, "format") == "safetensors") return boxes;
  const auto tensors = account.At("tensors")->Members();
  for (const auto& [key, tensor] : *tensors) {
    const auto chunks = tensor.Find("chunks");
    if (!chunks || tensor.Find("stored_shape")) continue;
    std::vector<std::string>& list = boxes[key];
    const auto items = chunks->Items();
    for (const JsonCursor& chunk : *items) {
      list.push_back(NormalizedJson(*chunk.At("offsets")) + NormalizedJson(*chunk.At("sizes")));
    }
    std::sort(list.begin(), list.end());
  }
  return boxes;
}

TEST_P(GoldenTest, ChunksAreThoseOfTheAccount) {
  const auto want = ListedBoxes(account_->root());
  const Answer answer = Inspect({"shards", path()});
  std::map<std::string, std::vector<std::string>> got;
  const auto chunks = answer.root().At("chunks")->Items();
  for (const JsonCursor& chunk : *chunks) {
    const std::string key = TextAt(chunk, "key");
    if (!want.contains(key)) continue;
    got[key].push_back(NormalizedJson(*chunk.At("offsets")) + NormalizedJson(*chunk.At("sizes")));
  }
  for (auto& [key, list] : got) {
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());  // replicas
  }
  EXPECT_EQ(got, want);
}

TEST_P(GoldenTest, ObjectsAreThoseOfTheAccount) {
  const Answer answer = Inspect({"meta", path()});
  ASSERT_EQ(answer.code, ExitCode::kDone);
  const JsonCursor objects = *answer.root().At("objects");
  const auto want = account_->root().At("objects")->Members();
  for (const auto& [key, value] : *want) {
    const auto found = objects.Find(key);
    ASSERT_TRUE(found) << key;
    if (GetParam().group == "torch_dist") {
      EXPECT_EQ(testing::DifferenceFromMegatron(*found, value), "") << key;
    } else {
      EXPECT_EQ(NormalizedJson(*found), NormalizedJson(value)) << key;
    }
  }
  if (const auto value = account_->root().Find("value")) {
    EXPECT_EQ(NormalizedJson(*answer.root().At("value")), NormalizedJson(*value));
  }
}

TEST_P(GoldenTest, VerifyFindsNothingWrong) {
  const Answer answer = Inspect({"verify", path()});
  EXPECT_EQ(answer.code, ExitCode::kDone) << NormalizedJson(answer.root());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest,
                         ::testing::ValuesIn(CasesOf({"dcp", "fsdp_dtensor", "hf", "torch_dist"})),
                         TestName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GoldenTest);

// The golden's word for each damage, and ours.
const std::map<std::string, std::string>& OurKinds() {
  static const std::map<std::string, std::string> kinds = {
      {"bad_item", "bad_item"},
      {"bad_metadata", "bad_metadata"},
      {"checksum", "checksum"},
      {"coverage", "coverage"},
      {"dtype_mismatch", "dtype_mismatch"},
      {"incomplete", "incomplete"},
      {"missing_file", "missing_file"},
      {"out_of_range", "out_of_range"},
      {"overlap", "overlap"},
      {"resource", "resource"},
      {"shape_mismatch", "shape_mismatch"},
      {"size_mismatch", "size_mismatch"},
      {"truncated", "truncated"},
      {"unsafe_path", "unsafe_path"},
      {"unsafe_pickle", "unsafe_pickle"},
      {"unsupported", "unsupported"},
  };
  return kinds;
}

class BrokenTest : public ::testing::TestWithParam<CaseName> {};

struct Finding {
  std::string kind;
  std::string tensor;
};

std::vector<Finding> FindingsOf(const Answer& answer) {
  std::vector<Finding> findings;
  for (const char* list : {"problems", "errors"}) {
    const auto found = answer.root().Find(list);
    if (!found) continue;
    const auto items = found->Items();
    for (const JsonCursor& item : *items) {
      findings.push_back({TextAt(item, "kind"), TextAt(item, "tensor")});
    }
  }
  return findings;
}

TEST_P(BrokenTest, IsReportedAsItsAccountSays) {
  const GoldenCase golden = testing::LoadGolden(GetParam().group, GetParam().name);
  const Answer answer = Inspect({"verify", golden.path.string()});
  if (golden.kind.empty()) {  // the undamaged originals
    EXPECT_EQ(answer.code, ExitCode::kDone);
    return;
  }
  const bool may_read_on = golden.severity == "warn";
  EXPECT_TRUE(may_read_on || answer.code != ExitCode::kDone);
  ASSERT_TRUE(OurKinds().contains(golden.kind)) << golden.kind;
  const std::string& kind = OurKinds().at(golden.kind);
  const std::vector<Finding> findings = FindingsOf(answer);
  const auto has = [&](const std::string& key) {
    return std::any_of(findings.begin(), findings.end(), [&](const Finding& finding) {
      return finding.kind == kind && (key.empty() || finding.tensor == key);
    });
  };
  EXPECT_TRUE(has("")) << "no finding of kind " << kind << ": " << NormalizedJson(answer.root());
  // Where the checkpoint as a whole cannot be opened, or may hold a mixture, no single entry is to
  // blame.
  const bool names_entries =
      answer.code == ExitCode::kDifferent || (may_read_on && kind != "incomplete");
  if (!names_entries) return;
  for (const std::string& key : golden.affected) EXPECT_TRUE(has(key)) << key;
}

TEST_P(BrokenTest, LeavesTheRestReadable) {
  const GoldenCase golden = testing::LoadGolden(GetParam().group, GetParam().name);
  if (Inspect({"summary", golden.path.string()}).code == ExitCode::kFailed) return;
  for (const auto& [key, tensor] : golden.tensors) {
    if (std::count(golden.affected.begin(), golden.affected.end(), key) > 0) continue;
    const Answer answer =
        Inspect({"digest", golden.path.string(), "--algorithm", "sha256", "--match", key});
    EXPECT_EQ(TextAt(*answer.root().Find("tensors"), key), tensor.sha256) << key;
  }
}

TEST_P(BrokenTest, NeverDigestsDamagedTensors) {
  const GoldenCase golden = testing::LoadGolden(GetParam().group, GetParam().name);
  if (golden.severity != "refuse") return;
  if (Inspect({"summary", golden.path.string()}).code == ExitCode::kFailed) return;
  const auto tensors = Inspect({"tensors", golden.path.string()});
  const std::string listed = NormalizedJson(*tensors.root().Find("tensors"));
  for (const std::string& key : golden.affected) {
    if (listed.find(JsonQuote(key)) == std::string::npos)
      continue;  // an object, or not even listed
    EXPECT_EQ(Inspect({"digest", golden.path.string(), "--match", key}).code, ExitCode::kFailed)
        << key;
  }
}

INSTANTIATE_TEST_SUITE_P(All, BrokenTest, ::testing::ValuesIn(CasesOf({"dcp/broken"})), TestName);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BrokenTest);

}  // namespace
}  // namespace ckpt
