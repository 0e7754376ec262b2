#include "tools/ckpt-train/cmd_evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "core/base/quote.h"
#include "core/io/shared_reads.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-train/run_setup.h"
#include "trainer/data/batch_reader.h"
#include "trainer/data/epoch_source.h"
#include "trainer/run/data_settings.h"
#include "trainer/run/evaluation.h"
#include "trainer/run/format_settings.h"
#include "trainer/run/resolve_together.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {
namespace {

using cli::ExitCode;

struct Report {
  double loss = 0;  // mean over the tokens
  std::int64_t tokens = 0;
  std::int64_t samples = 0;
  std::int64_t batches = 0;

  [[nodiscard]] double perplexity() const { return std::exp(loss); }
};

std::string ReportJson(const Report& report) {
  JsonWriter json(1);
  json.BeginObject().Key("loss").Double(report.loss).Key("perplexity");
  // Null where it is too large for a number.
  std::isfinite(report.perplexity()) ? json.Double(report.perplexity()) : json.Null();
  json.Key("batches").Int(report.batches).Key("samples").Int(report.samples);
  json.Key("tokens").Int(report.tokens).End();
  return json.Take() + "\n";
}

std::string ReportText(const Report& report, std::int64_t data_samples) {
  return fmt::format("loss {:.6f}  perplexity {:.6g}  tokens {}  samples {} of {}  batches {}\n",
                     report.loss, report.perplexity(), report.tokens, report.samples, data_samples,
                     report.batches);
}

// What the whole of the data takes, in steps of the run's global batch size.
std::int64_t BatchesOfEpoch(std::int64_t samples, std::int64_t global_batch_size) {
  return (samples + global_batch_size - 1) / global_batch_size;
}

}  // namespace

Result<ExitCode> RunEvaluate(const EvaluateOptions& options, Storage& storage,
                             cli::Streams& streams) {
  const int num_ranks = NumRanks(options.run);
  CKPT_ASSIGN_OR_RETURN(layout::Configuration given, GivenSettings(storage, options.run));
  // That a run was evaluated on a few batches as it trained is not a wish to see no more of the
  // data.
  const bool is_limited = given.contains("eval_iters");
  given.insert_or_assign("calculate_per_token_loss", true);  // what a perplexity is of
  const RunNeeds needs = {
      .evaluation = !options.print_config, .weights = true, .runs_ranks = !options.print_config};
  SharedReads reads(storage);
  CKPT_ASSIGN_OR_RETURN(const RunConfig run, ResolveTogether(reads, given, num_ranks, needs));
  if (options.print_config) {
    streams.out.Write(FormatSettings(run.effective));
    return ExitCode::kDone;
  }
  CKPT_RETURN_IF_ERROR(CheckHasWeights(run));
  const Path& path =
      run.data.valid_data_path.empty() ? run.data.data_path : run.data.valid_data_path;
  CKPT_ASSIGN_OR_RETURN(auto whole, OpenData(storage, path, run.data, run.train));
  const std::string notice = DataNotice(path, whole->facts());
  const std::int64_t data_samples = whole->num_samples();
  const auto data = trainer::OneEpochOf(std::move(whole));
  const std::int64_t all_batches = BatchesOfEpoch(data_samples, run.train.global_batch_size);
  const std::int64_t num_batches =
      is_limited ? std::min(run.loop.eval_iters, all_batches) : all_batches;
  CKPT_ASSIGN_OR_RETURN(
      const std::unique_ptr<RunSetup> setup,
      RunSetup::Create(run, num_ranks, options.run.device, options.common, storage, streams));
  setup->LoadWeightsOnly();

  std::optional<Report> report;  // by rank 0, where it is one of this process
  CKPT_RETURN_IF_ERROR(setup->RunRanks([&](trainer::HostGroup& world) -> Status {
    CKPT_ASSIGN_OR_RETURN(const auto batches,
                          trainer::BatchReader::Create(data, run.train, world.rank()));
    CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<RankSession> session, setup->StartRank(world));
    const auto goes_on = [](const Status& read) -> Result<bool> {
      if (!read.ok()) return read;
      return true;
    };
    CKPT_ASSIGN_OR_RETURN(const auto evaluation,
                          EvaluateBatches(session->trainer(), batches, num_batches, goes_on));
    if (world.rank() != 0) return OkStatus();
    report = Report{.loss = evaluation->loss,
                    .tokens = evaluation->tokens,
                    .samples = std::min(batches.SamplesOf(num_batches), data_samples),
                    .batches = num_batches};
    return OkStatus();
  }));
  if (!report) return ExitCode::kDone;
  if (!notice.empty() && !options.common.quiet) streams.err.Write(EscapeControls(notice) + "\n");
  if (options.common.json) {
    streams.out.Write(ReportJson(*report));
  } else if (!options.common.quiet) {
    streams.out.Write(ReportText(*report, data_samples));
  }
  return ExitCode::kDone;
}

}  // namespace ckpt::train
