// Steps that are enqueued before the one in front of them has ended.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <limits>
#include <list>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/step/around_device.h"
#include "tests/trainer/step/trained_run.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/ops/cpu/host_ops.h"

namespace ckpt {
namespace {

using testing::Around;
using testing::AroundDevice;
using testing::FailsWith;
using testing::IsOk;
using testing::OnMesh;
using testing::SmallDeepSeek;
using testing::SmallRun;
using namespace trainer;  // NOLINT(google-build-using-namespace)

constexpr std::int32_t kPoison = 7;

HostMicroBatch BatchOf(std::int32_t token) {
  return {.tokens = {1, token, 3}, .labels = {2, 3, 4}, .batch = 1, .seq = 3};
}

// Weights as they are drawn, but the poison's embedding is `value`.
Status DrawWeights(RankTrainer& trainer, float value) {
  CKPT_RETURN_IF_ERROR(trainer.InitializeWeights());
  for (const MainArrays& main : trainer.params().mains()) {
    for (const ParamPiece& piece : main.pieces) {
      if (piece.spec->name != "embedding.word_embeddings.weight") continue;
      const std::int64_t row = kPoison - piece.row_begin;
      if (row < 0 || row >= piece.rows) continue;
      const Tensor poisoned =
          main.weights.Rows(piece.main_offset + row * piece.row_elems, piece.row_elems);
      std::fill_n(poisoned.as<float>(), piece.row_elems, value);
    }
  }
  const auto num_units = static_cast<int>(trainer.params().plan().units.size());
  for (int unit = 0; unit < num_units; ++unit) trainer.params().WeightsChanged(unit);
  return trainer.params().Synchronize();
}

std::vector<float> WeightsOf(RankTrainer& trainer) {
  std::vector<float> weights;
  for (const MainArrays& main : trainer.params().mains()) {
    const auto* values = main.weights.as<const float>();
    weights.insert(weights.end(), values, values + main.weights.num_elems());
  }
  return weights;
}

// Runs `body` on the ranks of a run whose queues have threads, with a poisoned embedding.
Status RunPoisoned(const std::function<Status(RankTrainer&)>& body) {
  TrainConfig config = OnMesh(SmallRun(SmallDeepSeek(), 2), {.world_size = 2});
  return RunRanks(config.mesh.world_size, [&](HostGroup& world) -> Status {
    const auto device = MakeHostDevice({.queues = QueueMode::kThreads, .delay_seed = 3});
    const auto ops = MakeHostOps({});
    CKPT_ASSIGN_OR_RETURN(
        const auto trainer,
        RankTrainer::Create(config, world, {.device = device.get(), .ops = ops.get()}));
    CKPT_RETURN_IF_ERROR(DrawWeights(*trainer, std::numeric_limits<float>::quiet_NaN()));
    return body(*trainer);
  });
}

TEST(StepsInFlightTest, AreTheSameAsOneAfterTheOther) {
  const Status status = RunPoisoned([](RankTrainer& trainer) -> Status {
    EXPECT_EQ(trainer.max_in_flight(), 2);
    const std::vector<float> start = WeightsOf(trainer);
    std::vector<double> want;
    for (const std::int32_t token : {1, 2, 3, 4}) {
      const HostMicroBatch batch = BatchOf(token);
      CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer.Step({&batch, 1}));
      want.push_back(report.loss);
    }
    const std::vector<float> trained = WeightsOf(trainer);

    CKPT_RETURN_IF_ERROR(DrawWeights(trainer, std::numeric_limits<float>::quiet_NaN()));
    for (int moment = 0; moment < 2; ++moment) {
      CKPT_RETURN_IF_ERROR(trainer.SetMoment(
          moment, [](const ParamSpec&, std::int64_t, std::int64_t, std::span<float> values) {
            std::ranges::fill(values, 0.0F);
            return OkStatus();
          }));
    }
    for (const ReplicatedBuffer& buffer : trainer.model().buffers()) {
      std::fill_n(buffer.values.as<float>(), buffer.values.num_elems(), 0.0F);
    }
    trainer.optimizer().set_steps(0);
    std::vector<double> have;
    const auto collect = [&]() -> Status {
      CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer.Collect());
      EXPECT_EQ(report.step, static_cast<std::int64_t>(have.size()) + 1);
      have.push_back(report.loss);
      return OkStatus();
    };
    for (const std::int32_t token : {1, 2, 3, 4}) {
      const HostMicroBatch batch = BatchOf(token);
      CKPT_RETURN_IF_ERROR(trainer.Enqueue({&batch, 1}, {}));
      if (trainer.num_in_flight() == 2) CKPT_RETURN_IF_ERROR(collect());
    }
    CKPT_RETURN_IF_ERROR(collect());
    CKPT_RETURN_IF_ERROR(trainer.params().Synchronize());
    EXPECT_EQ(have, want);
    EXPECT_EQ(
        std::memcmp(trained.data(), WeightsOf(trainer).data(), trained.size() * sizeof(float)), 0);
    EXPECT_NE(std::memcmp(trained.data(), start.data(), trained.size() * sizeof(float)), 0);
    return OkStatus();
  });
  EXPECT_THAT(status, IsOk());
}

TEST(StepsInFlightTest, AStepBehindAFailedOneChangesNothing) {
  const Status status = RunPoisoned([](RankTrainer& trainer) -> Status {
    const HostMicroBatch good = BatchOf(1);
    const HostMicroBatch bad = BatchOf(kPoison);
    CKPT_RETURN_IF_ERROR(trainer.Step({&good, 1}).status());
    CKPT_RETURN_IF_ERROR(trainer.params().Synchronize());
    const std::vector<float> weights = WeightsOf(trainer);
    const Tensor& bias = trainer.model().buffers().front().values;
    const std::vector<float> biases(bias.as<float>(), bias.as<float>() + bias.num_elems());

    CKPT_RETURN_IF_ERROR(trainer.Enqueue({&bad, 1}, {}));
    CKPT_RETURN_IF_ERROR(trainer.Enqueue({&good, 1}, {}));
    EXPECT_THAT(trainer.Collect().status(), FailsWith(ErrorKind::kValueMismatch));
    EXPECT_EQ(trainer.num_in_flight(), 0);
    CKPT_RETURN_IF_ERROR(trainer.params().Synchronize());
    EXPECT_EQ(trainer.optimizer().steps(), 1);
    EXPECT_EQ(
        std::memcmp(weights.data(), WeightsOf(trainer).data(), weights.size() * sizeof(float)), 0);
    EXPECT_TRUE(std::ranges::equal(biases, std::span(bias.as<float>(), biases.size())));

    // The failure is over: the next step counts.
    CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer.Step({&good, 1}));
    EXPECT_EQ(report.step, 2);
    return OkStatus();
  });
  EXPECT_THAT(status, IsOk());
}

TEST(StepsInFlightTest, ACopyOfTheStateHasTheValuesOfItsTime) {
  const Around slow = [](std::string_view queue, const std::function<Status()>& work) {
    if (queue == "copy") std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return work();
  };
  const TrainConfig config = OnMesh(SmallRun(SmallDeepSeek(), 2), {.world_size = 2});
  const Status status = RunRanks(config.mesh.world_size, [&](HostGroup& world) -> Status {
    AroundDevice device(MakeHostDevice({.queues = QueueMode::kThreads}), slow);
    const auto ops = MakeHostOps({});
    CKPT_ASSIGN_OR_RETURN(
        const auto trainer,
        RankTrainer::Create(config, world, {.device = &device, .ops = ops.get()}));
    CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());
    const HostMicroBatch batch = BatchOf(1);
    CKPT_RETURN_IF_ERROR(trainer->Step({&batch, 1}).status());
    // All elements of a part, in the order of the pieces.
    std::vector<std::vector<float>> parts;
    const auto read = [&](bool waits) -> Status {
      std::list<std::vector<float>> pieces;
      const auto place = [&](const ParamPiece& piece) {
        pieces.emplace_back(static_cast<std::size_t>(piece.rows * piece.row_elems));
        return std::as_writable_bytes(std::span(pieces.back()));
      };
      CKPT_RETURN_IF_ERROR(trainer->ReadWeights(place));
      CKPT_RETURN_IF_ERROR(trainer->ReadMoment(1, place));
      if (!waits) CKPT_RETURN_IF_ERROR(trainer->Enqueue({&batch, 1}, {}));
      CKPT_RETURN_IF_ERROR(trainer->AwaitReads());
      std::vector<float>& all = parts.emplace_back();
      for (const std::vector<float>& piece : pieces) {
        all.insert(all.end(), piece.begin(), piece.end());
      }
      return OkStatus();
    };
    CKPT_RETURN_IF_ERROR(read(true));
    CKPT_RETURN_IF_ERROR(read(false));
    CKPT_RETURN_IF_ERROR(trainer->Collect().status());
    CKPT_RETURN_IF_ERROR(read(true));
    EXPECT_TRUE(parts[1] == parts[0]);
    EXPECT_FALSE(parts[2] == parts[0]);
    return OkStatus();
  });
  EXPECT_THAT(status, IsOk());
}

TEST(StepsInFlightTest, AVoteOfOneRankReachesAll) {
  std::mutex mutex;
  int rank = 0;
  const Status status = RunPoisoned([&](RankTrainer& trainer) -> Status {
    bool votes = false;
    {
      const std::lock_guard lock(mutex);
      votes = rank++ == 0;
    }
    const HostMicroBatch batch = BatchOf(1);
    CKPT_RETURN_IF_ERROR(trainer.Enqueue({&batch, 1}, [] { return false; }));
    CKPT_RETURN_IF_ERROR(trainer.Enqueue({&batch, 1}, [votes] { return votes; }));
    CKPT_ASSIGN_OR_RETURN(const StepReport first, trainer.Collect());
    CKPT_ASSIGN_OR_RETURN(const StepReport second, trainer.Collect());
    EXPECT_FALSE(first.is_stop_asked);
    EXPECT_TRUE(second.is_stop_asked);
    return OkStatus();
  });
  EXPECT_THAT(status, IsOk());
}

}  // namespace
}  // namespace ckpt
