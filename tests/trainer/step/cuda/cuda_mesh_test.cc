// Every mesh of GPU ranks is the same training as one GPU, and that is the CPU's. Ranks are threads, or
// processes under a launcher; they share a GPU where there are fewer.
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/step/mesh_cases.h"
#include "tests/trainer/step/trained_run.h"
#include "trainer/backend/backend.h"
#include "trainer/device/cuda/cuda_device.h"

namespace ckpt {
namespace {

using testing::AllDispatchers;
using testing::AllMeshes;
using testing::FailsWith;
using testing::IsOk;
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

// Of float32, relative to the largest magnitude of a tensor. A gradient is a sum over at most 112 tokens
// (16 sequences of 7), which another order changes by at most 112 roundings of 6e-8.
constexpr double kTolerance = 7e-6;

RunOptions OnGpus() {
  return {.make_backend = [](HostGroup& world) {
    // NCCL takes two ranks for one GPU only where each says that it is on another host.
    if (NumLaunchedProcesses() > 1 && NumCudaDevices() < world.size()) {
      ::setenv("NCCL_HOSTID", ("rank" + std::to_string(world.rank())).c_str(), 0);
    }
    return MakeBackend({.name = "cuda", .deterministic = true}, world);
  }};
}

void ExpectSameTraining(const TrainedRun& run, const TrainedRun& expected) {
  ASSERT_EQ(run.reports.size(), expected.reports.size());
  for (std::size_t i = 0; i < run.reports.size(); ++i) {
    const StepReport& want = expected.reports[i];
    EXPECT_NEAR(run.reports[i].loss, want.loss, kTolerance * std::abs(want.loss));
    EXPECT_NEAR(run.reports[i].aux_loss, want.aux_loss, kTolerance * std::abs(want.aux_loss));
    EXPECT_NEAR(run.reports[i].grad_norm, want.grad_norm, kTolerance * want.grad_norm);
    EXPECT_EQ(run.reports[i].tokens, want.tokens);
  }
  EXPECT_LE(RelativeDifference(run.first_gradients, expected.first_gradients), kTolerance);
  EXPECT_LE(RelativeDifference(run.weights, expected.weights), kTolerance);
  EXPECT_EQ(run.buffers, expected.buffers);
}

std::vector<MeshCase> MeshesOfSeveralRanks() {
  std::vector<MeshCase> cases;
  for (const MeshCase& c : AllMeshes()) {
    if (c.ranks == 2 || c.ranks == 4) cases.push_back(c);
  }
  return cases;
}

class CudaMeshTest : public ::testing::TestWithParam<MeshCase> {
 protected:
  void SetUp() override {
    if (NumCudaDevices() == 0) GTEST_SKIP() << "no GPU";
  }

  // What one GPU makes of as many sequences. All tests share it.
  static const TrainedRun& OneGpu(const TrainConfig& config, bool is_latent) {
    static auto* const known = new std::map<std::pair<std::int64_t, bool>, TrainedRun>();
    const auto [found, is_new] = known->try_emplace({config.global_batch_size, is_latent});
    if (is_new) {
      TrainConfig alone = config;
      alone.mesh = {};
      Result<TrainedRun> gpu = Train(alone, OnGpus());
      const Result<TrainedRun> cpu = Train(alone, {});
      EXPECT_THAT(gpu.status(), IsOk());
      EXPECT_THAT(cpu.status(), IsOk());
      if (gpu.ok() && cpu.ok()) {
        SCOPED_TRACE("one GPU and the CPU");
        ExpectSameTraining(*gpu, *cpu);
        found->second = std::move(gpu).value();
      }
    }
    return found->second;
  }

  static void TryAll(const ModelConfig& model, bool is_latent) {
    int tried = 0;
    for (const int expert_parallel : {1, 2}) {
      for (const int micro_batches : {1, 4}) {
        for (const Dispatcher dispatcher : AllDispatchers()) {
          if (expert_parallel == 1 && dispatcher != Dispatcher::kAllToAll) continue;
          TrainConfig config = OnMesh(SmallRun(model, micro_batches * GetParam().ranks), GetParam(),
                                      expert_parallel);
          config.dispatcher = dispatcher;
          config.poison_released = true;
          if (!ValidateMesh(config.mesh, model.moe->num_experts).ok()) continue;
          SCOPED_TRACE(::testing::Message()
                       << "expert parallel " << expert_parallel << ", " << micro_batches
                       << " micro-batches, " << NameOf(dispatcher));
          const Result<TrainedRun> run = Train(config, OnGpus());
          ASSERT_THAT(run.status(), IsOk());
          ExpectSameTraining(*run, OneGpu(config, is_latent));
          ++tried;
        }
      }
    }
    EXPECT_GE(tried, 2);
  }
};

TEST_P(CudaMeshTest, MixtureOfExpertsTrainsAsOnOneGpu) { TryAll(SmallMoe(), false); }
TEST_P(CudaMeshTest, LatentAttentionAndExpertBiasTrainAsOnOneGpu) { TryAll(SmallDeepSeek(), true); }
// A missing wait would change some of them. With one micro-batch two ranks keep terms of a sum, and
// where they hold weights whole, their updates write those of both.
TEST_P(CudaMeshTest, TwoRunsHaveTheSameBits) {
  for (const int micro_batches : {1, 2}) {
    TrainConfig config =
        OnMesh(SmallRun(SmallMoe(), micro_batches * GetParam().ranks), GetParam(), 1);
    config.precision.compute = config.precision.grad_comm = DType::kBfloat16;
    config.deterministic = true;
    config.poison_released = true;
    const Result<TrainedRun> first = Train(config, OnGpus());
    const Result<TrainedRun> second = Train(config, OnGpus());
    ASSERT_THAT(first.status(), IsOk());
    ASSERT_THAT(second.status(), IsOk());
    EXPECT_TRUE(first->weights == second->weights) << micro_batches << " micro-batches";
    EXPECT_EQ(first->reports.back().loss, second->reports.back().loss);
  }
}

TEST(CudaPrecisionTest, RefusesToSendGradientsOfAFloat32ModelInBfloat16) {
  if (NumCudaDevices() == 0) GTEST_SKIP() << "no GPU";
  TrainConfig config = OnMesh(SmallRun(SmallMoe(), 2), {.ranks = 2}, 1);
  config.precision.grad_comm = DType::kBfloat16;
  EXPECT_THAT(Train(config, OnGpus()).status(), FailsWith(ErrorKind::kUnsupported));
}

INSTANTIATE_TEST_SUITE_P(Meshes, CudaMeshTest, ::testing::ValuesIn(MeshesOfSeveralRanks()),
                         [](const auto& test) { return NameOf(test.param); });

}  // namespace
}  // namespace ckpt
