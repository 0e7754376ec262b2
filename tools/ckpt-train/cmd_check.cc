#include "tools/ckpt-train/cmd_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "converters/verbs/model_source.h"
#include "core/base/task_pool.h"
#include "core/json/json_writer.h"
#include "tools/ckpt-train/run_setup.h"
#include "tools/cli/reporting.h"
#include "tools/cli/table.h"
#include "trainer/backend/backend.h"
#include "trainer/check/comparison.h"
#include "trainer/check/rank_check.h"
#include "trainer/check/reference.h"
#include "trainer/check/run_comparison.h"
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
layout::Configuration SettingsOf(const Reference& reference, int num_ranks, bool bf16,
                                 layout::Configuration settings) {
  for (const char* decided :
       {"bf16", "params_dtype", "main_params_dtype", "main_grads_dtype", "grad_comm_dtype",
        "padded_vocab_size", "frozen", "overlap_grad_reduce", "overlap_param_gather",
        "moe_router_load_balancing_type", "moe_aux_loss_coeff", "moe_z_loss_coeff", "load"}) {
    settings.insert_or_assign(decided, layout::Value());
  }
  if (bf16) settings.insert_or_assign("bf16", true);
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

// What the ranks compute of a reference's batch, on any device and in any precision.
class BatchRuns {
 public:
  BatchRuns(const CheckOptions& options, const ModelSource& model, const Reference& reference,
            ProgressSink& progress)
      : options_(options), model_(model), reference_(reference), progress_(progress) {}

  // Null where rank 0 is not one of this process. Errors: those of ComputeOnRank.
  Result<std::optional<Computed>> Run(const trainer::TrainConfig& config, const std::string& device,
                                      std::span<const std::int32_t> assigned_experts = {}) {
    const int num_ranks = NumRanks(options_.run);
    const int threads = options_.common.threads == 0 ? DefaultThreads() : options_.common.threads;
    progress_.OnPhase("check", StoredWeightBytes(config.model), 0);
    const CheckInput input = {
        .config = config,
        .model = model_,
        .reference = reference_,
        .budget_bytes = options_.common.memory_budget / static_cast<std::uint64_t>(num_ranks),
        .threads = std::max(1, threads / num_ranks),
        .device = device,
        .all_gradients = options_.bf16,
        .assigned_experts = assigned_experts,
        .progress = progress_};
    std::optional<Computed> computed;
    CKPT_RETURN_IF_ERROR(
        trainer::RunWorld({.num_ranks = options_.run.ranks == 0 ? num_ranks : options_.run.ranks},
                          [&](trainer::HostGroup& world) -> Status {
                            CKPT_ASSIGN_OR_RETURN(Computed mine, ComputeOnRank(input, world));
                            if (world.rank() == 0) computed = std::move(mine);
                            return OkStatus();
                          }));
    return computed;
  }

 private:
  const CheckOptions& options_;
  const ModelSource& model_;
  const Reference& reference_;
  ProgressSink& progress_;
};

// Where scores are nearly equal, rounding decides which experts a token gets, and two runs compute
// something else. So tokens are sent to the experts in turn. Empty for models without experts.
std::vector<std::int32_t> ExpertsOfTokens(const trainer::TrainConfig& config) {
  if (!config.model.moe) return {};
  const std::int64_t tokens = config.micro_batch_size * config.seq_length;
  std::vector<std::int32_t> experts;
  for (std::int64_t choice = 0; choice < tokens * config.model.moe->router.topk; ++choice) {
    experts.push_back(static_cast<std::int32_t>(choice % config.model.moe->num_experts));
  }
  return experts;
}

std::string Bf16Json(const Comparison& errors, const ErrorBounds& bounds, bool ok) {
  JsonWriter json(1);
  const auto write = [&](const char* name, double error, double bound) {
    json.Key(name).BeginObject().Key("error");
    WriteError(error, json);
    json.Key("bound");
    WriteError(bound, json);
  };
  json.BeginObject().Key("ok").Bool(ok);
  write("loss", errors.loss->error, bounds.loss);
  json.Key("expected").Double(errors.loss->expected).Key("actual").Double(errors.loss->actual);
  json.End();
  write("logits", *errors.logits, bounds.logits);
  json.End().Key("gradient_bound");
  WriteError(bounds.gradients, json);
  json.Key("gradients").BeginObject();
  for (const auto& [name, error] : errors.gradients) {
    json.Key(name);
    WriteError(error, json);
  }
  json.End().End();
  return json.Take() + "\n";
}

std::string Bf16Text(const Comparison& errors, const ErrorBounds& bounds, bool ok) {
  std::string text = fmt::format(
      "loss       {:.9g}, on the CPU {:.9g}, error {:.2g}, bound {:.2g}\n"
      "logits     error {:.2g}, bound {:.2g}\n",
      errors.loss->actual, errors.loss->expected, errors.loss->error, bounds.loss, *errors.logits,
      bounds.logits);
  const auto worst =
      std::ranges::max_element(errors.gradients, {}, &std::pair<std::string, double>::second);
  if (worst != errors.gradients.end()) {
    text += fmt::format("gradients  {} compared, largest error {:.2g} of {}, bound {:.2g}\n",
                        errors.gradients.size(), worst->second, worst->first, bounds.gradients);
  }
  return text + (ok ? "equal but for rounding\n" : "past a bound\n");
}

// `exact`: in float32; `run`: in bfloat16. Ends `progress`.
Result<ExitCode> CheckBf16(const CheckOptions& options, const RunConfig& exact,
                           const RunConfig& run, const std::string& device, BatchRuns& runs,
                           std::unique_ptr<ProgressSink>& progress, Streams& streams) {
  const std::vector<std::int32_t> experts = ExpertsOfTokens(run.train);
  const std::string reference(trainer::kReferenceBackend);
  CKPT_ASSIGN_OR_RETURN(const std::optional<Computed> in_float32,
                        runs.Run(exact.train, reference, experts));
  CKPT_ASSIGN_OR_RETURN(const std::optional<Computed> expected,
                        runs.Run(run.train, reference, experts));
  CKPT_ASSIGN_OR_RETURN(const std::optional<Computed> actual, runs.Run(run.train, device, experts));
  progress.reset();
  if (!actual) return ExitCode::kDone;
  const ErrorBounds bounds = BoundsOfRounding(*in_float32, *expected);
  const Comparison errors = CompareRuns(*expected, *actual);
  const bool ok = bounds.Hold(errors);
  if (options.common.json) {
    streams.out.Write(Bf16Json(errors, bounds, ok));
  } else if (!options.common.quiet) {
    streams.out.Write(Bf16Text(errors, bounds, ok));
  }
  return ok ? ExitCode::kDone : ExitCode::kDifferent;
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
  if (options.bf16 && !reference.Has("logits")) {
    return Error(ErrorKind::kUsage, "--bf16 needs a reference with logits, which bound the loss")
        .File(reference.path().string());
  }
  CKPT_ASSIGN_OR_RETURN(
      const RunConfig run,
      ResolveRun(storage, SettingsOf(reference, num_ranks, options.bf16, given), num_ranks));
  if (options.print_config) {
    streams.out.Write(FormatSettings(run.effective));
    return ExitCode::kDone;
  }
  CKPT_RETURN_IF_ERROR(reference.CheckVocabulary(run.train.model.vocab_size));
  CKPT_ASSIGN_OR_RETURN(const ModelSource model, OpenModel(storage, *weights, {}));
  CKPT_ASSIGN_OR_RETURN(const std::string device,
                        ChooseDevice(run.train, options.run.device, options.common, streams));

  std::unique_ptr<ProgressSink> progress = cli::MakeProgress(options.common, streams);
  BatchRuns runs(options, model, reference, *progress);
  if (options.bf16) {
    CKPT_ASSIGN_OR_RETURN(
        const RunConfig exact,
        ResolveRun(storage, SettingsOf(reference, num_ranks, /*bf16=*/false, given), num_ranks));
    return CheckBf16(options, exact, run, device, runs, progress, streams);
  }
  CKPT_ASSIGN_OR_RETURN(std::optional<Computed> computed, runs.Run(run.train, device));
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
