// A run that Megatron-LM saved, taken over and saved again by us: what lies there is what Megatron
// wrote.
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "core/base/hash.h"
#include "core/checkpoint/digest.h"
#include "core/io/posix_storage.h"
#include "formats/registry/registry.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "tests/testing/temp_dir.h"
#include "tools/ckpt-train/run_setup.h"
#include "tools/cli/streams.h"
#include "trainer/run/rank_session.h"

namespace ckpt::train {
namespace {

using testing::IsOk;

constexpr std::string_view kGroup = "fsdp_dtensor";
constexpr std::uint64_t kBudgetBytes = 16 << 20;

std::vector<std::string> MegatronCases() {
  std::vector<std::string> cases = testing::GoldenCases(std::string(kGroup));
  std::erase_if(cases, [](const std::string& name) { return name.starts_with("fully_shard"); });
  return cases;
}

// Ranks that load `from` and save it as it is below `to`.
Status TakeOver(const Path& from, const Path& to, int ranks, layout::Configuration mesh) {
  layout::Configuration given = std::move(mesh);
  given["load"] = from.string();
  given["save"] = to.string();
  given["save_proof"] = false;
  CKPT_ASSIGN_OR_RETURN(const RunConfig run, ResolveRun(PosixStorage(), given, ranks));
  cli::Streams streams = cli::ProcessStreams();
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<RunSetup> setup,
                        RunSetup::Create(run, ranks, "cpu", {}, PosixStorage(), streams));
  return setup->RunRanks([&](trainer::HostGroup& world) -> Status {
    CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<RankSession> session,
                          RankSession::Create(setup->session_input(), world, nullptr));
    CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session->Start());
    return session->checkpoints().Save(progress);
  });
}

std::set<std::string> Keys(std::span<const ObjectEntry> objects) {
  std::set<std::string> keys;
  for (const ObjectEntry& object : objects) keys.insert(object.key);
  return keys;
}

// Random states are functions of the seed here, and of what was drawn before there.
bool IsRandomState(std::string_view key) { return key.starts_with("rng_state."); }
// What a run says of itself: other members than Megatron's; and a count that we do not keep.
bool IsOwn(std::string_view key) {
  return key == "args" || key == "num_floating_point_operations_so_far";
}

void ExpectSameTensors(const CheckpointSource& theirs, const CheckpointSource& ours) {
  ASSERT_EQ(ours.index().tensors().size(), theirs.index().tensors().size());
  for (const GlobalTensor& tensor : theirs.index().tensors()) {
    const GlobalTensor* const saved = ours.index().FindTensor(tensor.key);
    ASSERT_NE(saved, nullptr) << tensor.key;
    EXPECT_EQ(saved->shape, tensor.shape) << tensor.key;
    EXPECT_EQ(saved->dtype, tensor.dtype) << tensor.key;
    if (IsRandomState(tensor.key)) continue;
    const auto expected = DigestTensor(theirs, tensor, HashAlgorithm::kXxh3, kBudgetBytes);
    const auto actual = DigestTensor(ours, *saved, HashAlgorithm::kXxh3, kBudgetBytes);
    ASSERT_THAT(expected, IsOk());
    ASSERT_THAT(actual, IsOk());
    EXPECT_EQ(*actual, *expected) << tensor.key;
  }
}

void ExpectSameObjects(const CheckpointSource& theirs, const CheckpointSource& ours) {
  ASSERT_EQ(Keys(ours.index().objects()), Keys(theirs.index().objects()));
  for (const ObjectEntry& object : theirs.index().objects()) {
    const auto expected = theirs.ReadObject(object);
    const auto actual = ours.ReadObject(*ours.index().FindObject(object.key));
    ASSERT_THAT(expected, IsOk());
    ASSERT_THAT(actual, IsOk());
    EXPECT_EQ(actual->type, expected->type) << object.key;
    if (IsRandomState(object.key) || IsOwn(object.key)) continue;
    EXPECT_EQ(actual->json, expected->json) << object.key;
  }
}

class GoldenSaveTest : public ::testing::TestWithParam<std::string> {};

TEST_P(GoldenSaveTest, HasTheKeysShapesTypesAndValuesThatMegatronWrote) {
  const testing::GoldenCase golden = testing::LoadGolden(std::string(kGroup), GetParam());
  const auto theirs = OpenCheckpoint(PosixStorage(), golden.path);
  ASSERT_THAT(theirs, IsOk());
  const std::vector<layout::Configuration> meshes = {
      {},
      {{"num_distributed_optimizer_instances", 2}},
      {{"data_parallel_sharding_strategy", "no_shard"}}};
  for (const layout::Configuration& mesh : meshes) {
    const testing::TempDir directory;
    ASSERT_THAT(TakeOver(golden.path, directory.path() / "run", mesh.empty() ? 1 : 4, mesh),
                IsOk());
    const auto ours = OpenCheckpoint(PosixStorage(), directory.path() / "run");
    ASSERT_THAT(ours, IsOk());
    EXPECT_EQ(ours->format->name, kGroup);
    EXPECT_EQ(ours->iteration, theirs->iteration);
    ExpectSameTensors(*theirs->source, *ours->source);
    ExpectSameObjects(*theirs->source, *ours->source);
  }
}

TEST(GoldenSave, HasACaseWithExpertsAndOneWithout) { EXPECT_GE(MegatronCases().size(), 2U); }

INSTANTIATE_TEST_SUITE_P(Cases, GoldenSaveTest, ::testing::ValuesIn(MegatronCases()),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace ckpt::train
