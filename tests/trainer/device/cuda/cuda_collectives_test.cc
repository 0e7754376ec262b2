// Ranks that are threads with GPUs: the conformance suite, and what a failure leaves. Ranks that
// read each other's memory share a GPU where there are fewer.
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/conformance/collectives_suite.h"
#include "tests/testing/matchers.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cuda/cuda_device.h"

namespace ckpt::trainer {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;

std::vector<WorldCase> CudaWorlds() {
  std::vector<WorldCase> cases;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    cases.push_back(
        {.name = "Peers" + std::to_string(ranks),
         .why_skipped = NumCudaDevices() == 0 ? "no GPU" : "",
         .make_device = [](int rank) { return MakeCudaDevice(rank % NumCudaDevices()); },
         .run = [ranks](const auto& body) { return RunRanks(ranks, body); }});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cuda, CollectivesSuite, ::testing::ValuesIn(CudaWorlds()), WorldCaseName);

// By NCCL, with a GPU for each rank.
std::vector<WorldCase> NcclWorlds() {
  std::vector<WorldCase> cases;
  for (const int ranks : {2, 4}) {
    cases.push_back(
        {.name = "Nccl" + std::to_string(ranks),
         .why_skipped = NumCudaDevices() < ranks ? "NCCL needs a GPU for each rank" : "",
         .make_device = [](int rank) { return MakeCudaDevice(rank, GpuCollectives::kNccl); },
         .run = [ranks](const auto& body) { return RunRanks(ranks, body); }});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(ManyGpus, CollectivesSuite, ::testing::ValuesIn(NcclWorlds()),
                         WorldCaseName);

class CudaPeersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (NumCudaDevices() == 0) GTEST_SKIP() << "no GPU";
  }
  // Two ranks.
  static Status Run(const std::function<void(TestRank& self)>& body) {
    return RunRanks(2, [&](HostGroup& world) -> Status {
      CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<Device> device,
                            MakeCudaDevice(world.rank() % NumCudaDevices()));
      const std::unique_ptr<Queue> queue = device->MakeQueue("comm");
      CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<Collectives> all,
                            SplitCollectives(world, *device, 0, world.rank()));
      TestRank self{world, *device, *queue, *all};
      body(self);
      return queue->Synchronize();
    });
  }
};

// Sums in packs of 16 bytes and what is left of them, over several turns of a block.
TEST_F(CudaPeersTest, LongSumsHaveTheBitsOfTheDocumentedOrder) {
  EXPECT_THAT(Run([](TestRank& self) {
                constexpr std::int64_t kCount = 3'000'003;
                const auto full = self.Put(ValuesOf<Bf16>(self.rank(), kCount * self.size()));
                const std::vector<float> before = ValuesOf<float>(9, kCount);
                const auto shard = self.Put(before);
                self.all.ReduceScatterInto(self.queue, full.tensor(), shard.tensor(),
                                           GradWrite::kAdd, {});
                std::vector<float> expected;
                for (std::int64_t i = 0; i < kCount; ++i) {
                  expected.push_back(before[static_cast<std::size_t>(i)] +
                                     WideSumAt<Bf16>(self.size(), self.rank() * kCount + i));
                }
                ExpectSameBits(shard.Read(), expected, "ReduceScatterInto");
                self.all.Leave();
              }),
              IsOk());
}

// The failure of a queue reaches the ranks that would read what it did not write.
TEST_F(CudaPeersTest, WorkThatFailsBeforeACallFailsTheReaders) {
  EXPECT_THAT(Run([](TestRank& self) {
                if (self.rank() == 1) self.queue.Fail(Error(ErrorKind::kSystem, "out of memory"));
                const auto shard = self.device.Allocate(4, MemoryUse::kOther);
                const auto full = self.device.Allocate(8, MemoryUse::kOther);
                ASSERT_THAT(shard.status(), IsOk());
                ASSERT_THAT(full.status(), IsOk());
                self.all.AllGather(self.queue, Tensor(shard->data(), DType::kFloat32, {1}),
                                   Tensor(full->data(), DType::kFloat32, {2}));
                const Status status = self.queue.Synchronize();
                EXPECT_THAT(status, FailsWith(self.rank() == 1 ? ErrorKind::kSystem
                                                               : ErrorKind::kCancelled));
                EXPECT_THAT(status.ToString(), HasSubstr("out of memory"));
                self.all.Leave();
              }),
              FailsWith(ErrorKind::kSystem));
}

TEST_F(CudaPeersTest, ACallThatARankNeverMakesIsCancelled) {
  EXPECT_THAT(Run([](TestRank& self) {
                const auto data = self.Put(std::vector<float>(1000));
                self.all.AllReduce(self.queue, data.tensor(), ReduceOp::kSum);
                EXPECT_THAT(self.queue.Synchronize(), IsOk());
                if (self.rank() == 1) return;  // leaves
                self.all.AllReduce(self.queue, data.tensor(), ReduceOp::kSum);
                EXPECT_THAT(self.queue.Synchronize(), FailsWith(ErrorKind::kCancelled));
                self.all.Leave();
              }),
              FailsWith(ErrorKind::kCancelled));
}

}  // namespace
}  // namespace ckpt::trainer
