#include "trainer/backend/backend.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "trainer/backend/backend_options.h"
#include "trainer/backend/internal/cuda_backend.h"
#include "trainer/comm/internal/lone_group.h"
#include "trainer/device/collectives.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using testing::IsOk;

TEST(BackendTest, MakesWhatARankComputesWith) {
  const auto world = MakeLoneGroup();
  for (const bool overlaps : {false, true}) {
    const auto backend = MakeBackend({.overlaps = overlaps}, *world);
    ASSERT_THAT(backend, IsOk());
    const auto queue = backend->device->MakeQueue("compute");
    const auto memory = backend->device->Allocate(4 * sizeof(float), MemoryUse::kOther);
    ASSERT_THAT(memory, IsOk());
    const Tensor values(memory->data(), DType::kFloat32, {4});
    std::array<float, 4> read{};
    backend->ops->Fill(*queue, values, 2.5);
    backend->device->CopyToHost(*queue, values, read.data());
    EXPECT_THAT(queue->Synchronize(), IsOk());
    EXPECT_THAT(read, ::testing::Each(2.5F));
  }
}

// A rank without others has collectives too: they copy.
TEST(BackendTest, ItsDeviceMakesCollectivesOfALoneRank) {
  const auto world = MakeLoneGroup();
  const auto backend = MakeBackend({}, *world);
  ASSERT_THAT(backend, IsOk());
  const auto alone = backend->device->MakeCollectives(MakeLoneGroup());
  ASSERT_THAT(alone, IsOk());
  EXPECT_EQ((*alone)->rank(), 0);
  EXPECT_EQ((*alone)->size(), 1);
  const auto queue = backend->device->MakeQueue("compute");
  std::array<float, 2> shard = {1, 2}, full{};
  (*alone)->AllGather(*queue, Tensor(shard.data(), DType::kFloat32, {2}),
                      Tensor(full.data(), DType::kFloat32, {2}));
  EXPECT_THAT(queue->Synchronize(), IsOk());
  EXPECT_EQ(full, shard);
}

TEST(BackendTest, RefusesANameThatIsNotThere) {
  const auto world = MakeLoneGroup();
  const auto backend = MakeBackend({.name = "abacus"}, *world);
  ASSERT_THAT(backend, FailsWith(ErrorKind::kUsage));
  EXPECT_EQ(backend.status().first().actual, "abacus");
  EXPECT_EQ(backend.status().first().expected, "auto or cuda, cpu");
}

TEST(BackendTest, TheReferenceIsOneOfThemAndAddsInAFixedOrder) {
  EXPECT_THAT(BackendNames(), ::testing::Contains(kReferenceBackend));
  EXPECT_TRUE(AddsInFixedOrder(kReferenceBackend));
  EXPECT_FALSE(AddsInFixedOrder("cuda"));
}

// The GPU refuses by name what it cannot do; then any other backend does it.
TEST(BackendTest, TakesTheFirstBackendThatCanRun) {
  const auto world = MakeLoneGroup();
  for (const BackendOptions& asked :
       {BackendOptions{.fixed_order = true}, BackendOptions{.compute = DType::kFloat64}}) {
    BackendOptions options = asked;
    options.name = "cuda";
    EXPECT_THAT(MakeBackend(options, *world), FailsWith(ErrorKind::kUnsupported));
    options.name = kAnyBackend;
    EXPECT_THAT(MakeBackend(options, *world), IsOk());
  }
}

TEST(BackendTest, SaysWhyItIsNotAnEarlierOne) {
  const auto text_for = [](BackendOptions options) {
    options.name = kAnyBackend;
    return ChooseBackend(options)->Text();
  };
  EXPECT_EQ(text_for({.fixed_order = true}), "cpu (cuda: a GPU does not compute canonical sums)");
  EXPECT_EQ(text_for({.compute = DType::kFloat64}), "cpu (cuda: a GPU does not train in float64)");
  EXPECT_EQ(ChooseBackend({.name = "cpu", .fixed_order = true})->Text(), "cpu");
}

TEST(BackendTest, ASettingThatNothingHereUsesIsRefused) {
  const BackendOptions chosen = {.name = "cpu", .product_algorithms = "p.json"};
  const auto refused = ChooseBackend(chosen);
  ASSERT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(refused.status().first().message, "the CPU's products have one algorithm");

  BackendOptions any = chosen;
  any.name = kAnyBackend;
  any.fixed_order = true;  // so no GPU takes it either
  const auto by_all = ChooseBackend(any);
  ASSERT_THAT(by_all, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(by_all.status().first().actual,
            "cuda: a GPU does not compute canonical sums; cpu: the CPU's products have one "
            "algorithm");
}

TEST(BackendTest, TheCpuHasNoCollectivesOfGpus) {
  for (const GpuCollectives asked : {GpuCollectives::kPeer, GpuCollectives::kNccl}) {
    const auto refused = ChooseBackend({.name = "cpu", .gpu_collectives = asked});
    ASSERT_THAT(refused, FailsWith(ErrorKind::kUnsupported));
    EXPECT_EQ(refused.status().first().message, "gpu_collectives does nothing on the CPU");
  }
  // No GPU computes canonical sums, so that nothing is left.
  const auto none = ChooseBackend({.name = std::string(kAnyBackend),
                                   .fixed_order = true,
                                   .gpu_collectives = GpuCollectives::kNccl});
  ASSERT_THAT(none, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(none.status().first().actual,
            "cuda: a GPU does not compute canonical sums; cpu: gpu_collectives does nothing on the "
            "CPU");
}

TEST(BackendTest, SaysWhichGpuRanksCannotCommunicateSo) {
  using enum GpuCollectives;
  constexpr bool kThreads = false;
  constexpr bool kProcesses = true;
  for (const bool are_processes : {kThreads, kProcesses}) {
    EXPECT_THAT(CheckCudaRanks(kAuto, 4, are_processes, 1), IsOk());
    EXPECT_THAT(CheckCudaRanks(kNccl, 4, are_processes, 4), IsOk());
  }
  EXPECT_THAT(CheckCudaRanks(kPeer, 4, kThreads, 1), IsOk());
  // Processes may say that they are on different hosts.
  EXPECT_THAT(CheckCudaRanks(kNccl, 4, kProcesses, 1), IsOk());
  EXPECT_THAT(CheckCudaRanks(kPeer, 4, kProcesses, 4), FailsWith(ErrorKind::kUnsupported));
  const Status shared = CheckCudaRanks(kNccl, 4, kThreads, 2);
  ASSERT_THAT(shared, FailsWith(ErrorKind::kUnsupported));
  EXPECT_EQ(shared.first().actual, "2 GPUs: ranks 0 and 2 would share GPU 0");
}

TEST(BackendOptionsTest, SayWhatARunAsksFor) {
  TrainConfig config;
  const BackendOptions usual = BackendOptionsOf(config, "auto", 3);
  EXPECT_EQ(usual.name, "auto");
  EXPECT_EQ(usual.threads, 3);
  EXPECT_FALSE(usual.fixed_order || usual.deterministic || usual.overlaps);
  config.reduction = Reduction::kCanonical;
  config.deterministic = true;
  config.precision.compute = DType::kBfloat16;
  config.overlap_grad_reduce = true;
  config.product_algorithms = "p.json";
  config.gpu_collectives = GpuCollectives::kNccl;
  const BackendOptions asked = BackendOptionsOf(config, "cpu", 1);
  EXPECT_TRUE(asked.fixed_order && asked.deterministic && asked.overlaps);
  EXPECT_EQ(asked.compute, DType::kBfloat16);
  EXPECT_EQ(asked.product_algorithms, "p.json");
  EXPECT_EQ(asked.gpu_collectives, GpuCollectives::kNccl);
}

}  // namespace
}  // namespace ckpt::trainer
