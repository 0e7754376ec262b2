// ckpt-train: the sharded trainer. Parses and dispatches.

#include <exception>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/io/posix_storage.h"
#include "tools/ckpt-train/cmd_check.h"
#include "tools/ckpt-train/cmd_explain.h"
#include "tools/cli/command_line.h"
#include "tools/cli/error_report.h"
#include "tools/cli/streams.h"
#include "tools/cli/version.h"

namespace ckpt::train {
namespace {

constexpr int kMaxRanks = 1 << 20;

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

int Main(int argc, char** argv) {
  cli::Streams streams = cli::ProcessStreams();
  CLI::App app("Trains language models, sharded over ranks.", "ckpt-train");
  app.set_version_flag("--version", cli::VersionText("ckpt-train"));
  app.require_subcommand(1);

  ExplainOptions explain;
  CLI::App* const explain_app = app.add_subcommand(
      "explain", "Mesh, bytes of every rank and schedule of a run; starts nothing");
  AddRunOptions(*explain_app, explain.run, explain.print_config);
  explain_app->add_option("--rank", explain.rank, "The rank whose groups are shown [0]")
      ->check(CLI::Range(0, kMaxRanks))
      ->option_text("R");
  cli::AddOutputOptions(*explain_app, explain.common);
  cli::AddExamples(*explain_app,
                   std::vector<std::string>{
                       "ckpt-train explain --config run.yaml --ranks 64",
                       "ckpt-train explain --init hf:Qwen3-0.6B --ranks 8 --set seq_length=4096"});

  CheckOptions check;
  CLI::App* const check_app = app.add_subcommand(
      "check", "Loss, logits and gradients of a batch against a reference; exit 1 if they differ");
  AddRunOptions(*check_app, check.run, check.print_config);
  check_app
      ->add_option("--reference", check.reference,
                   "input_ids and labels, and any of loss, logits, grad.<parameter>")
      ->required()
      ->option_text("FILE");
  check_app
      ->add_option("--tolerance", check.tolerance,
                   "Largest error, relative to a tensor's largest magnitude [1e-5]")
      ->check(CLI::NonNegativeNumber)
      ->option_text("X");
  cli::AddReadingOptions(*check_app, check.common);
  cli::AddOutputOptions(*check_app, check.common);
  cli::AddExamples(*check_app,
                   std::vector<std::string>{
                       "ckpt-train check --init hf:Qwen3-0.6B --reference qwen3.safetensors",
                       "ckpt-train check --init hf:Mixtral --reference ref.safetensors --ranks 2 "
                       "--set expert_model_parallel_size=2"});

  const std::optional<cli::ExitCode> ended =
      cli::ParseArguments(app, std::vector<std::string>(argv + 1, argv + argc), "", streams);
  if (ended) return static_cast<int>(*ended);
  if (explain_app->parsed()) {
    return static_cast<int>(
        cli::Conclude(RunExplain(explain, PosixStorage(), streams), explain.common.json, streams));
  }
  return static_cast<int>(
      cli::Conclude(RunCheck(check, PosixStorage(), streams), check.common.json, streams));
}

}  // namespace
}  // namespace ckpt::train

int main(int argc, char** argv) {
  try {
    return ckpt::train::Main(argc, argv);
  } catch (const std::exception& error) {
    // Our code throws nothing: what arrives here is a bug, or memory that ran out.
    ckpt::cli::Streams streams = ckpt::cli::ProcessStreams();
    const ckpt::Status status = ckpt::Error(ckpt::ErrorKind::kInternal, error.what());
    return static_cast<int>(ckpt::cli::Conclude(status, false, streams));
  }
}
