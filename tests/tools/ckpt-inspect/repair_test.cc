// verify and repair of what ckpt-convert writes, through the command line.
#include <map>
#include <random>

#include <gmock/gmock.h>

#include "core/base/crc32c_flip.h"
#include "core/base/hash.h"
#include "core/io/forwarding_storage.h"
#include "core/io/memory_storage.h"
#include "core/json/json_reader.h"
#include "core/manifest/manifest.h"
#include "core/manifest/manifest_text.h"
#include "core/repair/parity.h"
#include "tests/testing/fault_storage.h"
#include "tests/testing/manifest_file.h"
#include "tests/testing/matchers.h"
#include "tools/ckpt-inspect/inspect.h"

namespace ckpt::inspect {
namespace {

using cli::ExitCode;
using testing::DescribeContent;
using testing::IsOk;

using ::testing::HasSubstr;

using Contents = std::map<std::string, std::string>;

// A safetensors file of one U8 tensor of `size` elements.
std::string OneTensor(const std::string& key, std::size_t size, std::mt19937_64& rng) {
  const std::string header = "{\"" + key + R"(":{"dtype":"U8","shape":[)" + std::to_string(size) +
                             R"(],"data_offsets":[0,)" + std::to_string(size) + "]}}";
  std::string content(8, '\0');
  content[0] = static_cast<char>(header.size());
  content += header;
  for (std::size_t i = 0; i < size; ++i) content += static_cast<char>(rng());
  return content;
}

// A repository of two shards with a manifest of ours under /c.
class RepairCommandTest : public ::testing::Test {
 protected:
  void Make(std::size_t group_size, std::size_t w_bytes = 400) {
    std::mt19937_64 rng(20);
    contents_["a.safetensors"] = OneTensor("v", 300, rng);
    contents_["b.safetensors"] = OneTensor("w", w_bytes, rng);
    contents_["config.json"] = "{}\n";
    contents_["model.safetensors.index.json"] =
        R"({"metadata":{},"weight_map":{"v":"a.safetensors","w":"b.safetensors"}})";
    Manifest manifest;
    manifest.tool = "test";
    for (const auto& [name, content] : contents_) {
      Put("/c/" + name, content);
      manifest.files.push_back(DescribeContent(name, AsBytes(content)));
    }
    for (const auto& [key, file] : {std::pair("v", "a.safetensors"), {"w", "b.safetensors"}}) {
      const std::string_view content = contents_[file];
      const std::string_view elements = content.substr(content.find('}', 20) + 2);
      manifest.tensors.push_back({key, HashHex(HashAlgorithm::kXxh3, AsBytes(elements))});
    }
    if (group_size != 0) {
      const auto parity = WriteParity(*storage_, "/c", manifest.files, {.group_size = group_size});
      ASSERT_THAT(parity, IsOk());
      manifest.files.insert(manifest.files.end(), parity->files.begin(), parity->files.end());
      manifest.parity = parity->groups;
      manifest.has_copy = true;
      Put("/c/ckptkit-parity.json", SerializeManifest(manifest));
    }
    Put("/c/ckptkit.json", SerializeManifest(manifest));
    contents_ = ReadAll("/c");
  }

  void Put(const Path& path, std::string_view content) {
    ASSERT_THAT(storage_->MakeDirectories(path.parent_path()), IsOk());
    ASSERT_THAT(storage_->RemoveAll(path), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, path, AsBytes(content)), IsOk());
  }
  void Flip(const std::string& name, std::uint64_t offset, int bit) {
    std::string content = contents_.at(name);
    content[offset] = static_cast<char>(content[offset] ^ (1 << bit));
    Put("/c/" + name, content);
  }
  void Remove(const Path& path) { ASSERT_THAT(storage_->RemoveAll(path), IsOk()); }
  Contents ReadAll(const Path& directory) {
    Contents all;
    const auto names = ListRecursively(*storage_, directory);
    EXPECT_THAT(names, IsOk());
    for (const std::string& name : *names) {
      const auto text = ReadSmallFile(*storage_, directory / name, 1 << 24);
      EXPECT_THAT(text, IsOk());
      all[name] = *text;
    }
    return all;
  }

  ExitCode Run(const std::vector<std::string>& args) { return RunOn(*storage_, args); }
  ExitCode RunOn(Storage& storage, const std::vector<std::string>& args) {
    out_ = cli::StringOutput();
    err_ = cli::StringOutput();
    cli::Streams streams{.out = out_, .err = err_};
    return RunInspect(args, storage, streams);
  }
  ExitCode Verify(const Path& path = "/c") { return Run({"verify", path.string(), "--json"}); }
  ExitCode Repair(const Path& path = "/c") {
    return Run({"repair", path.string(), "-o", "/d", "--json"});
  }
  bool Exists(const Path& path) { return storage_->Stat(path)->type != FileType::kMissing; }
  void ExpectNothingWritten() {
    EXPECT_FALSE(Exists("/d"));
    EXPECT_FALSE(Exists("/d.ckptkit-partial"));
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
  Contents contents_;
  cli::StringOutput out_;
  cli::StringOutput err_;
};

TEST_F(RepairCommandTest, AWholeCheckpointIsCopied) {
  Make(2);
  EXPECT_EQ(Verify(), ExitCode::kDone);
  EXPECT_EQ(Repair(), ExitCode::kDone);
  EXPECT_THAT(out_.text(), HasSubstr("\"repaired\": []"));
  EXPECT_EQ(ReadAll("/d"), contents_);
}

TEST_F(RepairCommandTest, AFlippedBitOfTheManifestIsRepaired) {
  Make(2);
  for (const char* name : {"ckptkit.json", "ckptkit-parity.json"}) {
    Flip(name, contents_[name].size() / 2, 3);
    EXPECT_EQ(Verify(), ExitCode::kDifferent);
    EXPECT_THAT(out_.text(), HasSubstr("the manifest's own digest differs"));
    EXPECT_EQ(Repair(), ExitCode::kDone) << err_.text();
    EXPECT_THAT(out_.text(), HasSubstr(std::string("\"file\": \"") + name + "\""));
    EXPECT_THAT(out_.text(), HasSubstr("\"from\": \"copy\""));
    EXPECT_EQ(ReadAll("/d"), contents_);
    Remove("/d");
    Put(Path("/c") / name, contents_[name]);
  }
}

// What wrote parity before it wrote copies.
TEST_F(RepairCommandTest, ALostManifestWithoutACopyIsNamed) {
  Make(2);
  Remove("/c/ckptkit.json");
  Remove("/c/ckptkit-parity.json");
  EXPECT_EQ(Verify(), ExitCode::kDifferent);
  EXPECT_THAT(out_.text(), HasSubstr("the checkpoint's manifest is missing"));
  EXPECT_THAT(out_.text(), HasSubstr("\"protection\": \"none\""));
  EXPECT_EQ(Repair(), ExitCode::kFailed);
  EXPECT_THAT(err_.text(), HasSubstr("from another copy of the checkpoint"));
  ExpectNothingWritten();
}

TEST_F(RepairCommandTest, VerifyNamesByteBitTensorAndChunk) {
  Make(0);
  Flip("a.safetensors", contents_["a.safetensors"].size() - 1, 6);
  EXPECT_EQ(Verify(), ExitCode::kDifferent);
  EXPECT_THAT(out_.text(), HasSubstr("\"message\": \"bit 6 of byte 364 is flipped\""));
  EXPECT_THAT(out_.text(), HasSubstr("\"tensor\": \"v\""));
  EXPECT_THAT(out_.text(), HasSubstr("\"offset\": 364,\n      \"length\": 1,\n      \"bit\": 6"));
  EXPECT_THAT(out_.text(), HasSubstr("\"repairable\": true"));
  EXPECT_EQ(Run({"verify", "/c"}), ExitCode::kDifferent);
  EXPECT_THAT(out_.text(), HasSubstr("  in: chunk [0:300] of v\n"));
  EXPECT_THAT(out_.text(), HasSubstr("ckpt-inspect repair"));
}

// Its tensors are lost with it: the metadata say so, and the manifest says it again.
TEST_F(RepairCommandTest, VerifyTellsOfALostFileOnce) {
  Make(0);
  Remove("/c/b.safetensors");
  EXPECT_EQ(Verify(), ExitCode::kDifferent);
  const std::string_view told = R"("kind": "missing_file")";
  const std::size_t first = out_.text().find(told);
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(out_.text().find(told, first + 1), std::string::npos) << out_.text();
  EXPECT_THAT(out_.text(), HasSubstr("\"tensor\": \"w\""));
  Put("/c/b.safetensors", contents_["b.safetensors"]);
  Remove("/c/config.json");  // no tensor is lost with it
  EXPECT_EQ(Verify(), ExitCode::kDifferent);
  EXPECT_THAT(out_.text(), HasSubstr("\"file\": \"config.json\""));
}

TEST_F(RepairCommandTest, VerifyNamesTheHeader) {
  Make(0);
  Flip("a.safetensors", 20, 0);
  EXPECT_EQ(Verify(), ExitCode::kDifferent);
  EXPECT_THAT(out_.text(), HasSubstr("bit 0 of byte 20 is flipped"));
}

TEST_F(RepairCommandTest, VerifyListsTheTensorsOfABlockThatNoBitExplains) {
  Make(0);
  std::string content = contents_["b.safetensors"];
  content[100] = static_cast<char>(content[100] ^ 3);
  Put("/c/b.safetensors", content);
  EXPECT_EQ(Verify(), ExitCode::kDifferent);
  EXPECT_THAT(out_.text(), HasSubstr("\"tensor\": \"w\""));
  EXPECT_THAT(out_.text(), HasSubstr("\"repairable\": false"));
}

TEST_F(RepairCommandTest, EveryFlippedBitIsNamedAndRepaired) {
  Make(0);
  for (const auto& [name, content] : contents_) {
    if (name == kManifestName) continue;
    for (std::uint64_t offset = 0; offset < content.size(); offset += 7) {
      const int bit = static_cast<int>(offset % 8);
      SCOPED_TRACE(::testing::Message() << name << " byte " << offset << " bit " << bit);
      Flip(name, offset, bit);
      ASSERT_EQ(Verify(), ExitCode::kDifferent);
      ASSERT_THAT(out_.text(), HasSubstr("bit " + std::to_string(bit) + " of byte " +
                                         std::to_string(offset) + " is flipped"));
      ASSERT_EQ(Repair(), ExitCode::kDone) << out_.text();
      ASSERT_EQ(ReadAll("/d"), contents_);
      Remove("/d");
      Put("/c/" + name, content);
    }
  }
}

// Nothing proves the manifest's own bytes but its digest, which does not tell where it is wrong;
// without parity it has no copy.
TEST_F(RepairCommandTest, AFlippedBitOfAManifestWithoutACopyIsAnErrorOfTheManifest) {
  Make(0);
  const std::string& manifest = contents_["ckptkit.json"];
  for (std::uint64_t offset = 0; offset < manifest.size(); offset += 3) {
    Flip("ckptkit.json", offset, static_cast<int>(offset % 8));
    ASSERT_EQ(Verify(), ExitCode::kDifferent) << offset;
    ASSERT_THAT(out_.text(), HasSubstr("/c/ckptkit.json")) << offset;
    ASSERT_EQ(Repair(), ExitCode::kFailed) << offset;
    ASSERT_THAT(err_.text(), HasSubstr("while reading the checksums that repair needs")) << offset;
    ExpectNothingWritten();
  }
}

// The manifest is not a single point of failure: its copy takes its place.
TEST_F(RepairCommandTest, RebuildsAnyOneLostFile) {
  Make(3);
  for (const auto& [name, content] : contents_) {
    SCOPED_TRACE(name);
    const bool is_manifest = name == kManifestName || name == kManifestCopyName;
    Remove(Path("/c") / name);
    EXPECT_EQ(Verify(), ExitCode::kDifferent);
    EXPECT_THAT(out_.text(), HasSubstr(name));
    EXPECT_THAT(out_.text(), HasSubstr("\"repairable\": true"));
    ASSERT_EQ(Repair(), ExitCode::kDone) << out_.text();
    EXPECT_THAT(out_.text(),
                HasSubstr(is_manifest ? "\"from\": \"copy\"" : "\"from\": \"parity\""));
    EXPECT_EQ(ReadAll("/d"), contents_);
    Remove("/d");
    Put("/c/" + name, content);
  }
}

TEST_F(RepairCommandTest, NamesBothFilesWhenTwoOfAGroupAreLost) {
  Make(4);
  Remove("/c/a.safetensors");
  Put("/c/b.safetensors", contents_["b.safetensors"].substr(0, 50));
  EXPECT_EQ(Repair(), ExitCode::kDifferent);
  EXPECT_THAT(out_.text(), HasSubstr("\"ok\": false"));
  EXPECT_THAT(out_.text(), HasSubstr("a.safetensors [0, "));
  EXPECT_THAT(out_.text(), HasSubstr("b.safetensors [0, "));
  ExpectNothingWritten();
}

TEST_F(RepairCommandTest, RepairsSeveralDamagesAtOnce) {
  Make(2);
  Flip("a.safetensors", 70, 1);
  Flip("config.json", 0, 0);
  Remove("/c/model.safetensors.index.json");
  Put("/c/left-over", "x");
  EXPECT_EQ(Repair(), ExitCode::kDone) << out_.text();
  EXPECT_THAT(out_.text(), HasSubstr("\"kind\": \"leftover\""));
  EXPECT_EQ(ReadAll("/d"), contents_);
  EXPECT_TRUE(Exists("/c/left-over"));
}

// Of wrong blocks of this length one in 4096 has a checksum that one flipped bit would explain. The
// other one tells.
TEST_F(RepairCommandTest, DoesNotRepairByAWrongGuess) {
  const std::string name = "b.safetensors";
  Make(0, 1 << 17);
  std::string content = contents_[name];
  const std::uint32_t expected = Crc32c(AsBytes(content));
  std::mt19937_64 rng(20);
  do {
    content[100 + rng() % 100'000] ^= static_cast<char>(1 + rng() % 255);
    content[100 + rng() % 100'000] ^= static_cast<char>(1 + rng() % 255);
  } while (!FindFlippedBit(expected, Crc32c(AsBytes(content)), content.size()));
  Put("/c/" + name, content);
  EXPECT_EQ(Verify(), ExitCode::kDifferent);
  EXPECT_THAT(out_.text(), HasSubstr("block differs from what was written"));
  EXPECT_EQ(Repair(), ExitCode::kDifferent);
  EXPECT_THAT(out_.text(), HasSubstr("no single bit explains the damage"));
  ExpectNothingWritten();
}

TEST_F(RepairCommandTest, RefusesAForeignCheckpointAndBadTargets) {
  Make(0);
  Put("/e/model.safetensors", contents_["a.safetensors"]);
  EXPECT_EQ(Run({"repair", "/e", "-o", "/d"}), ExitCode::kFailed);
  EXPECT_THAT(err_.text(), HasSubstr("has no ckptkit.json"));
  EXPECT_EQ(Run({"repair", "/nowhere", "-o", "/d"}), ExitCode::kFailed);
  EXPECT_EQ(Run({"repair", "/c", "-o", "/e"}), ExitCode::kFailed);
  EXPECT_THAT(err_.text(), HasSubstr("already_exists"));
  EXPECT_EQ(Run({"repair", "/c", "-o", "/c/copy"}), ExitCode::kUsage);
  EXPECT_EQ(Run({"repair", "/c"}), ExitCode::kUsage);
  EXPECT_EQ(ReadAll("/c"), contents_);
}

TEST_F(RepairCommandTest, AFullDiskSaysWhatTheCopyTakesAndThatNothingIsLeft) {
  Make(2);
  std::uint64_t bytes = 0;
  for (const auto& [name, content] : contents_) bytes += content.size();
  testing::FaultStorage full(*storage_, 8, ErrorKind::kNoSpace, testing::FaultStorage::Mode::kOnce);
  EXPECT_EQ(RunOn(full, {"repair", "/c", "-o", "/d"}), ExitCode::kFailed);
  EXPECT_THAT(err_.text(), HasSubstr("error: no_space: injected fault"));
  EXPECT_THAT(err_.text(), HasSubstr("the copy was removed: it takes"));
  EXPECT_THAT(err_.text(), HasSubstr("(" + std::to_string(bytes) + " bytes), "));
  EXPECT_THAT(err_.text(), HasSubstr(" bytes) are free"));
  ExpectNothingWritten();
}

// The manifest is there when it is looked for, and gone when it is read.
class VanishingManifest final : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;

  Result<FileStat> Stat(const Path& path) override {
    if (path.filename().string() == kManifestName && num_asked_++ > 0) return FileStat{};
    return behind().Stat(path);
  }

 private:
  int num_asked_ = 0;
};

TEST_F(RepairCommandTest, AManifestThatVanishesIsAnError) {
  Make(0);
  VanishingManifest storage(*storage_);
  EXPECT_EQ(RunOn(storage, {"repair", "/c", "-o", "/d"}), ExitCode::kFailed);
  EXPECT_THAT(err_.text(), HasSubstr("the checkpoint's manifest vanished"));
  ExpectNothingWritten();
}

// The staging directory is emptied when it is opened.
TEST_F(RepairCommandTest, NeverPreparesTheCopyInItsSource) {
  Make(0);
  for (const auto& [name, content] : contents_) Put("/d.ckptkit-partial/" + name, content);
  EXPECT_EQ(Repair("/d.ckptkit-partial"), ExitCode::kUsage);
  EXPECT_EQ(ReadAll("/d.ckptkit-partial"), contents_);
}

}  // namespace
}  // namespace ckpt::inspect
