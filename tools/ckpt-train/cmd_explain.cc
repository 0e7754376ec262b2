#include "tools/ckpt-train/cmd_explain.h"

#include <cstdint>
#include <string>

#include "tools/ckpt-train/explanation_text.h"
#include "trainer/explain/explanation.h"
#include "trainer/explain/forecast.h"
#include "trainer/model/settings_reader.h"
#include "trainer/run/checkpoint_settings.h"
#include "trainer/run/format_settings.h"
#include "trainer/run/run_checkpoints.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {
namespace {

constexpr std::int64_t kMaxSweptGpus = 16384;

Result<ClusterForecast> ForecastFor(const trainer::TrainConfig& config, const std::string& name) {
  if (config.gpu_collectives == trainer::GpuCollectives::kNccl) {
    return Error(ErrorKind::kUnsupported,
                 "a forecast is of GPUs of a host that read each other's memory")
        .Expected("gpu_collectives=auto or peer")
        .Actual("gpu_collectives=nccl");
  }
  ClusterForecast forecast;
  forecast.name = name;
  CKPT_ASSIGN_OR_RETURN(forecast.cluster, ParseCluster(name));
  CKPT_ASSIGN_OR_RETURN(forecast.run, ForecastStep(config, forecast.cluster));
  CKPT_ASSIGN_OR_RETURN(forecast.sweep, SweepCluster(config, forecast.cluster, kMaxSweptGpus));
  return forecast;
}

}  // namespace

Result<cli::ExitCode> RunExplain(const ExplainOptions& options, Storage& storage,
                                 cli::Streams& streams) {
  CKPT_ASSIGN_OR_RETURN(layout::Configuration given, GivenSettings(storage, options.run));
  CKPT_ASSIGN_OR_RETURN(const RunConfig run, ResolveRun(storage, given, NumRanks(options.run)));
  if (options.print_config) {
    streams.out.Write(FormatSettings(run.effective));
    return cli::ExitCode::kDone;
  }
  CKPT_ASSIGN_OR_RETURN(Explanation explanation, Explain(run.train, options.rank));
  if (!options.cluster.empty()) {
    CKPT_ASSIGN_OR_RETURN(explanation.forecast, ForecastFor(run.train, options.cluster));
  }
  trainer::SettingsReader reader(run.effective);
  if (const CheckpointSettings settings = ReadCheckpointSettings(reader); !settings.save.empty()) {
    CKPT_ASSIGN_OR_RETURN(explanation.copy_bytes, StagedBytes(run, settings));
  }
  streams.out.Write(options.common.json ? ExplanationJson(explanation)
                                        : ExplanationText(explanation));
  return cli::ExitCode::kDone;
}

}  // namespace ckpt::train
