// Every mesh of GPU ranks is the same training as one GPU, and that is the CPU's. Ranks are
// threads, or processes under a launcher; they share a GPU where there are fewer.
#include <cstdlib>
#include <map>
#include <string>
#include <tuple>
#include <utility>
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
using testing::Closeness;
using testing::ExpectSameTraining;
using testing::FailsWith;
using testing::IsOk;
using testing::kBfloat16Bounds;
using testing::MeshCase;
using testing::NameOf;
using testing::OnMesh;
using testing::RunOptions;
using testing::SmallDeepSeek;
using testing::SmallMoe;
using testing::SmallRun;
using testing::Train;
using testing::TrainedRun;
using namespace trainer;  // NOLINT(google-build-using-namespace)

// A gradient is a sum over at most 112 tokens (16 sequences of 7), which another order changes by
// at most 112 roundings of 6e-8.
constexpr Closeness kFloat32Bounds = {.reports = 7e-6, .gradients = 7e-6, .weights = 7e-6};

RunOptions OnGpus(GpuCollectives collectives = GpuCollectives::kAuto) {
  return {.make_backend = [collectives](HostGroup& world) {
    // NCCL takes two ranks for one GPU only where each says that it is on another host.
    if (NumLaunchedProcesses() > 1 && NumCudaDevices() < world.size()) {
      ::setenv("NCCL_HOSTID", ("rank" + std::to_string(world.rank())).c_str(), 0);
    }
    return MakeBackend({.name = "cuda", .deterministic = true, .gpu_collectives = collectives},
                       world);
  }};
}

// Of 8 ranks those that only they can have: 2 instances of 4 ranks, which 2 or 4 ranks divide the
// experts of.
std::vector<MeshCase> MeshesOfSeveralRanks() {
  std::vector<MeshCase> cases;
  for (const MeshCase& c : AllMeshes()) {
    const bool is_large =
        c.ranks == 8 && c.instances == 2 && c.sharding == Sharding::kOptimGradsParams;
    if (c.ranks == 2 || c.ranks == 4 || is_large) cases.push_back(c);
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
    using Key = std::tuple<std::int64_t, bool, DType>;
    static auto* const known = new std::map<Key, TrainedRun>();
    const auto [found, is_new] =
        known->try_emplace({config.global_batch_size, is_latent, config.precision.compute});
    if (is_new) {
      TrainConfig alone = config;
      alone.mesh = {};
      Result<TrainedRun> gpu = Train(alone, OnGpus());
      EXPECT_THAT(gpu.status(), IsOk());
      if (gpu.ok()) found->second = std::move(gpu).value();
      if (config.precision.compute == DType::kFloat32) {
        const Result<TrainedRun> cpu = Train(alone, {});
        EXPECT_THAT(cpu.status(), IsOk());
        SCOPED_TRACE("one GPU and the CPU");
        if (cpu.ok()) ExpectSameTraining(found->second, *cpu, kFloat32Bounds);
      }
    }
    return found->second;
  }
  static const Closeness& BoundsOf(const TrainConfig& config) {
    return config.precision.compute == DType::kBfloat16 ? kBfloat16Bounds : kFloat32Bounds;
  }

  static void TryAll(const ModelConfig& model, bool is_latent) {
    int tried = 0;
    const bool is_large = GetParam().ranks == 8;
    for (const int expert_parallel : {1, 2, 4}) {
      if (expert_parallel == 4 && !is_large) continue;
      // At most the 16 sequences of kFloat32Bounds.
      for (const int micro_batches : {1, is_large ? 2 : 4}) {
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
          ExpectSameTraining(*run, OneGpu(config, is_latent), BoundsOf(config));
          ++tried;
        }
      }
    }
    EXPECT_GE(tried, 2);
  }
};

TEST_P(CudaMeshTest, MixtureOfExpertsTrainsAsOnOneGpu) { TryAll(SmallMoe(), false); }
TEST_P(CudaMeshTest, LatentAttentionAndExpertBiasTrainAsOnOneGpu) { TryAll(SmallDeepSeek(), true); }
// With one micro-batch two ranks keep terms of a sum, and where they hold weights whole, their
// updates write those of both. A missing wait would change some bits of the second run.
TEST_P(CudaMeshTest, Bfloat16TrainsAsOnOneGpuWithTheSameBitsAgain) {
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
    SCOPED_TRACE(::testing::Message() << micro_batches << " micro-batches");
    ExpectSameTraining(*first, OneGpu(config, false), BoundsOf(config));
    EXPECT_TRUE(first->weights == second->weights);
    EXPECT_EQ(first->reports.back().loss, second->reports.back().loss);
  }
}

class ManyGpusMeshTest : public CudaMeshTest {
 protected:
  void SetUp() override {
    if (NumLaunchedProcesses() > 1) GTEST_SKIP() << "ranks are processes, which have NCCL alone";
    if (NumCudaDevices() < GetParam().ranks) GTEST_SKIP() << "NCCL needs a GPU for each rank";
  }
};

// Threads that communicate by NCCL have the bits of threads that read each other's memory. With
// kOptimGrads the latter write each other's weights.
TEST_P(ManyGpusMeshTest, TrainsByNcclWithTheSameBits) {
  for (const DType compute : {DType::kFloat32, DType::kBfloat16}) {
    for (const int expert_parallel : {1, 2}) {
      TrainConfig config =
          OnMesh(SmallRun(SmallMoe(), GetParam().ranks), GetParam(), expert_parallel);
      config.precision.compute = config.precision.grad_comm = compute;
      config.deterministic = true;
      config.poison_released = true;
      if (!ValidateMesh(config.mesh, config.model.moe->num_experts).ok()) continue;
      SCOPED_TRACE(::testing::Message()
                   << DTypeName(compute) << ", expert parallel " << expert_parallel);
      const Result<TrainedRun> by_peers = Train(config, OnGpus(GpuCollectives::kPeer));
      const Result<TrainedRun> by_nccl = Train(config, OnGpus(GpuCollectives::kNccl));
      ASSERT_THAT(by_peers.status(), IsOk());
      ASSERT_THAT(by_nccl.status(), IsOk());
      EXPECT_TRUE(by_nccl->weights == by_peers->weights);
      EXPECT_EQ(by_nccl->reports.back().loss, by_peers->reports.back().loss);
    }
  }
}

TEST(CudaNcclTest, RefusesThreadsThatShareAGpu) {
  if (NumCudaDevices() == 0) GTEST_SKIP() << "no GPU";
  if (NumLaunchedProcesses() > 1) GTEST_SKIP() << "ranks are processes";
  const int ranks = 2 * NumCudaDevices();
  const TrainConfig config = OnMesh(SmallRun(SmallMoe(), ranks), {.ranks = ranks}, 1);
  EXPECT_THAT(Train(config, OnGpus(GpuCollectives::kNccl)).status(),
              FailsWith(ErrorKind::kUnsupported));
}

// The backward of attention adds in any order unless a run is deterministic. Gradients that reach a
// weight without passing through it have the same bits in every run.
TEST(CudaPrecisionTest, OnlyGradientsBehindAttentionMayDifferByDefault) {
  if (NumCudaDevices() == 0) GTEST_SKIP() << "no GPU";
  TrainConfig config = SmallRun(SmallMoe(), 1);
  config.model.hidden_size = 256;
  config.model.ffn_hidden_size = 512;
  config.model.kv_channels = 64;  // cuDNN's attention
  config.model.moe.reset();
  config.model.is_moe_layer.assign(config.model.is_moe_layer.size(), false);
  config.seq_length = 2048;
  config.clip_grad = 0;  // a norm over all gradients would scale each
  config.precision.compute = DType::kBfloat16;
  const RunOptions once = {.steps = 1, .make_backend = [](HostGroup& world) {
                             return MakeBackend({.name = "cuda"}, world);
                           }};
  const Result<TrainedRun> first = Train(config, once);
  ASSERT_THAT(first.status(), IsOk());
  for (int run = 0; run < 5; ++run) {
    const Result<TrainedRun> again = Train(config, once);
    ASSERT_THAT(again.status(), IsOk());
    EXPECT_EQ(again->reports[0].loss, first->reports[0].loss);
    for (const char* name :
         {"output_layer.weight", "decoder.final_layernorm.weight",
          "decoder.layers.1.mlp.linear_fc2.weight", "decoder.layers.1.mlp.linear_fc1.weight",
          "decoder.layers.1.pre_mlp_layernorm.weight"}) {
      ASSERT_TRUE(first->first_gradients.contains(name)) << name;
      EXPECT_TRUE(again->first_gradients.at(name) == first->first_gradients.at(name)) << name;
    }
  }
}

TEST(CudaPrecisionTest, RefusesToSendGradientsOfAFloat32ModelInBfloat16) {
  if (NumCudaDevices() == 0) GTEST_SKIP() << "no GPU";
  TrainConfig config = OnMesh(SmallRun(SmallMoe(), 2), {.ranks = 2}, 1);
  config.precision.grad_comm = DType::kBfloat16;
  EXPECT_THAT(Train(config, OnGpus()).status(), FailsWith(ErrorKind::kUnsupported));
}

INSTANTIATE_TEST_SUITE_P(Meshes, ManyGpusMeshTest, ::testing::ValuesIn(MeshesOfSeveralRanks()),
                         [](const auto& test) { return NameOf(test.param); });
INSTANTIATE_TEST_SUITE_P(Meshes, CudaMeshTest, ::testing::ValuesIn(MeshesOfSeveralRanks()),
                         [](const auto& test) { return NameOf(test.param); });

}  // namespace
}  // namespace ckpt
