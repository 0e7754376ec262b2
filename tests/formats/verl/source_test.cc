// Files that four ranks saved with real torch (tests/golden/verl), whole and mixed up.
#include "formats/verl/internal/source.h"

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/checkpoint/validate.h"
#include "core/io/memory_storage.h"
#include "core/io/posix_storage.h"
#include "core/json/json_reader.h"
#include "formats/registry/registry.h"
#include "formats/registry/stored_run.h"
#include "tests/testing/matchers.h"

namespace ckpt::verl {
namespace {

using ckpt::testing::FailsWith;
using ckpt::testing::IsOk;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::uint64_t kBudgetBytes = 1 << 20;

Path Golden(std::string_view name) {
  return Path(CKPT_SOURCE_DIR) / "tests/golden/verl" / std::string(name);
}

std::string FileOf(int rank) { return fmt::format("model_world_size_4_rank_{}.pt", rank); }

std::string Content(const Path& path) {
  return ReadSmallFile(PosixStorage(), path, kBudgetBytes).value();
}

// A folder in memory: the file of each rank is copied from the save that `saves` names.
class VerlTest : public ::testing::Test {
 protected:
  struct Copied {
    std::string_view save = "torch_2.15";
    int rank = 0;
  };

  VerlTest() { EXPECT_THAT(storage_->MakeDirectories("/c"), IsOk()); }

  void Write(int rank, std::string_view content) {
    const Path path = Path("/c") / FileOf(rank);
    ASSERT_THAT(storage_->RemoveAll(path), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage_, path, AsBytes(content)), IsOk());
  }
  void Copy(const Copied& from, int to_rank) {
    Write(to_rank, Content(Golden(from.save) / FileOf(from.rank)));
  }

  std::unique_ptr<Storage> storage_ = MakeMemoryStorage();
};

// A folder in memory with the files of the save with the optimizer of all ranks.
std::unique_ptr<Storage> WithOptimizer() {
  std::unique_ptr<Storage> storage = MakeMemoryStorage();
  EXPECT_THAT(storage->MakeDirectories("/c"), IsOk());
  for (const char* state : {"model", "optim"}) {
    for (int rank = 0; rank < 2; ++rank) {
      const std::string name = fmt::format("{}_world_size_2_rank_{}.pt", state, rank);
      EXPECT_THAT(
          WriteSmallFile(*storage, Path("/c") / name, AsBytes(Content(Golden("optimizer") / name))),
          IsOk());
    }
  }
  return storage;
}

TEST(VerlOptimizerTest, IsThatOfARun) {
  const auto storage = WithOptimizer();
  const auto opened = OpenCheckpoint(*storage, "/c");
  ASSERT_THAT(opened, IsOk());
  const auto run = ReadStoredRun(*opened);
  ASSERT_THAT(run, IsOk());
  EXPECT_EQ(run->run.finished_updates(), 2);
  ASSERT_THAT(run->run.groups, SizeIs(1));
  EXPECT_EQ(run->run.groups[0].max_lr, 0.01);
  EXPECT_EQ(run->run.groups[0].betas, (std::array<double, 2>{0.9, 0.99}));
  // The tied head is not a parameter of its own.
  std::vector<std::string> names;
  for (const auto& [name, group] : run->run.group_of) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("embed.weight", "inner.weight", "inner.bias"));
  ASSERT_THAT(run->moments, SizeIs(2));
  EXPECT_EQ(run->moments[0].weight_of.at("optim.state.inner.bias.exp_avg"), "inner.bias");
}

TEST(VerlOptimizerTest, OneThatCannotBeNamedLeavesTheModel) {
  // Not of all ranks; the optimizer of another model.
  const std::string other = Content(Golden("torch_2.15") / "optim_world_size_4_rank_0.pt");
  for (const auto& [content, kind] :
       {std::pair<std::optional<std::string>, ErrorKind>{std::nullopt, ErrorKind::kMissingFile},
        {other, ErrorKind::kUnsupported}}) {
    const auto storage = WithOptimizer();
    const Path file = "/c/optim_world_size_2_rank_0.pt";
    ASSERT_THAT(storage->RemoveAll(file), IsOk());
    if (content) {
      ASSERT_THAT(WriteSmallFile(*storage, file, AsBytes(*content)), IsOk());
    }
    const auto opened = OpenCheckpoint(*storage, "/c");
    ASSERT_THAT(opened, IsOk());
    const CheckpointIndex& index = opened->source->index();
    EXPECT_THAT(index.tensors(), SizeIs(4));
    EXPECT_THAT(index.objects(), SizeIs(0));
    ASSERT_FALSE(index.problems().empty());
    EXPECT_EQ(index.problems().front().kind, kind);
    if (!content) {
      EXPECT_EQ(index.problems().front().actual, "no optim_world_size_2_rank_0.pt");
    }
    EXPECT_EQ(index.problems().back().kind, ErrorKind::kLeftover);
    for (const Problem& problem : index.problems()) {
      EXPECT_EQ(problem.severity, Severity::kWarning) << problem.message;
    }
  }
}

// Whatever its bytes look like, it is not what a rank saved.
TEST(VerlOptimizerTest, ADamagedFileIsAnErrorBesideTheModel) {
  const std::string file = "optim_world_size_2_rank_1.pt";
  const std::string whole = Content(Golden("optimizer") / file);
  std::string zeroed = whole;
  zeroed.replace(0, 512, 512, '\0');
  std::string flipped = whole;
  flipped[whole.find("param_groups")] = 'q';
  for (const auto& [content, kind] : {std::pair{zeroed, ErrorKind::kUnsupported},
                                      {whole + "behind", ErrorKind::kUnsupported},
                                      {whole.substr(0, whole.size() / 2), ErrorKind::kTruncated},
                                      {std::string(), ErrorKind::kTruncated},
                                      {flipped, ErrorKind::kChecksum}}) {
    const auto storage = WithOptimizer();
    ASSERT_THAT(storage->RemoveAll("/c/" + file), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage, "/c/" + file, AsBytes(content)), IsOk());
    const auto opened = OpenCheckpoint(*storage, "/c");
    ASSERT_THAT(opened, IsOk());
    const CheckpointIndex& index = opened->source->index();
    EXPECT_THAT(index.tensors(), SizeIs(4));
    ASSERT_THAT(index.problems(), SizeIs(2));
    EXPECT_EQ(index.problems()[0].severity, Severity::kError);
    EXPECT_EQ(index.problems()[0].kind, kind) << index.problems()[0].message;
    EXPECT_THAT(index.problems()[0].file, HasSubstr(file));
    EXPECT_EQ(index.problems()[1].kind, ErrorKind::kLeftover);
  }
}

TEST(VerlOptimizerTest, EveryDamagedFileIsNamed) {
  const auto storage = WithOptimizer();
  for (const char* file : {"/c/optim_world_size_2_rank_0.pt", "/c/optim_world_size_2_rank_1.pt"}) {
    ASSERT_THAT(storage->RemoveAll(file), IsOk());
    ASSERT_THAT(WriteSmallFile(*storage, file, AsBytes("no zip")), IsOk());
  }
  const auto source = OpenSource(*storage, "/c");
  ASSERT_THAT(source, IsOk());
  const auto& problems = (*source)->index().problems();
  ASSERT_THAT(problems, SizeIs(3));
  EXPECT_THAT(problems[0].file, HasSubstr("rank_0"));
  EXPECT_THAT(problems[1].file, HasSubstr("rank_1"));
}

TEST(VerlGoldenTest, EveryTensorIsWhatTorchHad) {
  for (const char* save : {"torch_2.15", "torch_2.4", "other", "optimizer"}) {
    SCOPED_TRACE(save);
    const bool has_optimizer = std::string_view(save) == "optimizer";  // of all ranks
    const auto opened = OpenCheckpoint(PosixStorage(), Golden(save));
    ASSERT_THAT(opened, IsOk());
    EXPECT_EQ(opened->format->name, "verl");
    const CheckpointSource& source = *opened->source;
    const auto problems = ValidateIndex(source);
    ASSERT_THAT(problems, SizeIs(has_optimizer ? 0 : 2));  // else one rank's is left over
    if (!has_optimizer) {
      EXPECT_EQ(problems.front().kind, ErrorKind::kMissingFile);
      EXPECT_EQ(problems.back().kind, ErrorKind::kLeftover);
    }
    const std::string account = Content(Golden(save) / "expected.json");
    const auto json = JsonDocument::Parse(account, "expected.json");
    const auto expected = json->root().At("tensors")->Members();
    ASSERT_THAT(source.index().tensors(), SizeIs(expected->size()));
    for (const auto& [key, tensor] : *expected) {
      const GlobalTensor* const found = source.index().FindTensor(key);
      ASSERT_NE(found, nullptr) << key;
      EXPECT_EQ(DTypeName(found->dtype), tensor.At("dtype")->Text().value()) << key;
      EXPECT_EQ(found->shape, tensor.At("shape")->Int64Array().value()) << key;
      const auto digest = DigestTensor(source, *found, HashAlgorithm::kSha256, kBudgetBytes);
      ASSERT_THAT(digest, IsOk()) << key;
      EXPECT_EQ(*digest, tensor.At("sha256")->Text().value()) << key;
    }
    EXPECT_THAT(source.VerifyRest(), IsOk());
    EXPECT_EQ(source.protection(), Protection::kCrc32);
  }
}

TEST_F(VerlTest, ReplicasOfAnotherSaveAreFound) {
  for (const int rank : {0, 1}) Copy({.rank = rank}, rank);
  for (const int rank : {2, 3}) Copy({.save = "other", .rank = rank}, rank);
  const auto source = OpenSource(*storage_, "/c");
  ASSERT_THAT(source, IsOk());
  const auto digest_of = [&](std::string_view key) {
    const GlobalTensor* const tensor = (*source)->index().FindTensor(key);
    return DigestTensor(**source, *tensor, HashAlgorithm::kSha256, kBudgetBytes);
  };
  for (const char* key : {"model.rows", "model.replica", "model.plain", "model.inner"}) {
    const auto digest = digest_of(key);
    EXPECT_THAT(digest, FailsWith(ErrorKind::kChecksum)) << key;
    EXPECT_EQ(digest.status().first().tensor, key);
    EXPECT_THAT(digest.status().first().expected, HasSubstr(FileOf(0)));
  }
  // No rank has what another one has: nothing in the files says that they are of two saves.
  EXPECT_THAT(digest_of("model.both"), IsOk());
}

TEST_F(VerlTest, ARankTwiceLeavesElementsWithoutAFile) {
  for (const int rank : {0, 1, 2, 3}) Copy({.rank = rank / 2 * 2}, rank);
  const auto source = OpenSource(*storage_, "/c");
  ASSERT_THAT(source, IsOk());
  std::map<std::string, ErrorKind> found;
  for (const Problem& problem : ValidateIndex(**source))
    found.emplace(problem.tensor, problem.kind);
  // Each part says that it is the only one along the inner dim of the mesh, but is too small.
  EXPECT_EQ(found["model.rows"], ErrorKind::kShapeMismatch);
  EXPECT_EQ(found["model.inner"], ErrorKind::kShapeMismatch);
  EXPECT_FALSE(found.contains("model.plain"));
  EXPECT_THAT((*source)->index().CheckDeliverable("model.rows"),
              FailsWith(ErrorKind::kShapeMismatch));
}

TEST_F(VerlTest, ARankWithoutAFileIsAnError) {
  for (const int rank : {0, 1, 3}) Copy({.rank = rank}, rank);
  EXPECT_THAT(OpenSource(*storage_, "/c"), FailsWith(ErrorKind::kMissingFile));
}

TEST_F(VerlTest, ATensorThatARankLacksIsNamed) {
  for (const int rank : {0, 1, 2}) Copy({.rank = rank}, rank);
  Write(3, Content(Golden("torch_2.15") / "optim_world_size_4_rank_0.pt"));
  const auto source = OpenSource(*storage_, "/c");
  ASSERT_THAT(source, IsOk());
  const Status rows = (*source)->index().CheckDeliverable("model.rows");
  EXPECT_THAT(rows, FailsWith(ErrorKind::kMissing));
  EXPECT_THAT(rows.first().actual, HasSubstr(FileOf(3)));
  const Status step = (*source)->index().CheckDeliverable("step");
  EXPECT_THAT(step, FailsWith(ErrorKind::kMissing));
  EXPECT_THAT(step.first().actual, HasSubstr(FileOf(0)));
}

TEST_F(VerlTest, AFileThatIsCutOffIsRefused) {
  for (const int rank : {0, 1, 2, 3}) Copy({.rank = rank}, rank);
  const std::string whole = Content(Golden("torch_2.15") / FileOf(1));
  for (std::size_t size = 1; size < whole.size(); size += 1 + whole.size() / 200) {
    const std::string_view part = std::string_view(whole).substr(0, size);
    Write(1, part);
    EXPECT_FALSE(OpenSource(*storage_, "/c").ok()) << size;
  }
}

TEST_F(VerlTest, NoFlippedBitChangesAValueInSilence) {
  for (const int rank : {0, 1, 2, 3}) Copy({.rank = rank}, rank);
  const auto digests = [&](const CheckpointSource& source) {
    std::map<std::string, std::string> found;
    for (const GlobalTensor& tensor : source.index().tensors()) {
      const auto digest = DigestTensor(source, tensor, HashAlgorithm::kSha256, kBudgetBytes);
      if (digest.ok()) found[tensor.key] = *digest;
    }
    return found;
  };
  const auto whole_source = OpenSource(*storage_, "/c");
  ASSERT_THAT(whole_source, IsOk());
  const auto whole = digests(**whole_source);
  const std::string text = Content(Golden("torch_2.15") / FileOf(1));
  int told = 0;
  for (std::size_t at = 0; at < text.size(); at += 13) {
    std::string flipped = text;
    flipped[at] = static_cast<char>(flipped[at] ^ 16);
    Write(1, flipped);
    const auto source = OpenSource(*storage_, "/c");
    if (!source.ok()) {
      ++told;
      continue;
    }
    for (const auto& [key, digest] : digests(**source)) {
      const auto expected = whole.find(key);
      if (expected == whole.end()) continue;
      EXPECT_EQ(digest, expected->second) << key << " at " << at;
    }
  }
  EXPECT_GT(told, 0);
}

}  // namespace
}  // namespace ckpt::verl
