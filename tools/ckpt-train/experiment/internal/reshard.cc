#include "tools/ckpt-train/experiment/internal/reshard.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "tools/ckpt-train/experiment/internal/progress.h"
#include "tools/ckpt-train/experiment/internal/proxy.h"
#include "trainer/backend/backend.h"

namespace ckpt::train {
namespace {

constexpr const char* kSourceName = "source";

// Whether another case resumes from this one.
bool IsResumedFrom(const ReshardCase& resumed, const std::vector<ReshardCase>& cases) {
  return std::ranges::any_of(cases,
                             [&](const ReshardCase& other) { return other.from == resumed.name; });
}

class Experiment {
 public:
  Experiment(const ReshardRuns& runs, ExperimentFolder& folder, const cli::CommonOptions& options,
             Storage& storage, cli::Streams& streams)
      : runs_(runs),
        folder_(folder),
        options_(LegOptionsOf(options)),
        storage_(storage),
        streams_(streams),
        progress_(TotalSteps(), options, streams) {}

  Result<ReshardFindings> Run() {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point start = Clock::now();
    findings_.steps = runs_.steps;
    findings_.resume_steps = runs_.resume_steps;
    findings_.canonical = runs_.canonical;
    findings_.device = runs_.device;
    CKPT_RETURN_IF_ERROR(folder_.Write(folder_.data(), ProxyText()));
    CKPT_RETURN_IF_ERROR(RunSource());
    for (const ReshardCase& each : runs_.cases) CKPT_RETURN_IF_ERROR(RunCase(each));
    findings_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(findings_);
  }

 private:
  // Progress is shown for all runs together.
  static cli::CommonOptions LegOptionsOf(cli::CommonOptions options) {
    options.progress = false;
    return options;
  }

  [[nodiscard]] bool HasReturn() const {
    return std::ranges::any_of(runs_.cases, [](const ReshardCase& c) { return !c.from.empty(); });
  }
  // Where the last resumed run ends.
  [[nodiscard]] std::int64_t WholeSteps() const {
    return runs_.steps + runs_.resume_steps * (HasReturn() ? 2 : 1);
  }
  [[nodiscard]] std::int64_t TotalSteps() const {
    return WholeSteps() + runs_.resume_steps * static_cast<std::int64_t>(runs_.cases.size());
  }

  Status RunSource() {
    layout::Configuration settings = ProxySettings(WholeSteps());
    settings.merge(MeshSettings(SourceMesh()));
    settings["train_iters"] = WholeSteps();
    settings["data_path"] = folder_.data().string();
    SaveIn(folder_.checkpoints(kSourceName), settings);
    if (runs_.canonical) settings["reduction"] = "canonical";
    std::vector<Stretch> stretches = {{.until = runs_.steps, .saves = true}};
    for (std::int64_t end = runs_.steps; end < WholeSteps();) {
      end += runs_.resume_steps;
      stretches.push_back({.until = end});
    }
    CKPT_ASSIGN_OR_RETURN(findings_.whole, RunNamed(kSourceName, "source", std::move(settings),
                                                    SourceMesh().world_size, std::move(stretches)));
    findings_.saved_digest = findings_.whole.stations[1].digest;
    progress_.Say(fmt::format("source: {} steps, saved after {}, in {:.1f} s", WholeSteps(),
                              runs_.steps, findings_.whole.seconds));
    return OkStatus();
  }

  Status RunCase(const ReshardCase& resumed) {
    const bool saves = IsResumedFrom(resumed, runs_.cases);
    const Leg* const before = LegBefore(resumed);
    // The source's second station, or the last of a case.
    const Station& saved = resumed.from.empty() ? before->stations[1] : before->stations.back();
    const std::int64_t end = saved.progress.iteration + runs_.resume_steps;
    // Everything that is not said here comes from the checkpoint.
    layout::Configuration settings = MeshSettings(resumed.mesh);
    settings["load"] =
        folder_.checkpoints(resumed.from.empty() ? kSourceName : resumed.from).string();
    if (saves) SaveIn(folder_.checkpoints(resumed.name), settings);
    settings["train_iters"] = end;
    const std::string title = fmt::format("({}) {}", resumed.name, resumed.title);
    CKPT_ASSIGN_OR_RETURN(
        Leg leg, RunNamed(resumed.name, title, std::move(settings), resumed.mesh.world_size,
                          {{.until = end, .saves = saves}}));
    ResumeVerdict verdict = JudgeResume(resumed, leg, saved, findings_.whole);
    progress_.Say(fmt::format("{}: {} of {} steps bit-equal, in {:.1f} s{}", title,
                              verdict.equal_steps, leg.steps.size(), leg.seconds,
                              verdict.failures.ok() ? "" : ", FAILED"));
    findings_.cases.push_back(
        {.resumed = resumed, .leg = std::move(leg), .verdict = std::move(verdict)});
    return OkStatus();
  }

  static void SaveIn(const Path& folder, layout::Configuration& settings) {
    settings["save"] = folder.string();
    // Digests after loading prove what a stored loss would.
    settings["save_proof"] = false;
  }

  [[nodiscard]] const Leg* LegBefore(const ReshardCase& resumed) const {
    if (resumed.from.empty()) return &findings_.whole;
    const auto found = std::ranges::find(findings_.cases, resumed.from,
                                         [](const ResumedCase& c) { return c.resumed.name; });
    CKPT_CHECK(found != findings_.cases.end());
    return &found->leg;
  }

  Result<Leg> RunNamed(const std::string& name, const std::string& title,
                       layout::Configuration settings, int num_ranks,
                       std::vector<Stretch> stretches) {
    progress_.BeginRun(title);
    const std::string where = fmt::format("running {}", title);
    if (!trainer::AddsInFixedOrder(runs_.device)) settings["deterministic_mode"] = true;
    const Result<RunConfig> run =
        ResolveRun(storage_, std::move(settings), num_ranks, {.training = true});
    if (!run.ok()) return Status(run.status()).While(where);
    const LegOptions leg_options = {
        .num_ranks = num_ranks,
        .device = runs_.device,
        .stretches = std::move(stretches),
        .on_step = [this](const StepMetrics& metrics) { progress_.OnStep(metrics); }};
    Result<Leg> leg = RunLeg(*run, leg_options, options_, storage_, streams_);
    if (!leg.ok()) return std::move(leg).status().While(where);
    std::string lines;
    for (const StepMetrics& step : leg->steps) lines += MetricsJson(step);
    CKPT_RETURN_IF_ERROR(folder_.Write(folder_.metrics(name), lines));
    return leg;
  }

  const ReshardRuns& runs_;
  ExperimentFolder& folder_;
  const cli::CommonOptions options_;
  Storage& storage_;
  cli::Streams& streams_;
  ExperimentProgress progress_;
  ReshardFindings findings_;
};

}  // namespace

Result<ReshardFindings> RunReshardRuns(const ReshardRuns& runs, ExperimentFolder& folder,
                                       const cli::CommonOptions& options, Storage& storage,
                                       cli::Streams& streams) {
  return Experiment(runs, folder, options, storage, streams).Run();
}

}  // namespace ckpt::train
