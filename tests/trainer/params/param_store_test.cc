// What ParamStore keeps of the gradients of several ranks.
#include "trainer/params/param_store.h"

#include <cstdint>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "core/tensor/cast.h"
#include "tests/testing/matchers.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt::trainer {
namespace {

using ckpt::testing::IsOk;

constexpr std::int64_t kElems = 256;

// The gradient of element i in a rank's micro-batch, a bfloat16. Sums of two need more bits.
float GradientAt(int rank, int micro_batch, std::int64_t i) {
  return FromBf16Bits(
      ToBf16Bits(static_cast<float>(i + 1) / static_cast<float>(3 + 64 * rank + micro_batch)));
}

// What rank 0 of `num_ranks` keeps after a step: its part of the sum, and whether it has two terms.
struct Kept {
  std::vector<float> sum;
  bool has_two_terms = false;
};

Result<Kept> KeptAfterStep(int num_ranks, int num_micro_batches, const Precision& precision) {
  const std::vector<UnitSpec> units = {
      {.name = "layer", .params = {{.name = "w", .shape = {kElems}}}}};
  Kept kept;
  const Status ran = RunRanks(num_ranks, [&](HostGroup& world) -> Status {
    const Topology topology({.world_size = num_ranks, .sharding = Sharding::kOptimGrads},
                            world.rank());
    const auto device = MakeHostDevice({});
    const auto ops = MakeHostOps({});
    const auto compute = device->MakeQueue("compute");
    CKPT_ASSIGN_OR_RETURN(MeshComms comms, SplitWorld(world, topology, *device));
    CKPT_ASSIGN_OR_RETURN(const auto store,
                          ParamStore::Create(units, PlanShards(units, topology, precision, {}),
                                             comms, *ops, *device, *compute, {}));
    store->BeginStep(num_micro_batches);
    for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
      store->BeginMicroBatch();
      const Tensor gradient = store->AcquireGradients(0)[0].tensor;
      for (std::int64_t i = 0; i < kElems; ++i) {
        gradient.as<std::uint16_t>()[i] = ToBf16Bits(GradientAt(world.rank(), micro_batch, i));
      }
      store->ReduceGradients(0);
    }
    store->FinishGradients();
    CKPT_RETURN_IF_ERROR(store->Synchronize());
    const GradientSum& of_part = store->mains().front().gradient;
    if (world.rank() == 0) {
      kept.has_two_terms = static_cast<bool>(of_part.second);
      for (std::int64_t i = 0; i < of_part.num_elems(); ++i) {
        kept.sum.push_back(kept.has_two_terms
                               ? FromBf16Bits(of_part.first.as<const std::uint16_t>()[i]) +
                                     FromBf16Bits(of_part.second.as<const std::uint16_t>()[i])
                               : of_part.first.as<const float>()[i]);
      }
    }
    comms.Leave();
    return OkStatus();
  });
  if (!ran.ok()) return ran;
  return kept;
}

constexpr Precision kNarrowWire = {.compute = DType::kBfloat16, .grad_comm = DType::kBfloat16};

TEST(ParamStoreTest, TheGradientsOfTwoRanksStayTwoTermsUntilTheyAreRead) {
  const Result<Kept> kept = KeptAfterStep(2, 1, kNarrowWire);
  ASSERT_THAT(kept, IsOk());
  EXPECT_TRUE(kept->has_two_terms);
  ASSERT_EQ(kept->sum.size(), kElems / 2);
  for (std::int64_t i = 0; i < kElems / 2; ++i) {
    EXPECT_EQ(kept->sum[static_cast<std::size_t>(i)], GradientAt(0, 0, i) + GradientAt(1, 0, i));
  }
}

TEST(ParamStoreTest, MoreThanTwoTermsAreAddedAtOnce) {
  const Result<Kept> two_batches = KeptAfterStep(2, 2, kNarrowWire);
  ASSERT_THAT(two_batches, IsOk());
  EXPECT_FALSE(two_batches->has_two_terms);
  for (std::int64_t i = 0; i < kElems / 2; ++i) {
    EXPECT_EQ(
        two_batches->sum[static_cast<std::size_t>(i)],
        (GradientAt(0, 0, i) + GradientAt(1, 0, i)) + (GradientAt(0, 1, i) + GradientAt(1, 1, i)));
  }
  const Result<Kept> four_ranks = KeptAfterStep(4, 1, kNarrowWire);
  ASSERT_THAT(four_ranks, IsOk());
  EXPECT_FALSE(four_ranks->has_two_terms);
  ASSERT_EQ(four_ranks->sum.size(), kElems / 4);
  for (std::int64_t i = 0; i < kElems / 4; ++i) {
    EXPECT_EQ(
        four_ranks->sum[static_cast<std::size_t>(i)],
        (GradientAt(0, 0, i) + GradientAt(1, 0, i)) + (GradientAt(2, 0, i) + GradientAt(3, 0, i)));
  }
}

}  // namespace
}  // namespace ckpt::trainer
