// Every mesh is the same training: whatever is sharded, replicated or dispatched, a run equals that
// of one rank.
#include <map>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/step/mesh_cases.h"
#include "tests/trainer/step/trained_run.h"

namespace ckpt {
namespace {

using testing::AllDispatchers;
using testing::AllMeshes;
using testing::Closeness;
using testing::ExpectSameTraining;
using testing::IsOk;
using testing::kBfloat16Bounds;
using testing::MeshCase;
using testing::NameOf;
using testing::OnMesh;
using testing::RelativeDifference;
using testing::RunOptions;
using testing::SmallDeepSeek;
using testing::SmallMoe;
using testing::SmallRun;
using testing::Train;
using testing::TrainedRun;
using namespace trainer;  // NOLINT(google-build-using-namespace)

constexpr Closeness kFloat32Bounds = {.reports = 1e-6, .gradients = 1e-6, .weights = 1e-6};

class MeshEqualityTest : public ::testing::TestWithParam<MeshCase> {
 protected:
  // What one rank makes of as many sequences.
  const TrainedRun& OneRank(const TrainConfig& config) {
    const auto [found, is_new] = one_rank_.try_emplace(
        {config.global_batch_size, config.per_token_loss, config.precision.compute});
    if (is_new) {
      TrainConfig alone = config;
      alone.mesh = {};
      Result<TrainedRun> run = Train(alone, {});
      EXPECT_THAT(run, IsOk());
      if (run.ok()) found->second = std::move(run).value();
    }
    return found->second;
  }

  void TryAll(const ModelConfig& model, bool per_token_loss) {
    int tried = 0;
    for (const int expert_parallel : {1, 2, 4}) {
      for (const int micro_batches : {1, 2, 4}) {
        for (const Dispatcher dispatcher : AllDispatchers()) {
          TrainConfig config = OnMesh(SmallRun(model, micro_batches * GetParam().ranks), GetParam(),
                                      expert_parallel);
          config.dispatcher = dispatcher;
          config.per_token_loss = per_token_loss;
          if (!ValidateMesh(config.mesh, model.moe->num_experts).ok()) continue;
          SCOPED_TRACE(::testing::Message()
                       << "expert parallel " << expert_parallel << ", " << micro_batches
                       << " micro-batches, " << NameOf(dispatcher)
                       << (per_token_loss ? ", per-token loss" : ""));
          const Result<TrainedRun> run = Train(config, {.is_strict = true});
          ASSERT_THAT(run, IsOk());
          ExpectSameTraining(*run, OneRank(config), kFloat32Bounds);
          ++tried;
        }
      }
    }
    EXPECT_GE(tried, 6);
  }

 private:
  std::map<std::tuple<std::int64_t, bool, DType>, TrainedRun> one_rank_;
};

TEST_P(MeshEqualityTest, MixtureOfExpertsTrainsAsOnOneRank) { TryAll(SmallMoe(), false); }
TEST_P(MeshEqualityTest, DenseStepsNeitherWaitNorAllocate) {
  ModelConfig model = SmallMoe();
  model.moe.reset();
  model.is_moe_layer.assign(model.is_moe_layer.size(), false);
  for (const bool overlaps : {false, true}) {
    for (const bool per_token_loss : {false, true}) {
      TrainConfig config = OnMesh(SmallRun(model, 2 * GetParam().ranks), GetParam(), 1);
      config.per_token_loss = per_token_loss;
      config.overlap_grad_reduce = config.overlap_param_gather = overlaps;
      const QueueMode queues = overlaps ? QueueMode::kThreads : QueueMode::kInline;
      const Result<TrainedRun> run =
          Train(config, {.device = {.queues = queues}, .is_strict = true});
      ASSERT_THAT(run, IsOk());
      ExpectSameTraining(*run, OneRank(config), kFloat32Bounds);
    }
  }
}
TEST_P(MeshEqualityTest, LatentAttentionAndExpertBiasTrainAsOnOneRank) {
  TryAll(SmallDeepSeek(), true);
}

TEST_P(MeshEqualityTest, Bfloat16TrainsAsOnOneRank) {
  for (const int micro_batches : {1, 2}) {
    TrainConfig config =
        OnMesh(SmallRun(SmallMoe(), micro_batches * GetParam().ranks), GetParam(), 1);
    config.precision.compute = config.precision.grad_comm = DType::kBfloat16;
    const Result<TrainedRun> run = Train(config, {});
    ASSERT_THAT(run, IsOk());
    ExpectSameTraining(*run, OneRank(config), kBfloat16Bounds);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, MeshEqualityTest, ::testing::ValuesIn(AllMeshes()),
                         [](const auto& test) { return NameOf(test.param); });

// --- bit for bit ---------------------------------------------------------------------------------

void ExpectSameBits(const TrainedRun& a, const TrainedRun& b) {
  ASSERT_EQ(a.reports.size(), b.reports.size());
  for (std::size_t i = 0; i < a.reports.size(); ++i) {
    EXPECT_EQ(a.reports[i].loss, b.reports[i].loss) << "step " << i;
    EXPECT_EQ(a.reports[i].grad_norm, b.reports[i].grad_norm) << "step " << i;
    EXPECT_EQ(a.reports[i].aux_loss, b.reports[i].aux_loss) << "step " << i;
  }
  EXPECT_TRUE(a.weights == b.weights);
  EXPECT_TRUE(a.first_gradients == b.first_gradients);
  EXPECT_TRUE(a.buffers == b.buffers);
}

// With one micro-batch a step, the sum over all ranks is the same tree, whoever makes which part of
// it.
TEST(MeshBitsTest, ShardingAndReplicasDoNotChangeASumOfOneMicroBatch) {
  const TrainConfig config = SmallRun(SmallMoe(), 8);
  const Result<TrainedRun> fsdp = Train(OnMesh(config, {.ranks = 8}, 1), {});
  ASSERT_THAT(fsdp, IsOk());
  for (const MeshCase& c : AllMeshes()) {
    if (c.ranks != 8) continue;
    SCOPED_TRACE(NameOf(c));
    const Result<TrainedRun> run = Train(OnMesh(config, c, 1), {});
    ASSERT_THAT(run, IsOk());
    ExpectSameBits(*run, *fsdp);
  }
}

TEST(MeshBitsTest, QueuesThatAreThreadsChangeNothing) {
  TrainConfig config = OnMesh(SmallRun(SmallDeepSeek(), 8),
                              {.ranks = 4, .outer = OuterSharding::kOptim, .instances = 2}, 2);
  const Result<TrainedRun> at_once = Train(config, {});
  ASSERT_THAT(at_once, IsOk());
  for (const bool overlaps : {true, false}) {
    config.overlap_grad_reduce = config.overlap_param_gather = overlaps;
    for (const std::uint64_t delay_seed : {0U, 1U, 2U}) {
      const RunOptions options = {
          .device = {.queues = QueueMode::kThreads, .delay_seed = delay_seed}};
      const Result<TrainedRun> run = Train(config, options);
      ASSERT_THAT(run, IsOk());
      ExpectSameBits(*run, *at_once);
    }
  }
}

// Ranks read weights and gradients in each other's memory, with delays between all work, and what
// was released is poisoned: a wait that is missing would show. One in five of all: another case on
// each mesh.
TEST(MeshBitsTest, RanksThatReadEachOthersMemoryGetTheSameBits) {
  std::uint64_t delay_seed = 0;
  std::size_t valid = 0;
  for (const MeshCase& c : AllMeshes()) {
    if (c.ranks == 1) continue;
    const struct {
      int expert_parallel;
      int micro_batches;
      DType compute = DType::kFloat32;
    } cases[] = {{1, 1},
                 {1, 2},
                 {4, 2},
                 {c.ranks / 2, 1},
                 {1, 1, DType::kBfloat16},
                 {c.ranks / 2, 2, DType::kBfloat16}};
    for (const auto& [expert_parallel, micro_batches, compute] : cases) {
      TrainConfig config =
          OnMesh(SmallRun(SmallDeepSeek(), micro_batches * c.ranks), c, expert_parallel);
      if (!ValidateMesh(config.mesh, 8).ok() || valid++ % 5 != 0) continue;
      SCOPED_TRACE(::testing::Message()
                   << NameOf(c) << ", expert parallel " << expert_parallel << ", " << micro_batches
                   << " micro-batches, " << DTypeName(compute));
      // The updates of two ranks write both ranks' weights of bfloat16.
      config.precision.compute = compute;
      // With one micro-batch, two ranks keep terms of bfloat16 (Landing). With two, every other
      // mesh reduces in bfloat16, which needs a copy of its own.
      if (micro_batches == 1 || delay_seed % 2 == 1) config.precision.grad_comm = DType::kBfloat16;
      const Result<TrainedRun> met = Train(config, {});
      ASSERT_THAT(met, IsOk());
      config.poison_released = true;
      const RunOptions options = {.device = {.queues = QueueMode::kThreads,
                                             .delay_seed = ++delay_seed,
                                             .reads_peers = true}};
      const Result<TrainedRun> read = Train(config, options);
      ASSERT_THAT(read, IsOk());
      ExpectSameBits(*read, *met);
    }
  }
}

TEST(MeshBitsTest, ReadingEachOthersMemoryNeedsNoThreads) {
  for (const Dispatcher dispatcher : AllDispatchers()) {
    TrainConfig config = OnMesh(SmallRun(SmallMoe(), 8),
                                {.ranks = 4, .outer = OuterSharding::kOptim, .instances = 2}, 2);
    config.dispatcher = dispatcher;
    const Result<TrainedRun> met = Train(config, {});
    const Result<TrainedRun> read = Train(config, {.device = {.reads_peers = true}});
    ASSERT_THAT(met, IsOk());
    ASSERT_THAT(read, IsOk());
    ExpectSameBits(*read, *met);
  }
}

TEST(MeshBitsTest, RecomputationChangesNothing) {
  TrainConfig config = OnMesh(SmallRun(SmallDeepSeek(), 8), {.ranks = 4, .instances = 2}, 2);
  const Result<TrainedRun> kept = Train(config, {});
  config.recompute = Recompute::kLayers;
  const Result<TrainedRun> recomputed = Train(config, {});
  ASSERT_THAT(kept, IsOk());
  ASSERT_THAT(recomputed, IsOk());
  ExpectSameBits(*recomputed, *kept);
}

// --- canonical mode ------------------------------------------------------------------------------

TEST(CanonicalTest, TwentyStepsHaveTheSameBitsOnEveryMesh) {
  TrainConfig config = SmallRun(SmallDeepSeek(), 8);
  config.reduction = Reduction::kCanonical;
  config.optimizer.adam_eps = 1e-8;  // noise of tiny gradients would show: there must be none
  const RunOptions options = {.steps = 20};
  const Result<TrainedRun> one = Train(config, options);
  ASSERT_THAT(one, IsOk());
  const Result<TrainedRun> first_step = Train(config, {.steps = 1});
  ASSERT_THAT(first_step, IsOk());
  EXPECT_GT(RelativeDifference(one->weights, first_step->weights), 0.1);  // it does train
  int tried = 0;
  for (const MeshCase& c : AllMeshes()) {
    if (c.sharding != Sharding::kOptimGradsParams && c.ranks != 4) continue;
    for (const int expert_parallel : {1, 2, 4}) {
      const TrainConfig on_mesh = OnMesh(config, c, expert_parallel);
      if (!ValidateMesh(on_mesh.mesh, 8).ok()) continue;
      SCOPED_TRACE(::testing::Message() << NameOf(c) << ", expert parallel " << expert_parallel);
      const Result<TrainedRun> run = Train(on_mesh, options);
      ASSERT_THAT(run, IsOk());
      ExpectSameBits(*run, *one);
      ++tried;
    }
  }
  EXPECT_GE(tried, 25);
}

}  // namespace
}  // namespace ckpt
