#include "tools/ckpt-train/cmd_evaluate.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/json/json_writer.h"
#include "tools/ckpt-train/data_settings.h"
#include "tools/ckpt-train/evaluation.h"
#include "tools/ckpt-train/run_setup.h"
#include "tools/ckpt-train/yaml_settings.h"
#include "trainer/data/batch_reader.h"

namespace ckpt::train {
namespace {

using cli::ExitCode;
using trainer::Evaluation;

std::string ReportJson(const Evaluation& evaluation, std::int64_t batches) {
  JsonWriter json(1);
  json.BeginObject().Key("loss").Double(evaluation.loss);
  json.Key("batches").Int(batches).Key("tokens").Int(evaluation.tokens).End();
  return json.Take() + "\n";
}

std::string ReportText(const Evaluation& evaluation, std::int64_t batches) {
  return fmt::format("loss {:.6f}  tokens {}  batches {}\n", evaluation.loss, evaluation.tokens,
                     batches);
}

}  // namespace

Result<ExitCode> RunEvaluate(const EvaluateOptions& options, Storage& storage,
                             cli::Streams& streams) {
  const int num_ranks = NumRanks(options.run);
  CKPT_ASSIGN_OR_RETURN(layout::Configuration given, GivenSettings(storage, options.run));
  CKPT_ASSIGN_OR_RETURN(const RunConfig run, ResolveRun(storage, std::move(given), num_ranks,
                                                        {.evaluation = !options.print_config}));
  if (options.print_config) {
    streams.out.Write(FormatYamlSettings(run.effective));
    return ExitCode::kDone;
  }
  CKPT_RETURN_IF_ERROR(CheckHasWeights(run));
  const Path& path =
      run.data.valid_data_path.empty() ? run.data.data_path : run.data.valid_data_path;
  CKPT_ASSIGN_OR_RETURN(const auto data, OpenData(storage, path, run.data, run.train));
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<RunSetup> setup,
                        RunSetup::Create(run, num_ranks, options.common, storage, streams));
  setup->LoadWeightsOnly();

  std::optional<Evaluation> evaluation;  // by rank 0, where it is one of this process
  CKPT_RETURN_IF_ERROR(setup->RunRanks([&](trainer::Communicator& world) -> Status {
    CKPT_ASSIGN_OR_RETURN(const auto batches,
                          trainer::BatchReader::Create(data, run.train, world.rank()));
    CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<RankSession> session, setup->StartRank(world));
    CKPT_ASSIGN_OR_RETURN(const Evaluation mine,
                          EvaluateBatches(session->trainer(), batches, run.loop.eval_iters));
    if (world.rank() == 0) evaluation = mine;
    return OkStatus();
  }));
  if (!evaluation) return ExitCode::kDone;
  if (options.common.json) {
    streams.out.Write(ReportJson(*evaluation, run.loop.eval_iters));
  } else if (!options.common.quiet) {
    streams.out.Write(ReportText(*evaluation, run.loop.eval_iters));
  }
  return ExitCode::kDone;
}

}  // namespace ckpt::train
