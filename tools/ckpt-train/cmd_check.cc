#include "tools/ckpt-train/cmd_check.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "converters/verbs/model_source.h"
#include "core/exec/task_pool.h"
#include "core/json/json_writer.h"
#include "tools/cli/reporting.h"
#include "tools/cli/table.h"
#include "trainer/check/comparison.h"
#include "trainer/check/rank_check.h"
#include "trainer/check/reference.h"
#include "trainer/comm/world.h"
#include "trainer/run/format_settings.h"
#include "trainer/run/initial_weights.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {
namespace {

using cli::ExitCode;
using cli::Streams;

constexpr std::size_t kMostListed = 10;

// A reference holds one loss of one batch: the mean over its tokens, in fp32, without auxiliary
// losses.
layout::Configuration SettingsOf(const Reference& reference, int num_ranks,
                                 layout::Configuration settings) {
  for (const char* decided :
       {"bf16", "params_dtype", "main_params_dtype", "main_grads_dtype", "grad_comm_dtype",
        "padded_vocab_size", "frozen", "overlap_grad_reduce", "overlap_param_gather",
        "moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_z_loss_coeff", "load"}) {
    settings.insert_or_assign(decided, layout::Value());
  }
  settings.insert_or_assign("seq_length", reference.seq());
  settings.insert_or_assign("global_batch_size", reference.batch());
  settings.insert_or_assign("micro_batch_size", num_ranks == 1 ? reference.batch() : 1);
  settings.insert_or_assign("calculate_per_token_loss", true);
  return settings;
}

Status CheckRanks(const Reference& reference, int num_ranks) {
  if (reference.batch() % num_ranks == 0) return OkStatus();
  return Error(ErrorKind::kUsage, "the ranks do not divide the sequences of the reference")
      .File(reference.path().string())
      .Expected(fmt::format("a divisor of {} as --ranks", reference.batch()))
      .Actual(fmt::format("{}", num_ranks));
}

// Null for an error that is not finite, which JSON cannot say.
void WriteError(double error, JsonWriter& json) {
  std::isfinite(error) ? json.Double(error) : json.Null();
}

std::string ReportJson(const Comparison& comparison, double tolerance, bool ok) {
  JsonWriter json(1);
  json.BeginObject().Key("ok").Bool(ok).Key("tolerance").Double(tolerance);
  json.Key("loss");
  if (comparison.loss) {
    json.BeginObject().Key("expected");
    WriteError(comparison.loss->expected, json);
    json.Key("actual").Double(comparison.loss->actual);
    json.End();
  } else {
    json.Null();
  }
  json.Key("logits");
  comparison.logits ? WriteError(*comparison.logits, json) : void(json.Null());
  json.Key("gradients").BeginObject();
  for (const auto& [name, error] : comparison.gradients) {
    json.Key(name);
    WriteError(error, json);
  }
  json.End().End();
  return json.Take() + "\n";
}

std::string ReportText(const Comparison& comparison, double tolerance, bool ok) {
  std::string text;
  if (comparison.loss) {
    text += fmt::format("loss       {:.9g}, expected {:.9g}, error {:.2g}\n",
                        comparison.loss->actual, comparison.loss->expected, comparison.loss->error);
  }
  if (comparison.logits) text += fmt::format("logits     error {:.2g}\n", *comparison.logits);
  const auto worst =
      std::ranges::max_element(comparison.gradients, {}, &std::pair<std::string, double>::second);
  if (worst != comparison.gradients.end()) {
    text += fmt::format("gradients  {} compared, largest error {:.2g} of {}\n",
                        comparison.gradients.size(), worst->second, worst->first);
  }
  if (ok) return text + fmt::format("equal within {:g}\n", tolerance);

  std::vector<std::pair<std::string, double>> past = comparison.ByError();
  std::erase_if(past, [&](const auto& entry) { return entry.second <= tolerance; });
  cli::Table table({{fmt::format("PAST {:g}", tolerance)}, {"ERROR", cli::Align::kRight}});
  for (std::size_t i = 0; i < std::min(past.size(), kMostListed); ++i) {
    table.AddRow({past[i].first, fmt::format("{:.2g}", past[i].second)});
  }
  text += "\n" + table.Format();
  if (past.size() > kMostListed) text += fmt::format("and {} more\n", past.size() - kMostListed);
  return text;
}

}  // namespace

Result<ExitCode> RunCheck(const CheckOptions& options, Storage& storage, Streams& streams) {
  const int num_ranks = NumRanks(options.run);
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration given, GivenSettings(storage, options.run));
  CKPT_ASSIGN_OR_RETURN(const std::optional<Path> weights, InitSource(given));
  if (!weights) {
    return Error(ErrorKind::kUsage, "check needs the weights of a model")
        .Hint("give --init hf:DIR");
  }
  CKPT_ASSIGN_OR_RETURN(const Reference reference, Reference::Open(storage, options.reference));
  CKPT_RETURN_IF_ERROR(CheckRanks(reference, num_ranks));
  CKPT_ASSIGN_OR_RETURN(const RunConfig run,
                        ResolveRun(storage, SettingsOf(reference, num_ranks, given), num_ranks));
  if (options.print_config) {
    streams.out.Write(FormatSettings(run.effective));
    return ExitCode::kDone;
  }
  CKPT_RETURN_IF_ERROR(reference.CheckVocabulary(run.train.model.vocab_size));
  CKPT_ASSIGN_OR_RETURN(const ModelSource model, OpenModel(storage, *weights, {}));

  const int threads = options.common.threads == 0 ? DefaultThreads() : options.common.threads;
  std::unique_ptr<ProgressSink> progress = cli::MakeProgress(options.common, streams);
  progress->OnPhase("check", StoredWeightBytes(run.train.model), 0);
  const CheckInput input = {
      .config = run.train,
      .model = model,
      .reference = reference,
      .budget_bytes = options.common.memory_budget / static_cast<std::uint64_t>(num_ranks),
      .threads = std::max(1, threads / num_ranks),
      .device = options.run.device,
      .progress = *progress};
  std::optional<Computed> computed;  // by rank 0, where it is one of this process
  CKPT_RETURN_IF_ERROR(
      trainer::RunWorld({.num_ranks = options.run.ranks == 0 ? num_ranks : options.run.ranks},
                        [&](trainer::HostGroup& world) -> Status {
                          CKPT_ASSIGN_OR_RETURN(Computed mine, ComputeOnRank(input, world));
                          if (world.rank() == 0) computed = std::move(mine);
                          return OkStatus();
                        }));
  progress.reset();  // a bar clears its line before anything else is printed
  if (!computed) return ExitCode::kDone;

  CKPT_ASSIGN_OR_RETURN(const Comparison comparison, Compare(model, reference, std::move(*computed),
                                                             options.common.memory_budget));
  const auto by_error = comparison.ByError();
  const bool ok = by_error.front().second <= options.tolerance;
  if (options.common.json) {
    streams.out.Write(ReportJson(comparison, options.tolerance, ok));
  } else if (!options.common.quiet) {
    streams.out.Write(ReportText(comparison, options.tolerance, ok));
  }
  return ok ? ExitCode::kDone : ExitCode::kDifferent;
}

}  // namespace ckpt::train
