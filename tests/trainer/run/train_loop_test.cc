// What a run keeps when a step fails.
#include "trainer/run/train_loop.h"

#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "converters/verbs/training_state.h"
#include "core/io/forwarding_storage.h"
#include "core/io/memory_storage.h"
#include "formats/megatron/root.h"
#include "tests/testing/matchers.h"
#include "tests/trainer/run/small_session.h"
#include "trainer/data/batch_reader.h"

namespace ckpt::train {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::SmallSessions;
using testing::TinySettings;
using testing::With;

const Path kRoot = "/runs/a";

// The same tokens for ever.
class Tokens final : public trainer::SequenceSource {
 public:
  std::int64_t seq_length() const override { return 4; }
  std::int64_t num_samples() const override { return 1; }
  Result<trainer::Sequence> Read(std::int64_t /*global_sample*/) const override {
    return trainer::Sequence{.tokens = {1, 2, 3, 4}, .labels = {2, 3, 4, 5}};
  }
};

// Trains until step `fail_at` (0: for ever), which fails for want of memory. No batch that it only
// evaluates has a finite loss.
class FailingTrainer final : public trainer::RankTrainer {
 public:
  FailingTrainer(trainer::RankTrainer& behind, int fail_at) : behind_(behind), left_(fail_at) {}

  Status Enqueue(std::span<const trainer::HostMicroBatch> batches,
                 const Vote& asks_to_stop) override {
    if (--left_ == 0) return Error(ErrorKind::kSystem, "out of memory");
    return behind_.Enqueue(batches, asks_to_stop);
  }
  Result<trainer::StepReport> Collect() override { return behind_.Collect(); }
  int num_in_flight() const override { return behind_.num_in_flight(); }
  int max_in_flight() const override { return behind_.max_in_flight(); }
  Status InitializeWeights() override { return behind_.InitializeWeights(); }
  Status SetWeights(const trainer::ParamStore::FillRows& fill) override {
    return behind_.SetWeights(fill);
  }
  Status SetMoment(int moment, const trainer::ParamStore::FillRows& fill) override {
    return behind_.SetMoment(moment, fill);
  }
  Status ReadWeights(const trainer::ParamStore::PlaceRows& place) override {
    return behind_.ReadWeights(place);
  }
  Status ReadMoment(int moment, const trainer::ParamStore::PlaceRows& place) override {
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
  Result<trainer::Evaluation> Evaluate(
      std::span<const trainer::HostMicroBatch> /*batches*/) override {
    return Error(ErrorKind::kValueMismatch, "the loss is not finite");
  }
  Result<std::vector<float>> Logits(const trainer::HostMicroBatch& batch) override {
    return behind_.Logits(batch);
  }
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
};

// Cannot write the report of step 2.
class FullObserver final : public StepObserver {
 public:
  Status OnStep(const StepMetrics& metrics) override {
    return metrics.step == 2 ? Error(ErrorKind::kNoSpace, "no room for metrics") : OkStatus();
  }
  Status Sync() override { return OkStatus(); }
};

struct Around {
  bool evaluates = false;  // at the end
  StepObserver* observer = nullptr;
};

// Runs a FailingTrainer that saves at step 2.
Status TrainUntilItFails(Storage& storage, int train_iters, int fail_at,
                         const Around& around = {}) {
  CKPT_ASSIGN_OR_RETURN(
      auto sessions,
      SmallSessions::Create(
          storage, With(TinySettings(), {{"save", kRoot.string()}, {"save_interval", 2}}), 1));
  return sessions.Run([&](RankSession& session, trainer::HostGroup& world) {
    CKPT_RETURN_IF_ERROR(session.Start().status());
    CKPT_ASSIGN_OR_RETURN(const auto batches,
                          trainer::BatchReader::Create(std::make_shared<Tokens>(),
                                                       sessions.run().train, world.rank()));
    FailingTrainer trainer(session.trainer(), fail_at);
    LoopSettings loop_settings = sessions.run().loop;
    loop_settings.train_iters = train_iters;
    CheckpointSettings settings;
    settings.save = kRoot;
    settings.save_interval = 2;
    TrainLoop loop({.settings = loop_settings,
                    .checkpoint_settings = settings,
                    .trainer = trainer,
                    .checkpoints = session.checkpoints(),
                    .world = world,
                    .batches = batches,
                    .valid = around.evaluates ? &batches : nullptr,
                    .observer = around.observer,
                    .is_stop_asked = [] { return false; }},
                   {});
    return loop.Run().status();
  });
}

void ExpectSavedWithoutProof(Storage& storage) {
  OpenModelOptions padded;
  padded.with_vocabulary_padding = true;
  const auto saved = OpenTrainingState(storage, kRoot / megatron::IterationName(2), padded);
  ASSERT_THAT(saved, IsOk());
  EXPECT_EQ(saved->run.iteration, 2);
  EXPECT_FALSE(saved->facts.next_loss);
}

TEST(TrainLoopTest, ACheckpointThatWaitsForItsProofIsWrittenWhenTheNextStepFails) {
  const auto storage = MakeMemoryStorage();
  const Status failure = TrainUntilItFails(*storage, 4, 3);
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
  const Status failure = TrainUntilItFails(full, 2, 0);
  ASSERT_THAT(failure, FailsWith(ErrorKind::kNoSpace));
  EXPECT_THAT(failure.ToString(), HasSubstr("iter_0000002 is complete"));
  EXPECT_THAT(failure.ToString(), HasSubstr("--load /runs/a"));
  ExpectSavedWithoutProof(*storage);
}

TEST(TrainLoopTest, TheLastCheckpointIsWrittenWhenItsProofFails) {
  const auto storage = MakeMemoryStorage();
  ASSERT_THAT(TrainUntilItFails(*storage, 2, 0), IsOk());
  ExpectSavedWithoutProof(*storage);
}

TEST(TrainLoopTest, TheLastCheckpointIsWrittenWhenTheLastEvaluationFails) {
  const auto storage = MakeMemoryStorage();
  const Status failure = TrainUntilItFails(*storage, 2, 0, {.evaluates = true});
  ASSERT_THAT(failure, FailsWith(ErrorKind::kValueMismatch));
  EXPECT_THAT(failure.ToString(), HasSubstr("evaluating after step 2"));
  ExpectSavedWithoutProof(*storage);
}

TEST(TrainLoopTest, TheLastCheckpointIsWrittenWhenItsMetricsCannotBe) {
  FullObserver observer;
  const auto storage = MakeMemoryStorage();
  EXPECT_THAT(TrainUntilItFails(*storage, 2, 0, {.observer = &observer}),
              FailsWith(ErrorKind::kNoSpace));
  ExpectSavedWithoutProof(*storage);

  // Before the end, a checkpoint would contain steps that the metrics lack.
  const auto in_between = MakeMemoryStorage();
  EXPECT_THAT(TrainUntilItFails(*in_between, 4, 0, {.observer = &observer}),
              FailsWith(ErrorKind::kNoSpace));
  const auto saved = megatron::ListIterations(*in_between, kRoot);
  ASSERT_THAT(saved, IsOk());
  EXPECT_TRUE(saved->empty());
}

}  // namespace
}  // namespace ckpt::train
