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
  CKPT_ASSIGN_OR_RETURN(const BatchReader batches,
                        BatchReader::Create(input.data, run.train, world.rank()));
  std::optional<BatchReader> valid;
  if (input.valid != nullptr) {
    CKPT_ASSIGN_OR_RETURN(valid, BatchReader::Create(input.valid, run.train, world.rank()));
  }
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<RankSession> session,
                        RankSession::Create(input.session, world, notice));

  TrainedRank trained;
  RunProgress start;
  if (run.goes_on() && checkpoints.prove) {
    CKPT_ASSIGN_OR_RETURN(Start proved, ProvedStart(*session, batches, notice, world));
    trained.difference = std::move(proved.difference);
    start = proved.progress;
  } else {
    CKPT_ASSIGN_OR_RETURN(start, session->Start());
  }
  CKPT_RETURN_IF_ERROR(world.Barrier());
  if (is_first) input.on_started();
  if (!trained.difference.ok()) return trained;

  Status begun;
  if (is_first) {
    begun = input.log.BeginFiles({.run_id = run.run_id, .last_step = start.iteration});
  }
  CKPT_RETURN_IF_ERROR(AgreeOn(world, begun));
  std::optional<StepLedger> ledger;
  if (input.wants_ledger && session->recorded() != nullptr) {
    // A device that keeps no record says so at once.
    CKPT_RETURN_IF_ERROR(session->trainer().device().RecordWork().status());
    ledger.emplace(session->trainer(), *session->recorded());
  }
  TrainLoop loop({.settings = run.loop,
                  .checkpoint_settings = checkpoints,
                  .trainer = session->trainer(),
                  .checkpoints = session->checkpoints(),
                  .world = world,
                  .batches = batches,
                  .valid = valid ? &*valid : nullptr,
                  .observer = is_first ? &input.log : nullptr,
                  .is_stop_asked = input.is_stop_asked,
                  .on_step =
                      [&](const StepMetrics& /*metrics*/) {
                        if (ledger) ledger->OnStep();
                      },
                  .ideal_step_ms = session->ideal_step_ms()},
                 start);
  CKPT_ASSIGN_OR_RETURN(trained.end, loop.Run());
  if (input.wants_digest) {
    CKPT_ASSIGN_OR_RETURN(trained.state_digest,
                          session->checkpoints().StateDigest(trained.end.progress));
  }
  if (ledger) {
    CKPT_ASSIGN_OR_RETURN(trained.ledger, ledger->Finish());
  }
  return trained;
}

}  // namespace ckpt::train
