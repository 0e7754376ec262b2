// A run is read in the way of the format that its checkpoint is in.
#include "formats/registry/stored_run.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/checkpoint/memory_source.h"
#include "core/io/posix_storage.h"
#include "core/training/run_format.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using testing::FailsWith;
using testing::GoldenDir;
using testing::IsOk;

constexpr const char* kMegatronRun = "fsdp_dtensor/dense_fsdp2/ckpt";

OpenedCheckpoint Open(const std::string& golden, const std::string& format = {}) {
  auto opened = OpenCheckpoint(PosixStorage(), GoldenDir() / golden, {.format = format});
  EXPECT_THAT(opened, IsOk());
  return opened.ok() ? *std::move(opened) : OpenedCheckpoint();
}

OpenedCheckpoint InMemory(const std::vector<std::string>& keys) {
  std::vector<MemoryTensor> tensors;
  for (const std::string& key : keys) {
    tensors.push_back(
        {.key = key, .dtype = DType::kFloat32, .shape = {1}, .values = Bytes(4, std::byte{0})});
  }
  auto source = MakeMemorySource(std::move(tensors));
  EXPECT_THAT(source, IsOk());
  OpenedCheckpoint checkpoint;
  checkpoint.source = *std::move(source);
  return checkpoint;
}

Result<StoredRun> ReadElsewhere(const CheckpointSource& /*source*/, RunDetail /*detail*/) {
  StoredRun stored;
  stored.run.iteration = 77;
  return stored;
}

Result<layout::Configuration> ReadArgsElsewhere(const CheckpointSource& /*source*/) {
  return layout::Configuration{{"hidden_size", 8}};
}

TEST(StoredRunTest, AnOptimizerShowsByItsKeys) {
  const auto holds = [](const std::string& key) {
    return HoldsOptimizer(InMemory({"model.norm.weight", key}).source->index());
  };
  for (const char* key :
       {"optimizer.state.module.norm.weight.exp_avg", "optim.state.norm.weight.step",
        "state.0.exp_avg", "opt.state.12.momentum_buffer", "state.0.step"}) {
    EXPECT_TRUE(holds(key)) << key;
  }
  for (const char* key : {"state.0.weight", "mystate.0.step", "layers.0.step", "exp_avg",
                          "state.exp_avg", "model.state.norm.weight"}) {
    EXPECT_FALSE(holds(key)) << key;
  }
}

TEST(StoredRunTest, IsReadByTheFormatOfTheCheckpoint) {
  constexpr RunFormat kRun = {.weight_key = nullptr,
                              .moment_key = nullptr,
                              .run_tensors = nullptr,
                              .plan = nullptr,
                              .holds_run = [](const CheckpointIndex&) { return true; },
                              .find_tensors = nullptr,
                              .read = &ReadElsewhere};
  const Format elsewhere = {.name = "elsewhere", .run = &kRun, .read_args = &ReadArgsElsewhere};
  OpenedCheckpoint checkpoint = Open(kMegatronRun);
  checkpoint.format = &elsewhere;
  const auto stored = ReadStoredRun(checkpoint);
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run.iteration, 77);
  const auto args = ReadRunArgs(checkpoint);
  ASSERT_THAT(args, IsOk());
  EXPECT_EQ(args->size(), 1U);
}

// SGD without momentum keeps no tensors.
TEST(StoredRunTest, IsHeldWhereItsGroupsAreAllOfTheOptimizer) {
  constexpr RunFormat kKeys = {.holds_run = [](const CheckpointIndex&) { return false; }};
  constexpr RunFormat kGroups = {.holds_run = [](const CheckpointIndex&) { return false; },
                                 .holds_groups = [](const CheckpointSource&) { return true; },
                                 .read = &ReadElsewhere};
  OpenedCheckpoint checkpoint = InMemory({"norm.weight"});
  const Format by_keys = {.name = "by_keys", .run = &kKeys};
  checkpoint.format = &by_keys;
  EXPECT_FALSE(HoldsRun(checkpoint));
  const Format by_groups = {.name = "by_groups", .run = &kGroups};
  checkpoint.format = &by_groups;
  EXPECT_TRUE(HoldsRun(checkpoint));
  EXPECT_TRUE(IsStoredAs(checkpoint, kGroups));
  EXPECT_THAT(ReadStoredRun(checkpoint), IsOk());
}

TEST(StoredRunTest, IsFoundByItsKeysInAPlainContainer) {
  const OpenedCheckpoint itself = Open(kMegatronRun);
  const OpenedCheckpoint plain = Open(kMegatronRun, "dcp");
  ASSERT_NE(itself.format, plain.format);
  const auto expected = ReadStoredRun(itself);
  const auto stored = ReadStoredRun(plain);
  ASSERT_THAT(expected, IsOk());
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(stored->run, expected->run);
  const auto args = ReadRunArgs(plain);
  ASSERT_THAT(args, IsOk());
  EXPECT_FALSE(args->empty());
  // Keys of a run, though not all that one needs.
  const OpenedCheckpoint part =
      InMemory({"model.module.norm.weight", "optimizer.state.module.norm.weight.exp_avg"});
  EXPECT_TRUE(HoldsRun(part));
  EXPECT_EQ(ReadStoredRun(part).status().first().message,
            "nothing says how often the optimizer updated the weights");
}

TEST(StoredRunTest, IsRefusedWhereNothingIsOfARun) {
  for (const OpenedCheckpoint& checkpoint :
       {Open("hf/llama-tied-fp32/ckpt"), InMemory({"norm.weight"}),
        InMemory({"model.module.norm.weight"})}) {
    EXPECT_FALSE(HoldsRun(checkpoint));
    const auto stored = ReadStoredRun(checkpoint);
    EXPECT_THAT(stored, FailsWith(ErrorKind::kMissing));
    EXPECT_EQ(stored.status().first().message, "the checkpoint stores no training run");
    const auto args = ReadRunArgs(checkpoint);
    ASSERT_THAT(args, IsOk());
    EXPECT_TRUE(args->empty());
  }
}

}  // namespace
}  // namespace ckpt
