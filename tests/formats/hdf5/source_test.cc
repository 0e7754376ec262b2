#include "formats/hdf5/internal/source.h"

#include <map>
#include <string>

#include <gmock/gmock.h>

#include "core/checkpoint/digest.h"
#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "core/json/json_reader.h"
#include "tests/testing/matchers.h"

namespace ckpt::hdf5 {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ckpt::testing::IsOkAndHolds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::uint64_t kBudget = 1 << 20;

Path Golden(const std::string& name) { return Path(CKPT_SOURCE_DIR) / "tests/golden/hdf5" / name; }

std::string Content(const std::string& name) {
  return ReadSmallFile(PosixStorage(), Golden(name), kBudget).value();
}

struct Expected {
  std::string dtype;
  Dims shape;
  std::string sha256;
};

// What tests/golden/hdf5/make.py noted.
std::map<std::string, std::map<std::string, Expected>> ExpectedFiles() {
  std::map<std::string, std::map<std::string, Expected>> files;
  const std::string text = Content("expected.json");
  const auto json = JsonDocument::Parse(text, "expected.json");
  const auto members = json->root().At("files")->Members();
  for (const auto& [file, tensors] : *members) {
    const auto of_file = tensors.Members();
    for (const auto& [key, tensor] : *of_file) {
      files[file][key] = {.dtype = tensor.At("dtype")->Text().value(),
                          .shape = tensor.At("shape")->Int64Array().value(),
                          .sha256 = tensor.At("sha256")->Text().value()};
    }
  }
  return files;
}

TEST(Hdf5GoldenTest, HoldsWhatH5pyWrote) {
  const auto files = ExpectedFiles();
  ASSERT_THAT(files, SizeIs(4));
  for (const auto& [name, tensors] : files) {
    SCOPED_TRACE(name);
    const auto source = OpenSource(PosixStorage(), Golden(name));
    ASSERT_THAT(source, IsOk());
    const CheckpointIndex& index = (*source)->index();
    EXPECT_EQ(index.tensors().size(), tensors.size());
    for (const auto& [key, expected] : tensors) {
      const GlobalTensor* const tensor = index.FindTensor(key);
      ASSERT_NE(tensor, nullptr) << key;
      EXPECT_EQ(DTypeName(tensor->dtype), expected.dtype) << key;
      EXPECT_EQ(tensor->shape, expected.shape) << key;
      EXPECT_THAT(DigestTensor(**source, *tensor, HashAlgorithm::kSha256, kBudget),
                  IsOkAndHolds(expected.sha256))
          << key;
    }
    for (const Problem& problem : ValidateIndex(**source)) {
      EXPECT_EQ(problem.tensor, "soft") << Describe(problem);
      EXPECT_EQ(problem.severity, Severity::kWarning) << Describe(problem);
    }
  }
}

TEST(Hdf5GoldenTest, AttributesAndTextsAreObjects) {
  for (const char* name : {"earliest.h5", "latest.h5"}) {
    SCOPED_TRACE(name);
    const auto source = OpenSource(PosixStorage(), Golden(name));
    ASSERT_THAT(source, IsOk());
    const auto value = [&](const char* key) {
      const ObjectEntry* const object = (*source)->index().FindObject(key);
      if (object == nullptr) return std::string("absent");
      const auto rendered = (*source)->ReadObject(*object);
      return rendered.ok() ? rendered->type + " " + rendered->json : rendered.status().ToString();
    };
    EXPECT_EQ(value("@text"), "str \"h\u00e9llo\"");
    EXPECT_EQ(value("@numbers"), R"(list [1.5,{"$float":"nan"}])");
    EXPECT_EQ(value("@names"), R"(list ["a","bb"])");
    EXPECT_EQ(value("a@unit"), "str \"m\"");
    EXPECT_EQ(value("many@n11"), "int 11");
    EXPECT_EQ(value("words"), R"(list ["x","yy"])");
  }
}

// A copy of a golden with other bytes, in memory.
class Hdf5DamageTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<CheckpointSource>> OpenBytes(std::string_view content) {
    EXPECT_THAT(storage_->MakeDirectories("/d"), IsOk());
    EXPECT_THAT(storage_->RemoveAll("/d/f.h5"), IsOk());
    EXPECT_THAT(WriteSmallFile(*storage_, "/d/f.h5", AsBytes(content)), IsOk());
    return OpenSource(*storage_, "/d/f.h5");
  }

  // The problems of a file whose text `from` is replaced by `to`, of the same length.
  std::vector<Problem> ProblemsWith(std::string content, const std::string& from,
                                    const std::string& to) {
    const std::size_t at = content.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    content.replace(at, to.size(), to);
    const auto source = OpenBytes(content);
    if (!source.ok()) return source.status().problems();
    return ValidateIndex(**source);
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

TEST_F(Hdf5DamageTest, AFileThatWasCutOffIsRefused) {
  for (const char* name : {"earliest.h5", "latest.h5"}) {
    const std::string whole = Content(name);
    for (std::size_t size = 1; size < whole.size(); size += 1U + whole.size() / 300U) {
      EXPECT_FALSE(OpenBytes(whole.substr(0, size)).ok()) << name << " " << size;
    }
  }
}

// It still says that it is at the start of the file, as h5jam leaves it. h5py says the truth in
// tests/interop.
TEST_F(Hdf5DamageTest, ABlockBeforeTheSuperblockIsSkipped) {
  const auto values = [&](const std::string& content) {
    std::map<std::string, std::string> found;
    const auto source = OpenBytes(content);
    EXPECT_THAT(source, IsOk());
    if (!source.ok()) return found;
    for (const GlobalTensor& tensor : (*source)->index().tensors()) {
      const auto digest = DigestTensor(**source, tensor, HashAlgorithm::kSha256, kBudget);
      found[tensor.key] = digest.ok() ? *digest : digest.status().ToString();
    }
    for (const ObjectEntry& object : (*source)->index().objects()) {
      const auto rendered = (*source)->ReadObject(object);
      found[object.key] = rendered.ok() ? rendered->json : rendered.status().ToString();
    }
    return found;
  };
  for (const char* name : {"earliest.h5", "latest.h5"}) {
    const std::string plain = Content(name);
    for (const std::size_t block : {512U, 4096U}) {
      EXPECT_EQ(values(std::string(block, 'x') + plain), values(plain)) << name << " " << block;
    }
    EXPECT_THAT(OpenBytes(std::string(513, 'x') + plain), FailsWith(ErrorKind::kBadMetadata));
    const std::string cut = std::string(512, 'x') + plain.substr(0, plain.size() - 100);
    EXPECT_THAT(OpenBytes(cut), FailsWith(ErrorKind::kTruncated));
  }
}

TEST_F(Hdf5DamageTest, AChecksumThatDiffersIsAnError) {
  std::string content = Content("latest.h5");
  content[20] = 'x';  // of the superblock
  EXPECT_THAT(OpenBytes(content), FailsWith(ErrorKind::kChecksum));
}

TEST_F(Hdf5DamageTest, AFilterThatIsNotReadIsNamed) {
  // The zstd filter's number, and its name.
  const auto problems =
      ProblemsWith(Content("earliest.h5"), std::string("\x0f\x7d", 2), "\x10\x7d");
  const auto refused = std::ranges::find(problems, Severity::kError, &Problem::severity);
  ASSERT_NE(refused, problems.end());
  EXPECT_EQ(refused->kind, ErrorKind::kUnsupported);
  EXPECT_THAT(refused->actual, HasSubstr("32016"));
}

TEST_F(Hdf5DamageTest, FilesOutsideMustBeNamedAsWeightsAre) {
  const std::string raw = Content("raw.bin");
  const auto with_name = [&](const std::string& name) {
    return ProblemsWith(Content("virtual_earliest.h5"), "raw.bin", name);
  };
  for (const char* name : {"/etc/pw", "../x/yz"}) {
    const auto problems = with_name(name);
    ASSERT_THAT(problems, ::testing::Not(IsEmpty())) << name;
    const auto external = std::ranges::find(problems, "external", &Problem::tensor);
    ASSERT_NE(external, problems.end());
    EXPECT_EQ(external->kind, ErrorKind::kUnsafePath) << Describe(*external);
  }
  const auto problems = with_name("/raw.h5");
  const auto external = std::ranges::find(problems, "external", &Problem::tensor);
  ASSERT_NE(external, problems.end());
  EXPECT_EQ(external->kind, ErrorKind::kMissingFile) << Describe(*external);
}

TEST_F(Hdf5DamageTest, AMissingSourceOfAVirtualDataSetIsNamed) {
  const auto source = OpenBytes(Content("virtual_earliest.h5"));
  ASSERT_THAT(source, IsOk());
  const auto problems = ValidateIndex(**source);
  ASSERT_THAT(problems, ::testing::Not(IsEmpty()));
  EXPECT_EQ(problems[0].kind, ErrorKind::kMissingFile);
  EXPECT_THAT(problems[0].file, HasSubstr("parts_earliest.h5"));
}

// One byte after the other, two ways each: an error or a reading, never a crash or a hang.
TEST_F(Hdf5DamageTest, EveryByteMayBeAnother) {
  for (const char* name : {"earliest.h5", "latest.h5", "virtual_earliest.h5", "parts_latest.h5"}) {
    const std::string whole = Content(name);
    const std::size_t step = whole.size() > 20000 ? 7 : 1;
    for (std::size_t at = 0; at < whole.size(); at += step) {
      std::string changed = whole;
      const auto byte = static_cast<unsigned char>(changed[at]);
      changed[at] = static_cast<char>(byte ^ (at % 2 == 0 ? 0x01U : 0xffU));
      const auto source = OpenBytes(changed);
      if (!source.ok()) continue;
      (void)ValidateIndex(**source).size();
      for (const ObjectEntry& object : (*source)->index().objects()) {
        (void)(*source)->ReadObject(object).ok();
      }
    }
  }
}

}  // namespace
}  // namespace ckpt::hdf5
