#include "tools/ckpt-train/experiment/internal/leg.h"

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "core/base/bytes.h"
#include "core/tensor/shape.h"
#include "tools/ckpt-train/run_setup.h"
#include "tools/cli/reporting.h"
#include "trainer/comm/world.h"
#include "trainer/data/batch_reader.h"
#include "trainer/params/param_piece.h"
#include "trainer/run/data_settings.h"
#include "trainer/run/rank_session.h"
#include "trainer/run/train_loop.h"

namespace ckpt::train {
namespace {

Result<std::vector<float>> ExpertBiases(trainer::RankTrainer& trainer) {
  std::map<std::string, std::size_t> first_of;  // element, by name
  std::size_t num_elems = 0;
  for (const trainer::ReplicatedBuffer& buffer : trainer.model().buffers()) {
    first_of[buffer.spec.name] = num_elems;
    num_elems += static_cast<std::size_t>(NumElements(buffer.spec.shape));
  }
  std::vector<float> biases(num_elems);
  const auto place = [&](const trainer::ParamPiece& piece) {
    const auto first = first_of.find(piece.spec->name);
    if (first == first_of.end()) return MutableByteSpan();
    const auto elems = static_cast<std::size_t>(piece.rows * piece.row_elems);
    return std::as_writable_bytes(std::span(biases).subspan(first->second, elems));
  };
  CKPT_RETURN_IF_ERROR(trainer.ReadWeights(place));
  CKPT_RETURN_IF_ERROR(trainer.AwaitReads());
  return biases;
}

// Every rank calls it.
Result<Station> LookAround(RankSession& session, const RunProgress& progress) {
  Station station = {.progress = progress, .digest = {}, .expert_biases = {}};
  CKPT_ASSIGN_OR_RETURN(station.digest, session.checkpoints().StateDigest(progress));
  CKPT_ASSIGN_OR_RETURN(station.expert_biases, ExpertBiases(session.trainer()));
  return station;
}

// One rank's part. `samples` is shared with the other ranks.
class LegOnRank {
 public:
  LegOnRank(const SessionInput& input, const LegOptions& options,
            std::shared_ptr<const RecordingSource> samples, trainer::HostGroup& world)
      : input_(input), options_(options), samples_(std::move(samples)), world_(world) {}

  Result<Leg> Run(const Notice& notice) {
    CKPT_ASSIGN_OR_RETURN(const trainer::BatchReader batches,
                          trainer::BatchReader::Create(samples_, input_.run.train, world_.rank()));
    CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<RankSession> session,
                          RankSession::Create(input_, world_, notice));
    CKPT_ASSIGN_OR_RETURN(RunProgress progress, session->Start());
    CKPT_RETURN_IF_ERROR(Arrive(*session, progress));
    for (const Stretch& stretch : options_.stretches) {
      CKPT_ASSIGN_OR_RETURN(progress, Train(stretch, progress, *session, batches));
      CKPT_RETURN_IF_ERROR(Arrive(*session, progress));
    }
    return std::move(leg_);
  }

 private:
  Status Arrive(RankSession& session, const RunProgress& progress) {
    CKPT_ASSIGN_OR_RETURN(Station station, LookAround(session, progress));
    leg_.stations.push_back(std::move(station));
    return OkStatus();
  }

  Result<RunProgress> Train(const Stretch& stretch, const RunProgress& start, RankSession& session,
                            const trainer::BatchReader& batches) {
    LoopSettings settings = input_.run.loop;
    settings.train_iters = stretch.until;
    CheckpointSettings checkpoints = input_.checkpoints;
    if (!stretch.saves) checkpoints.save = Path();
    TrainLoop loop({.settings = settings,
                    .checkpoint_settings = checkpoints,
                    .trainer = session.trainer(),
                    .checkpoints = session.checkpoints(),
                    .world = world_,
                    .batches = batches,
                    .is_stop_asked = [] { return false; },
                    .on_step =
                        [this](const StepMetrics& metrics) {
                          leg_.steps.push_back(metrics);
                          if (world_.rank() == 0) options_.on_step(metrics);
                        }},
                   start);
    CKPT_ASSIGN_OR_RETURN(const LoopEnd end, loop.Run());
    return end.progress;
  }

  const SessionInput input_;
  const LegOptions& options_;
  const std::shared_ptr<const RecordingSource> samples_;
  trainer::HostGroup& world_;
  Leg leg_;
};

}  // namespace

Result<Leg> RunLeg(const RunConfig& run, const LegOptions& leg, const cli::CommonOptions& options,
                   Storage& storage, cli::Streams& streams) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  CKPT_ASSIGN_OR_RETURN(std::shared_ptr<const trainer::SequenceSource> data,
                        OpenData(storage, run.data.data_path, run.data, run.train));
  const auto samples = std::make_shared<const RecordingSource>(std::move(data));
  CKPT_ASSIGN_OR_RETURN(
      const std::unique_ptr<RunSetup> setup,
      RunSetup::Create(run, leg.num_ranks, leg.device, options, storage, streams));
  Leg watched;
  const auto on_rank = [&](trainer::HostGroup& world) -> Status {
    const bool is_first = world.rank() == 0;
    const Notice notice = [&](const std::string& text) {
      if (is_first) cli::Tell(options, "checkpoints", text, streams);
    };
    LegOnRank rank(setup->session_input(), leg, samples, world);
    CKPT_ASSIGN_OR_RETURN(Leg mine, rank.Run(notice));
    if (is_first) watched = std::move(mine);
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(setup->RunRanks(on_rank));
  watched.samples = samples->Samples();
  watched.seed = run.train.seed;
  watched.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return watched;
}

}  // namespace ckpt::train
