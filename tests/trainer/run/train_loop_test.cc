// What a run keeps when a step fails.
#include "trainer/run/train_loop.h"

#include <functional>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/verbs/training_state.h"
#include "core/io/forwarding_storage.h"
#include "core/io/memory_storage.h"
#include "formats/megatron/root.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/run/same_tokens.h"
#include "tests/trainer/run/small_session.h"
#include "trainer/data/batch_reader.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::IsOkAndHolds;
using testing::SameTokens;
using testing::SmallSessions;
using testing::TinySettings;
using testing::With;

const Path kLoopRoot = "/runs/a";

// What one rank cannot do.
struct Failure {
  int step = 0;            // fails for want of memory; 0: none
  Status evaluation = {};  // of an evaluation; OK: it can
};

class FailingTrainer final : public trainer::RankTrainer {
 public:
  FailingTrainer(trainer::RankTrainer& behind, Failure failure)
      : behind_(behind), left_(failure.step), evaluation_(std::move(failure.evaluation)) {}

  Status Enqueue(std::span<const trainer::HostMicroBatch> batches,
                 const Vote& asks_to_stop) override {
    if (--left_ == 0) return Error(ErrorKind::kSystem, "out of memory");
    return behind_.Enqueue(batches, asks_to_stop);
  }
  Result<trainer::StepReport> Collect() override { return behind_.Collect(); }
  int num_in_flight() const override { return behind_.num_in_flight(); }
  int max_in_flight() const override { return behind_.max_in_flight(); }
  Status InitializeWeights() override { return behind_.InitializeWeights(); }
  Status SetWeights(const trainer::FillRows& fill) override { return behind_.SetWeights(fill); }
  Status DrawWeights(const trainer::FillRows& fill) override { return behind_.DrawWeights(fill); }
  Status SetMoment(int moment, const trainer::FillRows& fill) override {
    return behind_.SetMoment(moment, fill);
  }
  Status ReadWeights(const trainer::PlaceRows& place) override {
    return behind_.ReadWeights(place);
  }
  Status ReadMoment(int moment, const trainer::PlaceRows& place) override {
    return behind_.ReadMoment(moment, place);
  }
  Status AwaitReads() override { return behind_.AwaitReads(); }
  Result<trainer::StepReport> ComputeGradients(
      std::span<const trainer::HostMicroBatch> batches) override {
    return behind_.ComputeGradients(batches);
  }
  Result<std::vector<float>> ReadGradient(const trainer::MainArrays& main) override {
    return behind_.ReadGradient(main);
  }
  Result<trainer::Evaluation> Evaluate(std::span<const trainer::HostMicroBatch> batches) override {
    CKPT_RETURN_IF_ERROR(evaluation_);
    return behind_.Evaluate(batches);
  }
  Result<std::vector<float>> Logits(const trainer::HostMicroBatch& batch) override {
    return behind_.Logits(batch);
  }
  void LeaveOutTransfers() override { behind_.LeaveOutTransfers(); }
  std::span<const double> micro_batch_losses() const override {
    return behind_.micro_batch_losses();
  }
  trainer::ParamStore& params() override { return behind_.params(); }
  trainer::Device& device() override { return behind_.device(); }
  trainer::Optimizer& optimizer() override { return behind_.optimizer(); }
  trainer::Model& model() override { return behind_.model(); }
  const trainer::TrainConfig& config() const override { return behind_.config(); }

 private:
  trainer::RankTrainer& behind_;
  int left_;
  const Status evaluation_;
};

Status NotFinite() { return Error(ErrorKind::kValueMismatch, "the loss is not finite"); }
Status OutOfMemory() { return Error(ErrorKind::kSystem, "out of memory"); }

// Cannot write the report of step 2.
class FullObserver final : public StepObserver {
 public:
  Status OnStep(const StepMetrics& metrics) override {
    return metrics.step == 2 ? Error(ErrorKind::kNoSpace, "no room for metrics") : OkStatus();
  }
  Status Sync() override { return OkStatus(); }
};

struct Around {
  bool evaluates = false;  // at the end, and every `eval_interval` steps
  int eval_interval = 100;
  StepObserver* observer = nullptr;
  int ranks = 1;  // the last of them fails
  bool async_save = false;
  bool save_proof = true;
  std::function<void(const StepMetrics& metrics)> on_step = {};
  double ideal_step_ms = 0;
};

// Saves at step 2.
Status TrainUntilItFails(Storage& storage, int train_iters, const Failure& failure,
                         const Around& around = {}) {
  CKPT_ASSIGN_OR_RETURN(
      auto sessions,
      SmallSessions::Create(storage,
                            With(TinySettings(), {{"save", kLoopRoot.string()},
                                                  {"save_interval", 2},
                                                  {"async_save", around.async_save}}),
                            around.ranks));
  return sessions.Run([&](RankSession& session, trainer::HostGroup& world) {
    CKPT_RETURN_IF_ERROR(session.Start().status());
    CKPT_ASSIGN_OR_RETURN(const auto batches,
                          trainer::BatchReader::Create(std::make_shared<SameTokens>(),
                                                       sessions.run().train, world.rank()));
    const bool fails = world.rank() == around.ranks - 1;
    FailingTrainer trainer(session.trainer(), fails ? failure : Failure());
    LoopSettings loop_settings = sessions.run().loop;
    loop_settings.train_iters = train_iters;
    loop_settings.eval_interval = around.eval_interval;
    CheckpointSettings settings;
    settings.save = kLoopRoot;
    settings.save_interval = 2;
    settings.save_proof = around.save_proof;
    TrainLoop loop({.settings = loop_settings,
                    .checkpoint_settings = settings,
                    .trainer = trainer,
                    .checkpoints = session.checkpoints(),
                    .world = world,
                    .batches = batches,
                    .valid = around.evaluates ? &batches : nullptr,
                    .observer = world.rank() == 0 ? around.observer : nullptr,
                    .is_stop_asked = [] { return false; },
                    .on_step = around.on_step,
                    .ideal_step_ms = around.ideal_step_ms},
                   {});
    return loop.Run().status();
  });
}

void ExpectSavedWithoutProof(Storage& storage) {
  OpenModelOptions padded;
  padded.with_vocabulary_padding = true;
  const auto saved = OpenTrainingState(storage, kLoopRoot / megatron::IterationName(2), padded);
  ASSERT_THAT(saved, IsOk());
  EXPECT_EQ(saved->run.iteration, 2);
  EXPECT_FALSE(saved->facts.next_loss);
}

TEST(TrainLoopTest, ACheckpointThatWaitsForItsProofIsWrittenWhenTheNextStepFails) {
  const auto storage = MakeMemoryStorage();
  const Status failure = TrainUntilItFails(*storage, 4, {.step = 3});
  ASSERT_THAT(failure, FailsWith(ErrorKind::kSystem));
  EXPECT_THAT(failure.ToString(), HasSubstr("training step 3"));
  ExpectSavedWithoutProof(*storage);
}

// Has no room for a tracker, once a checkpoint has its name.
class NoRoomForATracker final : public ForwardingStorage {
 public:
  using ForwardingStorage::ForwardingStorage;
  Status Rename(const Path& from, const Path& to) override {
    if (to.filename() == std::string(megatron::kTrackerName)) {
      return Error(ErrorKind::kNoSpace, "no space left on device").File(to.string());
    }
    return ForwardingStorage::Rename(from, to);
  }
};

TEST(TrainLoopTest, ACheckpointThatWasPublishedIsNamedWhenTheTrackerFails) {
  const auto storage = MakeMemoryStorage();
  NoRoomForATracker full(*storage);
  const Status failure = TrainUntilItFails(full, 2, {.evaluation = NotFinite()});
  ASSERT_THAT(failure, FailsWith(ErrorKind::kNoSpace));
  EXPECT_THAT(failure.ToString(), HasSubstr("iter_0000002 is complete"));
  EXPECT_THAT(failure.ToString(), HasSubstr("--load /runs/a"));
  ExpectSavedWithoutProof(*storage);
}

TEST(TrainLoopTest, TheLastCheckpointIsWrittenWhenItsProofFails) {
  const auto storage = MakeMemoryStorage();
  ASSERT_THAT(TrainUntilItFails(*storage, 2, {.evaluation = NotFinite()}), IsOk());
  ExpectSavedWithoutProof(*storage);
}

TEST(TrainLoopTest, TheLastCheckpointIsWrittenWhenTheLastEvaluationFails) {
  const auto storage = MakeMemoryStorage();
  const Status failure =
      TrainUntilItFails(*storage, 2, {.evaluation = NotFinite()}, {.evaluates = true});
  ASSERT_THAT(failure, FailsWith(ErrorKind::kValueMismatch));
  EXPECT_THAT(failure.ToString(), HasSubstr("evaluating after step 2"));
  ExpectSavedWithoutProof(*storage);
}

TEST(TrainLoopTest, TheLastCheckpointIsWrittenWhenItsMetricsCannotBe) {
  FullObserver observer;
  const auto storage = MakeMemoryStorage();
  EXPECT_THAT(TrainUntilItFails(*storage, 2, {.evaluation = NotFinite()}, {.observer = &observer}),
              FailsWith(ErrorKind::kNoSpace));
  ExpectSavedWithoutProof(*storage);

  // Before the end, a checkpoint would contain steps that the metrics lack.
  const auto in_between = MakeMemoryStorage();
  EXPECT_THAT(TrainUntilItFails(*in_between, 4, {}, {.observer = &observer}),
              FailsWith(ErrorKind::kNoSpace));
  const auto saved = megatron::ListIterations(*in_between, kLoopRoot);
  ASSERT_THAT(saved, IsOk());
  EXPECT_TRUE(saved->empty());
}

// One of three ranks fails, and the others wait for it in a call.
class LoneFailureTest : public ::testing::TestWithParam<bool> {
 protected:
  [[nodiscard]] Around Ranks() const { return {.ranks = 3, .async_save = GetParam()}; }
};
INSTANTIATE_TEST_SUITE_P(All, LoneFailureTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "InBackground" : "Waiting"; });

TEST_P(LoneFailureTest, TheCheckpointThatWaitsForItsProofIsWrittenWhenTheNextStepFails) {
  const auto storage = MakeMemoryStorage();
  const Status failure = TrainUntilItFails(*storage, 4, {.step = 3}, Ranks());
  ASSERT_THAT(failure, FailsWith(ErrorKind::kSystem));
  EXPECT_THAT(failure.ToString(), HasSubstr("training step 3"));
  EXPECT_EQ(failure.problems().size(), 1U) << failure.ToString();
  ExpectSavedWithoutProof(*storage);
}

TEST_P(LoneFailureTest, ACheckpointThatIsBeingWrittenIsCompleted) {
  const auto storage = MakeMemoryStorage();
  const Status failure = TrainUntilItFails(*storage, 6, {.step = 4}, Ranks());
  ASSERT_THAT(failure, FailsWith(ErrorKind::kSystem));
  EXPECT_THAT(failure.ToString(), HasSubstr("training step 4"));
  EXPECT_THAT(megatron::ListIterations(*storage, kLoopRoot),
              IsOkAndHolds(::testing::ElementsAre(2)));
}

TEST_P(LoneFailureTest, TheLastCheckpointIsWrittenWhenTheLastEvaluationFails) {
  const auto storage = MakeMemoryStorage();
  Around around = Ranks();
  around.evaluates = true;
  around.save_proof = false;
  const Status failure = TrainUntilItFails(*storage, 2, {.evaluation = OutOfMemory()}, around);
  ASSERT_THAT(failure, FailsWith(ErrorKind::kSystem));
  EXPECT_THAT(failure.ToString(), HasSubstr("evaluating after step 2"));
  ExpectSavedWithoutProof(*storage);
}

TEST_P(LoneFailureTest, ACheckpointThatWaitsForAnEvaluationIsWrittenWhenItFails) {
  const auto storage = MakeMemoryStorage();
  Around around = Ranks();
  around.evaluates = true;
  around.eval_interval = 2;
  const Status failure = TrainUntilItFails(*storage, 6, {.evaluation = OutOfMemory()}, around);
  ASSERT_THAT(failure, FailsWith(ErrorKind::kSystem));
  EXPECT_THAT(failure.ToString(), HasSubstr("evaluating after step 2"));
  ExpectSavedWithoutProof(*storage);
}

TEST_P(LoneFailureTest, TheLastCheckpointIsWrittenWhenItsProofFails) {
  const auto storage = MakeMemoryStorage();
  const Status failure = TrainUntilItFails(*storage, 2, {.evaluation = OutOfMemory()}, Ranks());
  ASSERT_THAT(failure, FailsWith(ErrorKind::kSystem));
  EXPECT_THAT(failure.ToString(), HasSubstr("proves the last checkpoint"));
  ExpectSavedWithoutProof(*storage);
}

TEST(TrainLoopTest, AStepTellsItsShareOfTheDevicesPeak) {
  std::vector<StepMetrics> steps;
  const auto storage = MakeMemoryStorage();
  const auto keep = [&](const StepMetrics& metrics) { steps.push_back(metrics); };
  ASSERT_THAT(TrainUntilItFails(*storage, 2, {}, {.on_step = keep, .ideal_step_ms = 0.25}), IsOk());
  ASSERT_EQ(steps.size(), 2U);
  for (const StepMetrics& step : steps) EXPECT_EQ(step.mfu, 0.25 / step.step_ms);
}

}  // namespace
}  // namespace ckpt::train
