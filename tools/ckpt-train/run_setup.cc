#include "tools/ckpt-train/run_setup.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/base/task_pool.h"
#include "tools/cli/reporting.h"
#include "trainer/backend/backend.h"
#include "trainer/backend/backend_options.h"
#include "trainer/comm/world.h"
#include "trainer/model/settings_reader.h"
#include "trainer/optim/optimizer.h"
#include "trainer/run/initial_weights.h"

namespace ckpt::train {

Status CheckHasWeights(const RunConfig& run) {
  if (run.goes_on() || run.init_from) return OkStatus();
  return Error(ErrorKind::kUsage, "there are no weights but random ones")
      .Hint("give --load DIR, a folder with a checkpoint, or --init hf:DIR");
}

Result<std::string> ChooseDevice(const trainer::TrainConfig& config, const std::string& device,
                                 const cli::CommonOptions& options, cli::Streams& streams) {
  CKPT_ASSIGN_OR_RETURN(
      const trainer::BackendChoice choice,
      trainer::ChooseBackend(trainer::BackendOptionsOf(config, device, /*threads=*/1)));
  cli::Tell(options, "device", choice.Text(), streams);
  return choice.name;
}

Result<std::unique_ptr<RunSetup>> RunSetup::Create(const RunConfig& run, int num_ranks,
                                                   const std::string& device,
                                                   const cli::CommonOptions& options,
                                                   Storage& storage, cli::Streams& streams) {
  std::unique_ptr<RunSetup> setup(new RunSetup(run, options, storage, streams));
  trainer::SettingsReader reader(run.effective);
  setup->checkpoints_ = ReadCheckpointSettings(reader);
  if (run.init_from) {
    CKPT_ASSIGN_OR_RETURN(setup->init_, OpenModel(storage, *run.init_from, {}));
    // How far the run pads the vocabulary is its own decision.
    PadVocabulary(run.train.model.padded_vocab_size, setup->init_->config);
  }
  const StatePtr stored = run.goes_on() ? run.stored->state() : nullptr;
  setup->leaves_out_layers_ = (setup->init_ && setup->init_->match.layout.has_extra) ||
                              (stored && stored->weights.match.layout.has_extra);
  const int threads = options.threads == 0 ? DefaultThreads() : options.threads;
  setup->num_ranks_ = num_ranks;
  setup->threads_ = std::max(1, threads / num_ranks);
  CKPT_ASSIGN_OR_RETURN(setup->device_, ChooseDevice(run.train, device, options, streams));
  setup->budget_bytes_ = options.memory_budget / static_cast<std::uint64_t>(num_ranks);
  setup->progress_ = cli::MakeProgress(options, streams);
  return setup;
}

SessionInput RunSetup::session_input() {
  return {.run = run_,
          .checkpoints = checkpoints_,
          .storage = storage_,
          .init = init_ ? &*init_ : nullptr,
          .budget_bytes = budget_bytes_,
          .threads = threads_,
          .device = device_,
          .progress = *progress_,
          .make_save_progress = [this] { return cli::MakeProgress(options_, streams_); }};
}

Result<std::unique_ptr<RankSession>> RunSetup::StartRank(trainer::HostGroup& world) {
  const auto notice = [&](const std::string& text) { cli::Tell(options_, "load", text, streams_); };
  CKPT_ASSIGN_OR_RETURN(std::unique_ptr<RankSession> session,
                        RankSession::Create(session_input(), world, notice));
  CKPT_ASSIGN_OR_RETURN([[maybe_unused]] const RunProgress progress, session->Start());
  CKPT_RETURN_IF_ERROR(world.Barrier());
  if (world.rank() != 0) return session;
  EndProgress();
  if (options_.quiet) return session;
  for (const std::string& text : WeightsTexts()) streams_.err.Write(EscapeControls(text) + "\n");
  return session;
}

std::vector<std::string> RunSetup::WeightsTexts() const {
  std::vector<std::string> texts;
  if (run_.idle_init) {
    texts.push_back(fmt::format("init names {}, which is not used: the weights are those of {}",
                                run_.idle_init->string(), checkpoints_.load.string()));
  }
  if (leaves_out_layers_) {
    texts.emplace_back("the layers that predict further tokens are left out: the trainer has none");
  }
  return texts;
}

void RunSetup::BeginProgress() {
  const std::uint64_t weights = StoredWeightBytes(run_.train.model);
  if (run_.goes_on()) {
    const int moments = checkpoints_.finetune ? 0 : trainer::NumMoments(run_.train.optimizer);
    progress_->OnPhase("load", weights * static_cast<std::uint64_t>(1 + moments), 0);
  } else if (init_) {
    progress_->OnPhase("read", weights, 0);
  }
}

Status RunSetup::RunRanks(const std::function<Status(trainer::HostGroup& world)>& body) {
  BeginProgress();
  return trainer::RunWorld({.num_ranks = num_ranks_,
                            .from_threads = run_.train.overlaps_on_host(),
                            .timeout = run_.loop.timeout},
                           body);
}

}  // namespace ckpt::train
