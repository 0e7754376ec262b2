// What ParamStore keeps of the gradients of several ranks.
#include "trainer/params/param_store.h"

#include <cmath>
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
constexpr int kUnits = 4;  // layers of equal size, but for one

std::int64_t ElemsOf(int unit) { return unit == 1 ? kElems / 2 : kElems; }

// The gradient of element i in a rank's micro-batch, a bfloat16. Sums of two need more bits.
float GradientAt(int rank, int micro_batch, std::int64_t i, int unit = 0) {
  return FromBf16Bits(ToBf16Bits(static_cast<float>(i + 1 + 1000 * unit) /
                                 static_cast<float>(3 + 64 * rank + micro_batch)));
}

// What rank 0 of `num_ranks` keeps after a step: its part of each layer's sum,
// and whether it has two terms.
struct Kept {
  std::vector<std::vector<float>> sums;
  bool has_two_terms = false;
  std::vector<bool> has_squares;
  std::vector<double> squares;  // of the rows of its part, of all layers; NaN where none are left
};

std::vector<float> ValuesOf(const GradientSum& gradient) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < gradient.num_elems(); ++i) {
    values.push_back(gradient.second
                         ? FromBf16Bits(gradient.first.as<const std::uint16_t>()[i]) +
                               FromBf16Bits(gradient.second.as<const std::uint16_t>()[i])
                         : gradient.first.as<const float>()[i]);
  }
  return values;
}

Result<Kept> KeptAfterStep(int num_ranks, int num_micro_batches, const Precision& precision,
                           const HostDeviceOptions& devices = {}) {
  std::vector<UnitSpec> units;
  for (int unit = 0; unit < kUnits; ++unit) {
    units.push_back({.name = "layer", .params = {{.name = "w", .shape = {ElemsOf(unit)}}}});
  }
  Kept kept;
  const Status ran = RunRanks(num_ranks, [&](HostGroup& world) -> Status {
    const Topology topology({.world_size = num_ranks, .sharding = Sharding::kOptimGrads},
                            world.rank());
    const auto device = MakeHostDevice(devices);
    const auto ops = MakeHostOps({});
    const auto compute = device->MakeQueue("compute");
    CKPT_ASSIGN_OR_RETURN(MeshComms comms, SplitWorld(world, topology, *device));
    CKPT_ASSIGN_OR_RETURN(
        const auto store,
        ParamStore::Create(
            units,
            PlanShards(units, topology,
                       {.precision = precision, .num_micro_batches = num_micro_batches}),
            comms, *ops, *device, *compute, {.poison_released = true}));
    std::int64_t rows = 0;
    for (const MainArrays& main : store->mains()) {
      for (const ParamPiece& piece : main.pieces) rows += piece.rows;
    }
    std::vector<double> squares(static_cast<std::size_t>(rows), std::nan(""));
    store->LeaveSquares({squares.data(), DType::kFloat64, {rows}});
    store->BeginStep(num_micro_batches);
    for (int micro_batch = 0; micro_batch < num_micro_batches; ++micro_batch) {
      store->BeginMicroBatch();
      for (int unit = kUnits - 1; unit >= 0; --unit) {
        const Tensor gradient = store->AcquireGradients(unit)[0].tensor;
        for (std::int64_t i = 0; i < ElemsOf(unit); ++i) {
          gradient.as<std::uint16_t>()[i] =
              ToBf16Bits(GradientAt(world.rank(), micro_batch, i, unit));
        }
        store->ReduceGradients(unit);
      }
    }
    store->FinishGradients();
    CKPT_RETURN_IF_ERROR(store->Synchronize());
    if (world.rank() == 0) {
      for (const MainArrays& main : store->mains()) kept.sums.push_back(ValuesOf(main.gradient));
      kept.has_two_terms = static_cast<bool>(store->mains().front().gradient.second);
      for (const MainArrays& main : store->mains()) kept.has_squares.push_back(main.has_squares);
      kept.squares = squares;
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
  ASSERT_EQ(kept->sums[0].size(), kElems / 2);
  for (std::int64_t i = 0; i < kElems / 2; ++i) {
    EXPECT_EQ(kept->sums[0][static_cast<std::size_t>(i)],
              GradientAt(0, 0, i) + GradientAt(1, 0, i));
  }
}

// A term lands in the half that a layer before has sent away, and nothing else is there.
TEST(ParamStoreTest, EachLayersTermsAreItsOwn) {
  const Result<Kept> kept = KeptAfterStep(2, 1, kNarrowWire);
  ASSERT_THAT(kept, IsOk());
  ASSERT_EQ(kept->sums.size(), kUnits);
  for (int unit = 0; unit < kUnits; ++unit) {
    const std::vector<float>& sum = kept->sums[static_cast<std::size_t>(unit)];
    ASSERT_EQ(sum.size(), ElemsOf(unit) / 2);
    for (std::int64_t i = 0; i < ElemsOf(unit) / 2; ++i) {
      EXPECT_EQ(sum[static_cast<std::size_t>(i)],
                GradientAt(0, 0, i, unit) + GradientAt(1, 0, i, unit));
    }
  }
}

// The backward pass reduces the first layer last. A layer is a vector: its rows are its elements.
TEST(ParamStoreTest, TheLastReductionLeavesTheSquaresOfRows) {
  const Result<Kept> read = KeptAfterStep(4, 2, kNarrowWire, {.reads_peers = true});
  ASSERT_THAT(read, IsOk());
  EXPECT_THAT(read->has_squares, ::testing::ElementsAre(true, false, false, false));
  for (std::size_t i = 0; i < read->squares.size(); ++i) {
    if (i >= read->sums[0].size()) {
      EXPECT_THAT(read->squares[i], ::testing::IsNan());
      continue;
    }
    const double sum = read->sums[0][i];
    EXPECT_EQ(read->squares[i], sum * sum);
  }

  const Result<Kept> met = KeptAfterStep(4, 2, kNarrowWire);
  ASSERT_THAT(met, IsOk());
  EXPECT_THAT(met->has_squares, ::testing::Each(false));
  EXPECT_THAT(met->squares, ::testing::Each(::testing::IsNan()));
}

TEST(ParamStoreTest, MoreThanTwoTermsAreAddedAtOnce) {
  const Result<Kept> two_batches = KeptAfterStep(2, 2, kNarrowWire);
  ASSERT_THAT(two_batches, IsOk());
  EXPECT_FALSE(two_batches->has_two_terms);
  for (std::int64_t i = 0; i < kElems / 2; ++i) {
    EXPECT_EQ(
        two_batches->sums[0][static_cast<std::size_t>(i)],
        (GradientAt(0, 0, i) + GradientAt(1, 0, i)) + (GradientAt(0, 1, i) + GradientAt(1, 1, i)));
  }
  const Result<Kept> four_ranks = KeptAfterStep(4, 1, kNarrowWire);
  ASSERT_THAT(four_ranks, IsOk());
  EXPECT_FALSE(four_ranks->has_two_terms);
  ASSERT_EQ(four_ranks->sums[0].size(), kElems / 4);
  for (std::int64_t i = 0; i < kElems / 4; ++i) {
    EXPECT_EQ(
        four_ranks->sums[0][static_cast<std::size_t>(i)],
        (GradientAt(0, 0, i) + GradientAt(1, 0, i)) + (GradientAt(2, 0, i) + GradientAt(3, 0, i)));
  }
}

}  // namespace
}  // namespace ckpt::trainer
