#include "trainer/explain/step_simulation.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::train {
namespace {

// An embedding, three layers and a head. Each layer computes 10 + 20 ms.
StepWork ThreeLayers(double gather, double reduce) {
  StepWork work = {.units = std::vector<UnitWork>(5), .head = 6, .update = 4};
  for (UnitWork& unit : work.units) {
    unit.gather = gather;
    unit.reduce = reduce;
    unit.forward = 10;
    unit.backward = 20;
  }
  work.units.front().is_end = work.units.back().is_end = true;
  work.units.front().forward = work.units.front().backward = 1;
  work.units.back().forward = work.units.back().backward = 0;
  work.overlaps_gathers = work.overlaps_reduces = true;
  return work;
}

constexpr double kComputing = 1 + 3 * 30 + 1 + 6 + 4;

TEST(StepSimulationTest, WithoutCommunicationAStepIsItsComputing) {
  const StepTime step = SimulateStep(ThreeLayers(0, 0));
  EXPECT_DOUBLE_EQ(step.total(), kComputing);
  EXPECT_EQ(step.exposed(), 0);
}

// Before the first computation there is the embedding; then the first layer, which its short
// computing does not hide. The last reduction follows the embedding's backward.
TEST(StepSimulationTest, CommunicationThatComputingHidesLeavesOnlyTheEnds) {
  const StepTime step = SimulateStep(ThreeLayers(2, 3));
  EXPECT_DOUBLE_EQ(step.compute, kComputing);
  // The embedding and, queued behind it, the first layer, less the embedding's computing.
  EXPECT_DOUBLE_EQ(step.gather_wait, 2 + 2 - 1);
  // The first layer's reduction, 1 ms of which is hidden, and the embedding's.
  EXPECT_DOUBLE_EQ(step.reduce_wait, 3 - 1 + 3);
}

TEST(StepSimulationTest, WithoutOverlapEveryTransferIsWaitedFor) {
  StepWork work = ThreeLayers(2, 3);
  work.overlaps_gathers = work.overlaps_reduces = false;
  const StepTime step = SimulateStep(work);
  EXPECT_DOUBLE_EQ(step.compute, kComputing);
  // Two ends, three layers in forward; of these the last two stay in their slots for the backward.
  EXPECT_DOUBLE_EQ(step.gather_wait, 2 * (5 + 1));
  EXPECT_DOUBLE_EQ(step.reduce_wait, 3 * 5);
}

TEST(StepSimulationTest, AStepOfSlowLinksTakesWhatItTransfers) {
  constexpr double kSlow = 1000;
  const StepTime step = SimulateStep(ThreeLayers(kSlow, 0));
  EXPECT_GE(step.total(), 6 * kSlow);
  EXPECT_LE(step.total(), 6 * kSlow + kComputing);
}

TEST(StepSimulationTest, NothingGetsFasterBySlowerLinks) {
  for (const int slots : {2, 3, 5}) {
    for (const int micro_batches : {1, 3}) {
      double before = 0;
      for (const double ms : {0.0, 0.5, 1.0, 5.0, 9.0, 10.0, 11.0, 30.0, 100.0}) {
        StepWork work = ThreeLayers(ms, 1.5 * ms);
        work.slots.weight_slots = slots;
        work.slots.prefetch_depth = slots - 1;
        work.micro_batches = micro_batches;
        for (UnitWork& unit : work.units) {
          unit.refresh_outer = unit.late_reduce = ms / 4;
          unit.exchange_forward = unit.exchange_backward = unit.is_end ? 0 : ms / 8;
        }
        const StepTime step = SimulateStep(work);
        EXPECT_GE(step.total(), before) << slots << " slots, " << ms << " ms";
        EXPECT_GE(std::min({step.gather_wait, step.reduce_wait, step.exchange}), 0);
        before = step.total();
      }
    }
  }
}

TEST(StepSimulationTest, ALaterMicroBatchFindsWhatASlotKeeps) {
  StepWork work = ThreeLayers(2, 0);
  work.overlaps_gathers = false;
  work.slots.weight_slots = 3;  // all layers
  work.micro_batches = 2;
  EXPECT_DOUBLE_EQ(SimulateStep(work).gather_wait, 2 * 5);
}

}  // namespace
}  // namespace ckpt::train
