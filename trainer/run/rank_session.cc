#include "trainer/run/rank_session.h"

#include <chrono>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trainer/backend/backend_options.h"
#include "trainer/model/flops.h"
#include "trainer/run/initial_weights.h"
#include "trainer/run/load_run.h"

namespace ckpt::train {

Result<std::unique_ptr<RankSession>> RankSession::Create(const SessionInput& input,
                                                         trainer::HostGroup& world, Notice notice) {
  std::unique_ptr<RankSession> session(new RankSession(input, world, std::move(notice)));
  const trainer::TrainConfig& config = input.run.train;
  CKPT_ASSIGN_OR_RETURN(
      session->backend_,
      trainer::MakeBackend(trainer::BackendOptionsOf(config, input.device, input.threads), world));
  if (input.records && world.rank() == 0) session->recorded_.emplace(*session->backend_.ops);
  trainer::Ops* const ops = session->recorded_ ? static_cast<trainer::Ops*>(&*session->recorded_)
                                               : session->backend_.ops.get();
  CKPT_ASSIGN_OR_RETURN(
      session->trainer_,
      trainer::RankTrainer::Create(
          config, world,
          {.device = session->backend_.device.get(), .ops = ops, .host_threads = input.threads}));
  // A rank that fails in a step gives up the world. What was taken before is written all the same.
  CKPT_ASSIGN_OR_RETURN(session->saving_, world.Separate());
  session->checkpoints_.emplace(
      input.storage, input.checkpoints, input.run, *session->trainer_, *session->saving_,
      input.threads, RunVoice{.say = session->notice_, .make_progress = input.make_save_progress});
  return session;
}

double RankSession::ideal_step_ms() const {
  const trainer::TrainConfig& config = input_.run.train;
  const double peak = backend_.device->PeakFlops(config.precision.compute);
  if (peak == 0) return 0;
  const std::int64_t tokens =
      config.num_micro_batches() * config.micro_batch_size * config.seq_length;
  return static_cast<double>(tokens) *
         trainer::TrainingFlopsPerToken(config.model, config.seq_length) / peak * 1e3;
}

Result<RunProgress> RankSession::Start() {
  if (input_.run.goes_on()) return GoOn();
  if (input_.init != nullptr) {
    CKPT_RETURN_IF_ERROR(ReadInitialWeights(*input_.init, input_.budget_bytes, *trainer_, world_,
                                            {.notice = notice_, .progress = input_.progress}));
  } else {
    const auto start = std::chrono::steady_clock::now();
    CKPT_RETURN_IF_ERROR(trainer_->InitializeWeights());
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (world_.rank() == 0 && notice_)
      notice_(fmt::format("drew the weights in {:.1f} s", took.count()));
  }
  return RunProgress();
}

Result<RunProgress> RankSession::GoOn() {
  CKPT_ASSIGN_OR_RETURN(const std::optional<LoadedRun> loaded,
                        LoadRun(input_.storage, input_.checkpoints, *input_.run.stored, *trainer_,
                                world_, {.notice = notice_, .progress = input_.progress}));
  if (!loaded) {
    return Error(ErrorKind::kNotFound, "there is no valid checkpoint any more")
        .File(input_.checkpoints.load.string());
  }
  checkpoints_->GoOnFrom(*loaded);
  if (input_.checkpoints.prove) CKPT_RETURN_IF_ERROR(checkpoints_->Prove(*loaded));
  RunProgress progress = loaded->progress;
  if (input_.run.restarts_data) {
    progress.consumed_samples = 0;
    progress.next_loss.reset();
  }
  return progress;
}

}  // namespace ckpt::train
