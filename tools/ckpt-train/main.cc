// ckpt-train: the sharded trainer. Parses and dispatches.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/io/posix_storage.h"
#include "tools/ckpt-train/cmd_bench.h"
#include "tools/ckpt-train/cmd_check.h"
#include "tools/ckpt-train/cmd_evaluate.h"
#include "tools/ckpt-train/cmd_explain.h"
#include "tools/ckpt-train/cmd_generate.h"
#include "tools/ckpt-train/cmd_train.h"
#include "tools/ckpt-train/experiment/cmd_experiment.h"
#include "tools/cli/command_line.h"
#include "tools/cli/error_report.h"
#include "tools/cli/run_tool.h"
#include "tools/cli/streams.h"
#include "tools/cli/text_output.h"
#include "tools/cli/usable_hints.h"
#include "tools/cli/version.h"
#include "trainer/backend/backend.h"
#include "trainer/comm/launcher.h"
#include "trainer/comm/mpi_comm.h"

namespace ckpt::train {
namespace {

constexpr int kMaxRanks = 1 << 20;
constexpr int kMaxTokens = 1 << 20;
constexpr int kMaxExperimentSteps = 1 << 20;

void AddRunOptions(CLI::App& app, RunOptions& run, bool& print_config) {
  app.add_option("--config", run.config, "Settings of the run, as YAML")->option_text("FILE");
  app.add_option("--set", run.set, "A setting, over those of the file; may be repeated")
      ->option_text("KEY=VALUE")
      ->take_all()
      ->expected(1);
  app.add_option("--init", run.init, "Where the model and its weights come from [random]")
      ->option_text("hf:DIR");
  app.add_option("--ranks", run.ranks, "Number of ranks [those that were launched, else 1]")
      ->check(CLI::Range(1, kMaxRanks))
      ->option_text("N");
  app.add_flag("--print-config", print_config, "Print every setting as YAML and do nothing else");
}

void AddDeviceOption(CLI::App& app, std::string& device, const std::string& what) {
  std::vector<std::string> names = {std::string(trainer::kAnyBackend)};
  for (const std::string_view name : trainer::BackendNames()) names.emplace_back(name);
  cli::TakeOneOf(app.add_option("--device", device, what), names);
}

void AddDeviceOption(CLI::App& app, RunOptions& run) {
  AddDeviceOption(app, run.device, "What the ranks compute on [a GPU if there is one]");
}

void AddLoadOption(CLI::App& app, RunOptions& run) {
  app.add_option("--load", run.load,
                 "Checkpoints of a run: settings and state come from the newest")
      ->option_text("DIR");
}

// Of verbs that take nothing else of a checkpoint.
void AddLoadWeightsOption(CLI::App& app, RunOptions& run) {
  app.add_option("--load", run.load,
                 "Checkpoints of a run: settings and weights come from the newest; or any weights")
      ->option_text("DIR");
}

CLI::App* AddTrain(CLI::App& app, TrainOptions& options) {
  CLI::App* const verb = app.add_subcommand("train", "Train (the default verb)");
  AddRunOptions(*verb, options.run, options.print_config);
  AddDeviceOption(*verb, options.run);
  AddLoadOption(*verb, options.run);
  verb->add_option("--save", options.run.save, "Where checkpoints go")->option_text("DIR");
  verb->add_option("--metrics", options.run.metrics, "A JSON object a step goes there")
      ->option_text("FILE");
  verb->add_flag(
      "--prove", options.prove,
      "After loading, check the state's digest and the stored loss; exit 1 if they differ");
  verb->add_flag("--print-state-digest", options.print_state_digest,
                 "End with a digest of the whole state, the same on every mesh");
  verb->add_flag(
      "--ledger", options.ledger,
      "End with where the time of five steps went: time, bytes and FLOP of every operation "
      "of rank 0");
  cli::AddReadingOptions(*verb, options.common);
  cli::AddOutputOptions(*verb, options.common, cli::JsonOutput::kLines);
  cli::AddExamples(
      *verb, std::vector<std::string>{
                 "ckpt-train --config run.yaml --ranks 4 --save out",
                 "ckpt-train --load out --ranks 4 --set num_distributed_optimizer_instances=2"});
  return verb;
}

CLI::App* AddEvaluate(CLI::App& app, EvaluateOptions& options) {
  CLI::App* const verb = app.add_subcommand("evaluate", "The loss of a model on data");
  AddRunOptions(*verb, options.run, options.print_config);
  AddDeviceOption(*verb, options.run);
  AddLoadWeightsOption(*verb, options.run);
  cli::AddReadingOptions(*verb, options.common);
  cli::AddOutputOptions(*verb, options.common);
  cli::AddExamples(*verb, std::vector<std::string>{
                              "ckpt-train evaluate --load out --set valid_data_path=valid.jsonl",
                              "ckpt-train evaluate --init hf:Qwen3-0.6B --set seq_length=512 "
                              "--set data_path=tokens"});
  return verb;
}

CLI::App* AddGenerate(CLI::App& app, GenerateOptions& options) {
  CLI::App* const verb =
      app.add_subcommand("generate", "The most likely continuation of a prompt, to try a model");
  AddRunOptions(*verb, options.run, options.print_config);
  AddDeviceOption(*verb, options.run);
  AddLoadWeightsOption(*verb, options.run);
  verb->add_option("--prompt", options.prompt, "Text, for models of bytes")->option_text("TEXT");
  verb->add_option("--prompt-ids", options.prompt_ids, "Tokens: 1,2,3")
      ->delimiter(',')
      ->option_text("IDS");
  verb->add_option("--tokens", options.tokens, "Tokens to add at most [32]")
      ->check(CLI::Range(1, kMaxTokens))
      ->option_text("N");
  cli::AddReadingOptions(*verb, options.common);
  cli::AddOutputOptions(*verb, options.common);
  cli::AddExamples(*verb,
                   std::vector<std::string>{
                       "ckpt-train generate --load out --prompt 'Once upon a time'",
                       "ckpt-train generate --init hf:Qwen3-0.6B --prompt-ids 785,6722,315"});
  return verb;
}

CLI::App* AddExperiment(CLI::App& app, ExperimentOptions& options, std::string& which) {
  CLI::App* const verb = app.add_subcommand(
      "experiment", "Save a run, resume it under every mesh, compare; exit 1 if a check fails");
  verb->add_option("EXPERIMENT", which, "reshard")
      ->required()
      ->check(CLI::IsMember({"reshard"}))
      ->option_text(" ");
  verb->add_option("-o,--output", options.output,
                   "Data, metrics, report and picture go there [ckptkit-reshard]")
      ->option_text("DIR");
  verb->add_option("--topologies", options.topologies, "Only these: a to k, back")
      ->delimiter(',')
      ->option_text("NAMES");
  verb->add_option("--steps", options.steps, "Of the source run, until it is saved [100]")
      ->check(CLI::Range(1, kMaxExperimentSteps))
      ->option_text("N");
  verb->add_option("--resume-steps", options.resume_steps, "Of every resumed run [50]")
      ->check(CLI::Range(1, kMaxExperimentSteps))
      ->option_text("N");
  AddDeviceOption(
      *verb, options.device,
      fmt::format("What the ranks compute on; they may share a GPU [{}]", options.device));
  verb->add_flag("--canonical", options.canonical,
                 "Sum in fixed point: every topology must be bit-equal");
  verb->add_flag("--keep", options.keep, "Keep the checkpoints");
  cli::AddReadingOptions(*verb, options.common);
  cli::AddOutputOptions(*verb, options.common);
  cli::AddExamples(*verb, std::vector<std::string>{
                              "ckpt-train experiment reshard",
                              "ckpt-train experiment reshard --topologies c,e,back --steps 20 "
                              "--resume-steps 10 --canonical"});
  return verb;
}

CLI::App* AddExplain(CLI::App& app, ExplainOptions& options) {
  CLI::App* const verb = app.add_subcommand(
      "explain", "Mesh, bytes of every rank and schedule of a run; starts nothing");
  AddRunOptions(*verb, options.run, options.print_config);
  AddLoadOption(*verb, options.run);
  verb->add_option("--rank", options.rank, "The rank whose groups are shown [0]")
      ->check(CLI::Range(0, kMaxRanks))
      ->option_text("R");
  verb->add_option("--cluster", options.cluster,
                   "Forecast the step's time there, and with 1 to 16384 GPUs and every strategy")
      ->option_text("h200x8,ib400");
  cli::AddOutputOptions(*verb, options.common);
  cli::AddExamples(*verb,
                   std::vector<std::string>{
                       "ckpt-train explain --config run.yaml --ranks 64",
                       "ckpt-train explain --init hf:Qwen3-0.6B --ranks 8 --set seq_length=4096",
                       "ckpt-train explain --config run.yaml --ranks 64 --cluster h200x8,ib400"});
  return verb;
}

CLI::App* AddCheck(CLI::App& app, CheckOptions& options) {
  CLI::App* const verb = app.add_subcommand(
      "check", "Loss, logits and gradients of a batch against a reference; exit 1 if they differ");
  AddRunOptions(*verb, options.run, options.print_config);
  AddDeviceOption(*verb, options.run);
  verb->add_option("--reference", options.reference,
                   "input_ids and labels, and any of loss, logits, grad.<parameter>")
      ->required()
      ->option_text("FILE");
  CLI::Option* const tolerance =
      verb->add_option("--tolerance", options.tolerance,
                       "Largest error, relative to a tensor's largest magnitude [1e-5]")
          ->check(CLI::NonNegativeNumber)
          ->option_text("X");
  verb->add_flag(
          "--bf16", options.bf16,
          "Compute the reference's batch in bfloat16, and compare with the CPU, within three "
          "times what rounding does there")
      ->excludes(tolerance);
  cli::AddReadingOptions(*verb, options.common);
  cli::AddOutputOptions(*verb, options.common);
  cli::AddExamples(*verb, std::vector<std::string>{
                              "ckpt-train check --init hf:Qwen3-0.6B --reference qwen3.safetensors",
                              "ckpt-train check --init hf:Mixtral --reference ref.safetensors "
                              "--ranks 2 --set expert_model_parallel_size=2"});
  return verb;
}

CLI::App* AddBench(CLI::App& app, BenchOptions& options) {
  CLI::App* const verb =
      app.add_subcommand("bench", "Times steps of any model: weights and tokens are made up");
  AddRunOptions(*verb, options.run, options.print_config);
  AddDeviceOption(*verb, options.run);
  verb->add_option("--model", options.model,
                   "d1, d2, m1, m2, m3, tiny or tiny-moe, or a file [d1]: config.json, settings")
      ->option_text("NAME|FILE");
  verb->add_option("--tokens-per-rank", options.tokens_per_rank,
                   "Tokens of a step [the file's, or 16384]")
      ->check(CLI::Range(1, kMaxTokens))
      ->option_text("N");
  verb->add_option("--seq", options.seq, "Tokens of a sequence [the file's, or 4096]")
      ->check(CLI::Range(1, kMaxTokens))
      ->option_text("N");
  verb->add_option("--warmup", options.warmup, "Steps before the timed ones [10]")
      ->check(CLI::Range(0, kMaxExperimentSteps))
      ->option_text("N");
  verb->add_option("--steps", options.steps, "Timed steps [30]")
      ->check(CLI::Range(1, kMaxExperimentSteps))
      ->option_text("N");
  verb->add_option("--peak-tflops", options.peak_tflops,
                   "What a rank's device can do; gives the MFU [known of some GPUs]")
      ->check(CLI::PositiveNumber)
      ->option_text("X");
  verb->add_flag(
      "--balanced", options.balanced,
      "Every expert gets the same number of tokens, by a table that any program can make");
  verb->add_flag(
      "--ledger", options.ledger,
      "Record 5 steps more: time, bytes and FLOP of every operation of rank 0, its kernels "
      "on a GPU, and gaps");
  verb->add_flag(
      "--exposed", options.exposed,
      "Time 11 steps more, in which no weights are gathered and no gradients are reduced: "
      "the difference is what communication costs");
  verb->add_option(
          "--time-products", options.time_products,
          "Try algorithms for the products of a step on a GPU, before the timed steps, and "
          "write those with which the whole step is fastest; "
          "--set product_algorithms=FILE takes them")
      ->option_text("FILE");
  verb->add_option("--peak-tbytes", options.peak_tbytes,
                   "What a rank's memory reads and writes in a second, in TB; with the peak of "
                   "arithmetic it gives the ledger's roofline [known of some GPUs]")
      ->check(CLI::PositiveNumber)
      ->option_text("X");
  cli::AddReadingOptions(*verb, options.common);
  cli::AddOutputOptions(*verb, options.common);
  cli::AddExamples(
      *verb, std::vector<std::string>{
                 "ckpt-train bench --model tiny --tokens-per-rank 512 --seq 128 --steps 5",
                 "ckpt-train bench --model tiny-moe --tokens-per-rank 512 --seq 128 --balanced",
                 "ckpt-train bench --model d1 --device cuda --warmup 8 --steps 20 --ledger",
                 "ckpt-train bench --model Qwen3-0.6B/config.json --device cuda",
                 "ckpt-train bench --model d1 --device cuda --time-products d1.products.json",
                 "ckpt-train bench --model d1 --ranks 2 --set overlap_param_gather=true"});
  return verb;
}

template <typename Options>
using RunVerb = Result<cli::ExitCode> (*)(const Options&, Storage&, cli::Streams&);

// `would_run`: other processes, if they did not fail, run their ranks.
template <typename Options>
cli::ExitCode Conclude(RunVerb<Options> run, const Options& options, bool would_run,
                       const CLI::App& verb, cli::Streams& streams) {
  Result<cli::ExitCode> outcome = run(options, PosixStorage(), streams);
  if (outcome.ok()) return cli::Conclude(outcome, options.common.json, streams);
  const Status failure = cli::WithUsableHints(outcome.status(), verb);
  cli::ExitCode code = cli::ExitCodeOf(failure);
  bool has_told = false;
  const auto tell = [&] {
    code = cli::Conclude(failure, options.common.json, streams);
    has_told = true;
  };
  // Processes that are ranks of one run fail alike, and the first one speaks.
  const bool has_others = would_run && trainer::NumLaunchedProcesses() > 1;
  const bool is_told = has_others && trainer::FailTogether(outcome.status(), tell).ok();
  if (!is_told && !has_told) tell();  // alone; or the rank did run, and failed then
  return code;
}

// Parses. The exit code, if that was all: help, or a usage error, which one of the processes that
// are ranks of one run says.
std::optional<cli::ExitCode> Parse(CLI::App& app, const std::vector<std::string>& args,
                                   cli::Streams& streams) {
  if (trainer::NumLaunchedProcesses() == 1) return cli::ParseArguments(app, args, "train", streams);
  cli::StringOutput out;
  cli::StringOutput err;
  cli::Streams kept = {.out = out, .err = err};
  const std::optional<cli::ExitCode> ended = cli::ParseArguments(app, args, "train", kept);
  if (!ended) return ended;
  const auto tell = [&] {
    streams.out.Write(out.text());
    streams.err.Write(err.text());
    (void)(streams.out.Flush().ok() && streams.err.Flush().ok());  // nowhere is left to tell it
  };
  const Status no_run = Error(ErrorKind::kUsage, "the command line asks for no run");
  if (!trainer::FailTogether(no_run, tell).ok()) tell();
  return ended;
}

cli::ExitCode Main(const std::vector<std::string>& args, cli::Streams& streams) {
  CLI::App app("Trains language models, sharded over ranks.", "ckpt-train");
  app.set_version_flag("--version", cli::VersionText("ckpt-train"));
  app.require_subcommand(1);

  TrainOptions train;
  const CLI::App* const train_app = AddTrain(app, train);
  EvaluateOptions evaluate;
  const CLI::App* const evaluate_app = AddEvaluate(app, evaluate);
  ExperimentOptions experiment;
  std::string which_experiment;
  const CLI::App* const experiment_app = AddExperiment(app, experiment, which_experiment);
  GenerateOptions generate;
  const CLI::App* const generate_app = AddGenerate(app, generate);
  ExplainOptions explain;
  const CLI::App* const explain_app = AddExplain(app, explain);
  CheckOptions check;
  const CLI::App* const check_app = AddCheck(app, check);
  BenchOptions bench;
  const CLI::App* const bench_app = AddBench(app, bench);

  if (const auto ended = Parse(app, args, streams)) return *ended;
  if (bench_app->parsed()) {
    return Conclude(RunBench, bench, !bench.print_config, *bench_app, streams);
  }
  if (evaluate_app->parsed()) {
    return Conclude(RunEvaluate, evaluate, !evaluate.print_config, *evaluate_app, streams);
  }
  if (experiment_app->parsed()) {
    return Conclude(RunReshard, experiment, false, *experiment_app, streams);
  }
  if (generate_app->parsed()) {
    return Conclude(RunGenerate, generate, !generate.print_config, *generate_app, streams);
  }
  if (explain_app->parsed()) {
    return Conclude(RunExplain, explain, false, *explain_app, streams);
  }
  if (check_app->parsed()) {
    return Conclude(RunCheck, check, !check.print_config, *check_app, streams);
  }
  return Conclude(RunTrain, train, !train.print_config, *train_app, streams);
}

}  // namespace
}  // namespace ckpt::train

int main(int argc, char** argv) {
  ckpt::cli::Streams streams = ckpt::cli::ProcessStreams();
  return static_cast<int>(ckpt::cli::RunTool(ckpt::train::Main, {argv + 1, argv + argc}, streams));
}
