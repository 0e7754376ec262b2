#include "tools/ckpt-train/cmd_train.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/io/shared_reads.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-train/rank_train.h"
#include "tools/ckpt-train/run_log.h"
#include "tools/ckpt-train/run_setup.h"
#include "tools/cli/error_report.h"
#include "tools/cli/stop_on_signal.h"
#include "trainer/comm/launcher.h"
#include "trainer/optim/schedule.h"
#include "trainer/run/data_position.h"
#include "trainer/run/data_settings.h"
#include "trainer/run/format_settings.h"
#include "trainer/run/resolve_together.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {
namespace {

using cli::ExitCode;

std::string StartText(const RunConfig& run, const CheckpointSettings& checkpoints) {
  if (run.goes_on() || checkpoints.load.empty()) return "";
  return fmt::format("no checkpoint in {}: starting from {}", checkpoints.load.string(),
                     run.init_from ? run.init_from->string() : "random weights");
}

// Lengths that are legal and go past the run, as those of a short trial of a long one do.
std::vector<std::string> LengthTexts(const RunConfig& run) {
  std::vector<std::string> texts;
  const std::int64_t steps = run.loop.train_iters;
  const std::int64_t warmup = run.train.schedule.warmup_steps;
  if (warmup > steps) {
    texts.push_back(fmt::format(
        "lr_warmup_iters={} is longer than the run of {} steps: the learning rate ends at {:g}",
        warmup, steps, trainer::LearningRate(run.train.schedule, steps)));
  }
  if (run.loop.exit_interval > steps) {
    texts.push_back(fmt::format("exit_interval={} is past the run of {} steps: it ends nothing",
                                run.loop.exit_interval, steps));
  }
  return texts;
}

std::string EndText(const LoopEnd& end, const CheckpointSettings& checkpoints) {
  const std::int64_t step = end.progress.iteration;
  const std::string saved = checkpoints.save.empty()
                                ? "nothing saved: there is no setting save"
                                : fmt::format("saved in {}", checkpoints.save.string());
  switch (end.reason) {
    case EndReason::kFinished:
      return checkpoints.save.empty() ? "" : fmt::format("done after step {}: {}", step, saved);
    case EndReason::kNothingToDo:
      return fmt::format("nothing to do: step {} is done, and train_iters asks for no more", step);
    case EndReason::kExitInterval:
      return fmt::format("ended after step {}, as exit_interval says: {}", step, saved);
    case EndReason::kStopped:
      return fmt::format("stopped after step {}, as a signal asked: {}", step, saved);
  }
  CKPT_CHECK(false);
}

std::string DigestText(const std::string& digest, bool is_json) {
  if (!is_json) return fmt::format("state-digest {}\n", digest);
  JsonWriter json;
  json.BeginObject().Key("state_digest").Text(digest).End();
  return json.Take() + "\n";
}

std::string LedgerReport(const trainer::Ledger& ledger, bool is_json) {
  if (!is_json) return trainer::LedgerText(ledger);
  JsonWriter json;
  json.BeginObject().Key("ledger");
  trainer::WriteLedger(ledger, json);
  json.End();
  return json.Take() + "\n";
}

struct TrainingData {
  std::shared_ptr<const trainer::SequenceSource> trained;
  std::shared_ptr<const trainer::SequenceSource> valid;  // null: there is none
  std::vector<std::string> notices;
};

Result<TrainingData> OpenTrainingData(Storage& storage, const RunConfig& run) {
  std::vector<Path> paths = {run.data.data_path};
  if (!run.data.valid_data_path.empty()) paths.push_back(run.data.valid_data_path);
  std::vector<trainer::DataKind> kinds;
  for (const Path& path : paths) {
    CKPT_ASSIGN_OR_RETURN(kinds.emplace_back(), KindOf(storage, path, run.data));
  }
  CKPT_RETURN_IF_ERROR(CheckKindsUse(run.data, kinds));
  TrainingData data;
  for (const Path& path : paths) {
    CKPT_ASSIGN_OR_RETURN(auto source, OpenData(storage, path, run.data, run.train));
    const std::string notice = DataNotice(path, source->facts());
    if (!notice.empty()) data.notices.push_back(notice);
    (data.trained ? data.valid : data.trained) = std::move(source);
  }
  return data;
}

}  // namespace

Result<ExitCode> RunTrain(const TrainOptions& options, Storage& storage, cli::Streams& streams) {
  const int num_ranks = NumRanks(options.run);
  CKPT_ASSIGN_OR_RETURN(layout::Configuration given, GivenSettings(storage, options.run));
  if (options.prove) given["prove"] = true;
  const RunNeeds needs = {.training = !options.print_config,
                          .one_process = trainer::NumLaunchedProcesses() == 1,
                          .runs_ranks = !options.print_config};
  SharedReads reads(storage);
  CKPT_ASSIGN_OR_RETURN(RunConfig run, ResolveTogether(reads, given, num_ranks, needs));
  if (options.print_config) {
    streams.out.Write(FormatSettings(run.effective));
    return ExitCode::kDone;
  }
  CKPT_ASSIGN_OR_RETURN(const TrainingData data, OpenTrainingData(storage, run));
  CKPT_ASSIGN_OR_RETURN(
      const std::unique_ptr<RunSetup> setup,
      RunSetup::Create(run, num_ranks, options.run.device, options.common, storage, streams));
  CKPT_RETURN_IF_ERROR(PlaceInData(*data.trained, setup->checkpoints(), run));
  RunLog log(run.loop, options.common, streams);
  const cli::StopOnSignal stop(cli::kBatchSignals);
  SessionInput session = setup->session_input();
  session.records = options.ledger;
  const TrainInput input = {.session = session,
                            .data = data.trained,
                            .valid = data.valid,
                            .log = log,
                            .on_started =
                                [&] {
                                  setup->EndProgress();
                                  for (const std::string& notice : data.notices) log.Say(notice);
                                  for (const std::string& text : LengthTexts(run)) log.Say(text);
                                  const std::string text = StartText(run, setup->checkpoints());
                                  if (!text.empty()) log.Say(text);
                                  for (const std::string& said : setup->WeightsTexts())
                                    log.Say(said);
                                },
                            .is_stop_asked = cli::StopOnSignal::HasArrived,
                            .wants_digest = options.print_state_digest,
                            .wants_ledger = options.ledger};
  std::optional<TrainedRank> trained;  // of rank 0, where it is one of this process
  CKPT_RETURN_IF_ERROR(setup->RunRanks([&](trainer::HostGroup& world) -> Status {
    CKPT_ASSIGN_OR_RETURN(TrainedRank mine, TrainOnRank(input, world));
    if (world.rank() == 0) trained = std::move(mine);
    return OkStatus();
  }));
  if (!trained) return ExitCode::kDone;

  if (!trained->difference.ok()) {
    cli::PrintStatus(trained->difference, streams);
    return ExitCode::kDifferent;
  }
  const std::string end = EndText(trained->end, setup->checkpoints());
  if (!end.empty()) log.Say(end);
  log.SayUsage();
  if (trained->ledger) streams.out.Write(LedgerReport(*trained->ledger, options.common.json));
  if (trained->state_digest) {
    streams.out.Write(DigestText(*trained->state_digest, options.common.json));
  }
  return ExitCode::kDone;
}

}  // namespace ckpt::train
