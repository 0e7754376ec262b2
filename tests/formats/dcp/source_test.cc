#include "formats/dcp/source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/differing_copies.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/validate.h"
#include "core/io/posix_storage.h"
#include "tests/testing/golden.h"
#include "tests/testing/golden_tensors.h"
#include "tests/testing/json_text.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using ::testing::Contains;
using ::testing::Field;
using testing::GoldenCase;
using testing::IsOk;
using testing::IsOkAndHolds;

constexpr std::uint64_t kBudget = 1 << 20;

std::vector<std::string> DcpCases(const std::string& group) {
  std::vector<std::string> names;
  for (const std::string& name : testing::GoldenCases(group)) {
    const Result<std::string> text = ReadSmallFile(
        PosixStorage(), testing::GoldenDir() / group / name / "expected.json", 256ULL << 20);
    if (text.ok() && text->find("\"format\": \"dcp\"") != std::string::npos) names.push_back(name);
  }
  return names;
}

std::string Name(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

// What no checksum was compared with must not be said to be protected by one.
TEST(DcpSourceTest, ClaimsAChecksumOnlyWhereThereIsOne) {
  for (const auto& [name, protection] : {std::pair("nested", Protection::kCrc32),
                                         std::pair("safetensors_format", Protection::kNone)}) {
    const Path directory = testing::GoldenDir() / "dcp" / name / "ckpt";
    const auto source = dcp::Source::Open(PosixStorage(), directory);
    ASSERT_THAT(source, IsOk()) << name;
    const CheckpointIndex& index = (*source)->index();
    ASSERT_FALSE(index.tensors().empty());
    for (const GlobalTensor& tensor : index.tensors()) {
      ASSERT_THAT((*source)->Locate(tensor, index.chunks(tensor)[0]), IsOk());
    }
    EXPECT_EQ((*source)->protection(), protection) << name;
  }
}

// Each rank stored all objects, and its replicas of tensors, with the values of the others.
TEST(DcpSourceTest, KeepsWhatEveryRankStored) {
  const Path directory = testing::GoldenDir() / "dcp/no_collectives/ckpt";
  const auto source = dcp::Source::Open(PosixStorage(), directory);
  ASSERT_THAT(source, IsOk());
  const CheckpointIndex& index = (*source)->index();
  EXPECT_TRUE(index.ranks_saved_alone());
  ASSERT_EQ(index.objects().size(), 5U);
  for (const ObjectEntry& object : index.objects()) {
    EXPECT_EQ(index.copies(object).size(), 1U) << object.key;
    const auto differing = CompareCopies(**source, object);
    ASSERT_THAT(differing, IsOk());
    EXPECT_TRUE(differing->empty()) << object.key;
  }
  for (const GlobalTensor& tensor : index.tensors()) {
    const auto differing = CompareCopies(**source, tensor, kBudget);
    ASSERT_THAT(differing, IsOk());
    EXPECT_TRUE(differing->empty()) << tensor.key;
  }
}

class DcpGoldenTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, DcpGoldenTest, ::testing::ValuesIn(DcpCases("dcp")), Name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DcpGoldenTest);

TEST_P(DcpGoldenTest, HoldsTheTensorsThatWereSaved) {
  const GoldenCase golden = testing::LoadGolden("dcp", GetParam());
  const auto source = dcp::Source::Open(PosixStorage(), golden.path);
  ASSERT_THAT(source, IsOk());
  testing::ExpectGoldenTensors(**source, golden);
  for (const Problem& problem : ValidateIndex(**source)) {
    EXPECT_EQ(problem.severity, Severity::kWarning) << Describe(problem);
  }
}

TEST_P(DcpGoldenTest, RendersTheObjectsThatWereSaved) {
  const GoldenCase golden = testing::LoadGolden("dcp", GetParam());
  const Result<std::string> text =
      ReadSmallFile(PosixStorage(), golden.directory / "expected.json", 256ULL << 20);
  ASSERT_THAT(text, IsOk());
  const Result<JsonDocument> account = JsonDocument::Parse(*text, "expected.json");
  ASSERT_THAT(account, IsOk());
  const auto source = dcp::Source::Open(PosixStorage(), golden.path);
  ASSERT_THAT(source, IsOk());
  const auto objects = account->root().At("objects").value().Members();
  ASSERT_THAT(objects, IsOk());
  EXPECT_EQ((*source)->index().objects().size(), objects->size());
  for (const auto& [key, expected] : *objects) {
    SCOPED_TRACE(key);
    const ObjectEntry* object = (*source)->index().FindObject(key);
    ASSERT_NE(object, nullptr);
    const Result<RenderedObject> rendered = (*source)->ReadObject(*object);
    ASSERT_THAT(rendered, IsOk());
    const Result<JsonDocument> ours = JsonDocument::Parse(rendered->json, "ours");
    ASSERT_THAT(ours, IsOk());
    EXPECT_EQ(testing::NormalizedJson(ours->root()), testing::NormalizedJson(expected));
  }
}

// Megatron-FSDP writes plain DCP: only its keys tell.
class FsdpDtensorGoldenTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, FsdpDtensorGoldenTest,
                         ::testing::ValuesIn(testing::GoldenCases("fsdp_dtensor")), Name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(FsdpDtensorGoldenTest);

TEST_P(FsdpDtensorGoldenTest, HoldsTheTensorsThatWereSaved) {
  const GoldenCase golden = testing::LoadGolden("fsdp_dtensor", GetParam());
  Path path = golden.path;
  // A Megatron root has one iteration in it.
  const auto entries = PosixStorage().List(path);
  for (const DirectoryEntry& entry : *entries) {
    if (boost::filesystem::exists(golden.path / entry.name / ".metadata")) {
      path = golden.path / entry.name;
    }
  }
  const auto source = dcp::Source::Open(PosixStorage(), path);
  ASSERT_THAT(source, IsOk());
  EXPECT_EQ((*source)->index().tensors().size(), golden.tensors.size());
  for (const auto& [key, expected] : golden.tensors) {
    SCOPED_TRACE(key);
    const GlobalTensor* tensor = (*source)->index().FindTensor(key);
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->shape, expected.shape);
    EXPECT_THAT(DigestTensor(**source, *tensor, HashAlgorithm::kSha256, kBudget),
                IsOkAndHolds(expected.sha256));
  }
}

class DcpDamageTest : public ::testing::TestWithParam<std::string> {};
std::vector<std::string> DamagedDcpCases() {
  std::vector<std::string> names;
  for (const std::string& name : DcpCases("dcp/broken")) {
    if (!name.starts_with("intact")) names.push_back(name);
  }
  for (const std::string& name : testing::GoldenCases("dcp/broken")) {
    const GoldenCase golden = testing::LoadGolden("dcp/broken", name);
    if (golden.path.filename() == "ckpt" && golden.format == "broken" && name != "hf_overwritten") {
      names.push_back(name);
    }
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Cases, DcpDamageTest, ::testing::ValuesIn(DamagedDcpCases()), Name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DcpDamageTest);

// Everything that opening the folder, checking it and reading all of it finds.
std::vector<Problem> AllProblems(const Path& path) {
  const auto source = dcp::Source::Open(PosixStorage(), path);
  if (!source.ok()) return source.status().problems();
  std::vector<Problem> problems = ValidateIndex(**source);
  for (const GlobalTensor& tensor : (*source)->index().tensors()) {
    const auto digest = DigestTensor(**source, tensor, HashAlgorithm::kSha256, kBudget);
    if (!digest.ok()) problems.push_back(digest.status().first());
  }
  for (const ObjectEntry& object : (*source)->index().objects()) {
    const auto rendered = (*source)->ReadObject(object);
    if (!rendered.ok()) {
      problems.push_back(rendered.status().first());
    } else {
      problems.insert(problems.end(), rendered->warnings.begin(), rendered->warnings.end());
    }
  }
  return problems;
}

MATCHER_P(HasKind, name, "") { return KindName(arg.kind) == name; }

TEST_P(DcpDamageTest, IsReportedByItsKind) {
  const GoldenCase golden = testing::LoadGolden("dcp/broken", GetParam());
  const std::vector<Problem> problems = AllProblems(golden.path);
  std::string found;
  bool has_error = false;
  for (const Problem& problem : problems) {
    found += Describe(problem) + "\n";
    has_error = has_error || problem.severity == Severity::kError;
    // Nothing else may suffer; whole-checkpoint failures name no key.
    if (problem.severity == Severity::kError && !problem.tensor.empty()) {
      EXPECT_THAT(golden.affected, Contains(problem.tensor)) << Describe(problem);
    }
  }
  if (golden.severity == "refuse") {
    EXPECT_TRUE(has_error) << found;
    EXPECT_THAT(problems, Contains(HasKind(golden.kind))) << found;
  } else if (golden.kind != "resource") {  // reading on in bounded time is all that is asked there
    EXPECT_THAT(problems, Contains(HasKind(golden.kind))) << found;
  }
  EXPECT_FALSE(boost::filesystem::exists("ckptkit-was-executed"));
}

}  // namespace
}  // namespace ckpt
