#include "formats/torch_save/torch_save_source.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/checkpoint/digest.h"
#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "formats/zip/writer.h"
#include "tests/testing/golden.h"
#include "tests/testing/golden_tensors.h"
#include "tests/testing/json_text.h"
#include "tests/testing/matchers.h"

namespace ckpt::torch_save {
namespace {

using ::testing::Contains;
using testing::FailsWith;
using ::testing::Field;
using testing::GoldenCase;
using ::testing::IsEmpty;
using testing::IsOk;

constexpr std::uint64_t kBudget = 1 << 20;

// Those cases of torch.save whose account has all of these words. Parsing every account twice would
// take long: they stand in the text as they are.
std::vector<std::string> CasesWith(const std::vector<std::string>& words) {
  std::vector<std::string> names;
  for (const std::string& name : testing::GoldenCases("dcp")) {
    const Result<std::string> text = ReadSmallFile(
        PosixStorage(), testing::GoldenDir() / "dcp" / name / "expected.json", 256ULL << 20);
    const auto is_there = [&](const std::string& word) {
      return text.ok() && text->find("\"" + word + "\"") != std::string::npos;
    };
    if (is_there("torch_save") && std::ranges::all_of(words, is_there)) names.push_back(name);
  }
  return names;
}

std::string SafeName(const ::testing::TestParamInfo<std::string>& info) { return info.param; }

class TorchSaveGoldenTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, TorchSaveGoldenTest, ::testing::ValuesIn(CasesWith({})), SafeName);

TEST_P(TorchSaveGoldenTest, HoldsWhatTorchSaved) {
  const GoldenCase golden = testing::LoadGolden("dcp", GetParam());
  const auto source = TorchSaveSource::Open(PosixStorage(), golden.path);
  ASSERT_THAT(source, IsOk());
  testing::ExpectGoldenTensors(**source, golden);
  const CheckpointIndex& index = (*source)->index();
  for (const ObjectEntry& object : index.objects()) {
    EXPECT_THAT((*source)->ReadObject(object), IsOk()) << object.key;
  }
}

// Of a tensor that is not strided, or of bits, an account has no value.
class TorchSaveValueTest : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Cases, TorchSaveValueTest, ::testing::ValuesIn(CasesWith({"value"})),
                         SafeName);

TEST_P(TorchSaveValueTest, RendersTheWholeObject) {
  const GoldenCase golden = testing::LoadGolden("dcp", GetParam());
  const Result<std::string> text =
      ReadSmallFile(PosixStorage(), golden.directory / "expected.json", 256ULL << 20);
  ASSERT_THAT(text, IsOk());
  const Result<JsonDocument> account = JsonDocument::Parse(*text, "expected.json");
  ASSERT_THAT(account, IsOk());
  const auto value = account->root().Find("value");
  ASSERT_TRUE(value);
  const auto source = TorchSaveSource::Open(PosixStorage(), golden.path);
  ASSERT_THAT(source, IsOk());
  const Result<RenderedObject> rendered = (*source)->ReadObject(ObjectEntry{});
  ASSERT_THAT(rendered, IsOk());
  const Result<JsonDocument> ours = JsonDocument::Parse(rendered->json, "ours");
  ASSERT_THAT(ours, IsOk());
  EXPECT_EQ(testing::NormalizedJson(ours->root()), testing::NormalizedJson(*value));
}

struct DamagedCase {
  std::string name;
  ErrorKind kind;
};
void PrintTo(const DamagedCase& damage, std::ostream* os) { *os << damage.name; }

const DamagedCase kDamages[] = {
    {"pt_duplicate_record", ErrorKind::kBadItem},
    {"pt_empty", ErrorKind::kTruncated},
    {"pt_legacy_storage_count", ErrorKind::kResource},
    {"pt_legacy_truncated", ErrorKind::kTruncated},
    {"pt_load_from_bytes", ErrorKind::kUnsafePickle},
    {"pt_missing_storage", ErrorKind::kBadItem},
    {"pt_payload_flip", ErrorKind::kChecksum},
    {"pt_plain_pickle", ErrorKind::kUnsupported},
    {"pt_short_storage", ErrorKind::kSizeMismatch},
    {"pt_size_lie", ErrorKind::kSizeMismatch},
    {"pt_subbyte_aborted", ErrorKind::kIncomplete},
    {"pt_system", ErrorKind::kUnsafePickle},
    {"pt_torchscript", ErrorKind::kUnsupported},
    {"pt_traversal", ErrorKind::kUnsafePath},
    {"pt_truncated", ErrorKind::kTruncated},
};

class TorchSaveDamageTest : public ::testing::TestWithParam<DamagedCase> {};
INSTANTIATE_TEST_SUITE_P(Cases, TorchSaveDamageTest, ::testing::ValuesIn(kDamages),
                         [](const auto& damage) { return damage.param.name; });

// Everything that opening the file and reading all of it finds.
std::vector<Problem> AllProblems(const Path& path) {
  const auto source = TorchSaveSource::Open(PosixStorage(), path);
  if (!source.ok()) return source.status().problems();
  std::vector<Problem> problems = (*source)->index().problems();
  for (const GlobalTensor& tensor : (*source)->index().tensors()) {
    const auto digest = DigestTensor(**source, tensor, HashAlgorithm::kSha256, kBudget);
    if (!digest.ok()) problems.push_back(digest.status().first());
  }
  return problems;
}

TEST_P(TorchSaveDamageTest, IsReportedByItsKind) {
  const GoldenCase golden = testing::LoadGolden("dcp/broken", GetParam().name);
  const std::vector<Problem> problems = AllProblems(golden.path);
  ASSERT_THAT(problems, Contains(Field(&Problem::kind, GetParam().kind)));
  EXPECT_EQ(problems.front().severity,
            golden.severity == "warn" ? Severity::kWarning : Severity::kError);
  for (const Problem& problem : problems) {
    if (problem.tensor.empty()) continue;
    EXPECT_THAT(golden.affected, Contains(problem.tensor)) << Describe(problem);
  }
  EXPECT_FALSE(boost::filesystem::exists("ckptkit-was-executed"));
}

// A source over one archive in memory.
std::unique_ptr<TorchSaveSource> SourceOf(std::string_view pickle) {
  const std::unique_ptr<Storage> storage = MakeMemoryStorage();
  zip::Writer zip;
  zip.Add("data.pkl", AsBytes(pickle));
  zip.Add("data/0", Bytes(8));
  EXPECT_THAT(WriteSmallFile(*storage, "/a.pt", std::move(zip).Finish().front().bytes), IsOk());
  auto source = TorchSaveSource::Open(*storage, "/a.pt");
  EXPECT_THAT(source, IsOk());
  return std::move(source).value();
}

// A tensor of this many floats over the two that the storage has.
std::string Floats(int count) {
  return "ctorch._utils\n_rebuild_tensor_v2\n((Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI2\ntQ"
         "I0\n(I" +
         std::to_string(count) + "\nt(I1\nttR";
}

TEST(TorchSaveSourceTest, DeliversNothingThatItDoesNotKnow) {
  const auto source = SourceOf("}(Va\n" + Floats(2) + "Vlarge\n" + Floats(3) + "u.");
  const CheckpointIndex& index = source->index();
  ASSERT_EQ(index.tensors().size(), 1U);
  const GlobalTensor a = index.tensors()[0];
  const Chunk& chunk = index.chunks(a)[0];
  EXPECT_THAT(source->Locate(a, chunk), IsOk());
  GlobalTensor other = a;
  other.key = "b";
  EXPECT_THAT(source->Locate(other, chunk), FailsWith(ErrorKind::kNotFound));
  other.key = "large";
  EXPECT_THAT(source->Locate(other, chunk), FailsWith(ErrorKind::kSizeMismatch));
  EXPECT_THAT(source->ReadObject({.key = "b"}), FailsWith(ErrorKind::kNotFound));
}

TEST(TorchSaveSourceTest, ValuesAreObjectsUnderTheirPath) {
  const auto source =
      SourceOf("}(Va\n" + Floats(2) + "Vrun\n}(Vepoch\nK\3Vlosses\n](F0.5\nF0.25\neuu.");
  const CheckpointIndex& index = source->index();
  EXPECT_THAT(index.problems(), IsEmpty());
  ASSERT_EQ(index.objects().size(), 2U);
  EXPECT_EQ(source->ReadObject(*index.FindObject("run.epoch")).value().json, "3");
  EXPECT_EQ(source->ReadObject(*index.FindObject("run.losses")).value().json, "[0.5,0.25]");
}

// An entry says nothing of the container around it.
TEST(TorchSaveSourceTest, WarnsOfContainersThatAConversionChanges) {
  const auto only_warning = [](const std::string& pickle) {
    const std::vector<Problem> problems = SourceOf(pickle)->index().problems();
    EXPECT_EQ(problems.size(), 1U);
    return problems.empty() ? Problem() : problems.front();
  };
  const Problem classes = only_warning("}(Va\n" + Floats(2) +
                                       "Vseen\nccollections\ndefaultdict\n(cbuiltins\nint\ntRVx\n"
                                       "K\1su.");
  EXPECT_EQ(classes.severity, Severity::kWarning);
  EXPECT_EQ(classes.tensor, "seen");
  EXPECT_EQ(classes.actual, "class collections.defaultdict");
  const Problem list = only_warning("](" + Floats(2) + "K\1e.");
  EXPECT_EQ(list.severity, Severity::kWarning);
  EXPECT_EQ(list.tensor, "");
  EXPECT_EQ(list.kind, ErrorKind::kUnsupported);
  // One value, as it is.
  EXPECT_THAT(SourceOf("](K\1K\2e.")->index().problems(), IsEmpty());
  EXPECT_THAT(SourceOf(Floats(2) + ".")->index().problems(), IsEmpty());
}

TEST(TorchSaveSourceTest, AValueThatCannotBeShownIsNamed) {
  const auto source = SourceOf("}(Va\n" + Floats(2) + "Vself\n]q\1h\1au.");
  ASSERT_EQ(source->index().objects().size(), 1U);
  const RenderedObject shown = source->ReadObject(source->index().objects()[0]).value();
  EXPECT_EQ(shown.json, R"({"$opaque":"list"})");
  ASSERT_EQ(shown.warnings.size(), 1U);
  EXPECT_EQ(shown.warnings[0].kind, ErrorKind::kResource);
  EXPECT_EQ(shown.warnings[0].severity, Severity::kWarning);
  EXPECT_EQ(shown.warnings[0].tensor, "self");
}

}  // namespace
}  // namespace ckpt::torch_save
