#include "tools/ckpt-train/rank_train.h"

#include <utility>

#include <fmt/format.h>

#include "trainer/comm/agreement.h"
#include "trainer/data/batch_reader.h"
#include "trainer/run/proof.h"
#include "trainer/run/save_folder.h"
#include "trainer/run/step_ledger.h"

namespace ckpt::train {
namespace {

using trainer::BatchReader;

// Where the run starts; or what `prove` found to differ.
struct Start {
  RunProgress progress;
  Status difference;
};

Result<Start> ProvedStart(RankSession& session, const BatchReader& batches, const Notice& notice,
                          trainer::HostGroup& world) {
  Start start;
  Result<RunProgress> loaded = session.Start();
  const bool differs = !loaded.ok() && loaded.status().kind() == ErrorKind::kValueMismatch;
  if (!loaded.ok() && !differs) return std::move(loaded).status();
  CKPT_ASSIGN_OR_RETURN(const bool is_equal, trainer::HoldsEverywhere(world, !differs));
  if (!is_equal) {
    start.difference =
        differs ? std::move(loaded).status()
                : Error(ErrorKind::kValueMismatch, "the loaded state differs on another rank");
    return start;
  }
  start.progress = *loaded;
  if (!start.progress.next_loss) {
    notice("the checkpoint has no stored loss to compare with");
    return start;
  }
  CKPT_ASSIGN_OR_RETURN(const Proof proof,
                        ComputeProof(start.progress, batches, session.trainer()));
  notice(proof.Text(start.progress.iteration));
  if (proof.holds()) return start;
  start.difference =
      Error(ErrorKind::kValueMismatch, "the loss after loading differs from the stored loss")
          .Expected(fmt::format("{:.9g} within {:g}", proof.expected, proof.tolerance))
          .Actual(fmt::format("{:.9g}", proof.actual))
          .Hint("data, batch and seq_length must be those of the run that saved");
  return start;
}

// As ProvedStart, if the run is to be proved. Otherwise nothing differs.
Result<Start> StartRun(const TrainInput& input, RankSession& session, const BatchReader& batches,
                       const Notice& notice, trainer::HostGroup& world) {
  if (input.session.run.goes_on() && input.session.checkpoints.prove) {
    return ProvedStart(session, batches, notice, world);
  }
  CKPT_ASSIGN_OR_RETURN(const RunProgress progress, session.Start());
  return Start{.progress = progress, .difference = {}};
}

// A rank's share of the data.
struct RankData {
  BatchReader batches;
  std::optional<BatchReader> valid;
};

Result<RankData> OpenData(const TrainInput& input, int rank) {
  const trainer::TrainConfig& config = input.session.run.train;
  CKPT_ASSIGN_OR_RETURN(BatchReader batches, BatchReader::Create(input.data, config, rank));
  RankData data = {.batches = std::move(batches), .valid = {}};
  if (input.valid != nullptr) {
    CKPT_ASSIGN_OR_RETURN(data.valid, BatchReader::Create(input.valid, config, rank));
  }
  return data;
}

// Makes no ledger where the session does not record.
Status BeginLedger(const TrainInput& input, RankSession& session,
                   std::optional<StepLedger>& ledger) {
  if (!input.wants_ledger || session.recorded() == nullptr) return OkStatus();
  // A device that keeps no record says so at once.
  CKPT_RETURN_IF_ERROR(session.trainer().device().RecordWork().status());
  ledger.emplace(session.trainer(), *session.recorded());
  return OkStatus();
}

// The steps from `start` on, and what is to be known of the state and of the time afterwards.
Result<TrainedRank> TrainFrom(const RunProgress& start, const TrainInput& input,
                              RankSession& session, const RankData& data,
                              trainer::HostGroup& world) {
  std::optional<StepLedger> ledger;
  CKPT_RETURN_IF_ERROR(BeginLedger(input, session, ledger));
  TrainLoop loop({.settings = input.session.run.loop,
                  .checkpoint_settings = input.session.checkpoints,
                  .trainer = session.trainer(),
                  .checkpoints = session.checkpoints(),
                  .world = world,
                  .batches = data.batches,
                  .valid = data.valid ? &*data.valid : nullptr,
                  .observer = world.rank() == 0 ? &input.log : nullptr,
                  .is_stop_asked = input.is_stop_asked,
                  .on_step =
                      [&](const StepMetrics& /*metrics*/) {
                        if (ledger) ledger->OnStep();
                      },
                  .ideal_step_ms = session.ideal_step_ms()},
                 start);
  TrainedRank trained;
  CKPT_ASSIGN_OR_RETURN(trained.end, loop.Run());
  if (input.wants_digest) {
    CKPT_ASSIGN_OR_RETURN(trained.state_digest,
                          session.checkpoints().StateDigest(trained.end.progress));
  }
  if (ledger) {
    CKPT_ASSIGN_OR_RETURN(trained.ledger, ledger->Finish());
  }
  return trained;
}

}  // namespace

Result<TrainedRank> TrainOnRank(const TrainInput& input, trainer::HostGroup& world) {
  const RunConfig& run = input.session.run;
  const CheckpointSettings& checkpoints = input.session.checkpoints;
  const bool is_first = world.rank() == 0;
  const Notice notice = [&](const std::string& text) {
    if (is_first) input.log.Say(text);
  };
  const bool goes_on = run.goes_on() && !checkpoints.finetune;
  CKPT_ASSIGN_OR_RETURN(const SaveFolder folder,
                        SaveFolder::Take(input.session.storage, checkpoints, goes_on, world));
  CKPT_RETURN_IF_ERROR(
      AgreeOn(world, is_first ? input.log.TakeFiles(input.session.storage) : OkStatus()));
  CKPT_ASSIGN_OR_RETURN(const RankData data, OpenData(input, world.rank()));
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<RankSession> session,
                        RankSession::Create(input.session, world, notice));

  CKPT_ASSIGN_OR_RETURN(Start start, StartRun(input, *session, data.batches, notice, world));
  CKPT_RETURN_IF_ERROR(world.Barrier());
  if (is_first) input.on_started();
  if (!start.difference.ok()) {
    TrainedRank trained;
    trained.difference = std::move(start.difference);
    return trained;
  }
  Status begun;
  if (is_first) {
    begun = input.log.BeginFiles({.run_id = run.run_id, .last_step = start.progress.iteration});
  }
  CKPT_RETURN_IF_ERROR(AgreeOn(world, begun));
  return TrainFrom(start.progress, input, *session, data, world);
}

}  // namespace ckpt::train
