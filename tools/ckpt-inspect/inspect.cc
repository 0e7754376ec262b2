#include "tools/ckpt-inspect/inspect.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "converters/families/known_namings.h"
#include "core/base/counted.h"
#include "core/base/text_number.h"
#include "formats/registry/registry.h"
#include "tools/ckpt-inspect/commands.h"
#include "tools/ckpt-inspect/covered_directory.h"
#include "tools/ckpt-inspect/health.h"
#include "tools/cli/command_line.h"
#include "tools/cli/error_report.h"
#include "tools/cli/reporting.h"
#include "tools/cli/version.h"

namespace ckpt::inspect {
namespace {

constexpr std::array kAlgorithms = {HashAlgorithm::kXxh3, HashAlgorithm::kSha256};
constexpr std::size_t kMaxTalk = 20;  // findings that other verbs print; `verify` lists all

// With a tolerance that is no number, or no end, everything would be equal or nothing.
std::string RefuseTolerance(const std::string& word) {
  const std::optional<double> value = ParseNumber<double>(word);
  return value && std::isfinite(*value) && *value >= 0 ? "" : "a tolerance is a number >= 0";
}

// One parse of the command line: the options, and the verb that it chose.
class CommandLine {
 public:
  explicit CommandLine(Storage& storage);

  cli::ExitCode Run(const std::vector<std::string>& args, Streams& streams);

 private:
  using Verb = std::function<Result<ExitCode>(const ListedCheckpoint&, Streams&)>;

  CLI::App& AddVerb(const std::string& name, const std::string& purpose,
                    std::span<const std::string> examples, Verb run);
  void AddSummary();
  void AddTensors();
  void AddShow();
  void AddShards();
  void AddVerify();
  void AddRepair();
  void AddDigest();
  void AddMeta();
  void AddDiff();
  void AddPlan();
  void AddHtml();

  Result<ExitCode> Repair(Streams& streams);
  Result<ExitCode> Diff(Streams& streams);
  Result<ExitCode> OpenAndRun(Streams& streams);

  Storage& storage_;
  CLI::App app_{"Shows, checks and digests checkpoints of any format.", "ckpt-inspect"};
  std::map<std::string, Verb> verbs_;
  std::string path_;
  std::optional<std::int64_t> iteration_;
  std::string format_;
  CommonOptions common_;
  // Options of single verbs. `common` is filled in when a verb runs.
  TensorsOptions tensors_;
  ShowOptions show_;
  ShardsOptions shards_;
  VerifyOptions verify_;
  RepairOptions repair_;
  std::string repair_target_;
  DigestOptions digest_;
  std::string digest_assets_;
  PlanOptions plan_;
  std::string plan_assets_;
  HtmlOptions html_;
  std::string html_output_;
  DiffOptions diff_;
  std::string diff_a_;
  std::string diff_b_;
  std::string diff_mapping_;
  std::string diff_assets_;
  std::optional<double> atol_;
  std::optional<double> rtol_;
};

CommandLine::CommandLine(Storage& storage) : storage_(storage) {
  app_.set_version_flag("--version", cli::VersionText("ckpt-inspect"));
  app_.require_subcommand(1);
  app_.get_formatter()->column_width(30);
  AddSummary();
  AddTensors();
  AddShow();
  AddShards();
  AddVerify();
  AddRepair();
  AddDigest();
  AddMeta();
  AddDiff();
  AddPlan();
  AddHtml();
  const std::array<std::string, 2> examples = {"ckpt-inspect run7/checkpoints",
                                               "ckpt-inspect digest --json Qwen3-0.6B"};
  cli::AddExamples(app_, examples);
}

CLI::App& CommandLine::AddVerb(const std::string& name, const std::string& purpose,
                               std::span<const std::string> examples, Verb run) {
  CLI::App& verb = *app_.add_subcommand(name, purpose);
  verb.add_option("PATH", path_,
                  "A checkpoint directory, a Megatron root, a folder of step-N, "
                  "a Hugging Face repository, or one file")
      ->required()
      ->option_text(" ");
  verb.add_option("--format", format_, "Open as this format [detected]")
      ->option_text(fmt::format("{}", fmt::join(FormatNames(), "|")));
  verb.add_option("--iteration", iteration_, "Which checkpoint under a root")->option_text("N");
  cli::AddOutputOptions(verb, common_);
  cli::AddExamples(verb, examples);
  verbs_[name] = std::move(run);
  return verb;
}

void CommandLine::AddSummary() {
  const std::array<std::string, 2> examples = {
      "ckpt-inspect run7/checkpoints",
      "ckpt-inspect summary --iteration 100 --json run7/checkpoints"};
  AddVerb("summary", "Format, counts, sizes and topology (the default verb)", examples,
          [this](const ListedCheckpoint& checkpoint, Streams& streams) {
            return RunSummary(checkpoint, {.common = common_}, streams);
          });
}

void CommandLine::AddTensors() {
  const std::array<std::string, 2> examples = {
      "ckpt-inspect tensors run7/step-100",
      "ckpt-inspect tensors --match '*.mlp.*' --json model.safetensors"};
  AddVerb("tensors", "Every tensor with shape, dtype, size, chunks and files; every object",
          examples,
          [this](const ListedCheckpoint& checkpoint, Streams& streams) {
            tensors_.common = common_;
            return RunTensors(checkpoint, tensors_, streams);
          })
      .add_option("--match", tensors_.match, "Only keys that match this pattern")
      ->option_text("GLOB");
}

void CommandLine::AddShow() {
  const std::array<std::string, 2> examples = {
      "ckpt-inspect show run7 iteration", "ckpt-inspect show model.pt embed.weight --slice 0:2,3"};
  CLI::App& verb = AddVerb("show", "The values of one tensor, or one object", examples,
                           [this](const ListedCheckpoint& checkpoint, Streams& streams) {
                             show_.common = common_;
                             return RunShow(checkpoint, show_, streams);
                           });
  verb.add_option("KEY", show_.key, "Name of the tensor or object")->required()->option_text(" ");
  verb.add_option("--slice", show_.slice, "Part of the tensor, as in numpy (no steps)")
      ->option_text("0:2,3");
  cli::AddReadingOptions(verb, common_);
}

void CommandLine::AddShards() {
  const std::array<std::string, 2> examples = {
      "ckpt-inspect shards run7/step-100",
      "ckpt-inspect shards --match 'model.embed*' --json run7"};
  AddVerb("shards", "Every chunk: which part of which tensor lies where", examples,
          [this](const ListedCheckpoint& checkpoint, Streams& streams) {
            shards_.common = common_;
            return RunShards(checkpoint, shards_, streams);
          })
      .add_option("--match", shards_.match, "Only keys that match this pattern")
      ->option_text("GLOB");
}

void CommandLine::AddVerify() {
  const std::array<std::string, 2> examples = {
      "ckpt-inspect verify run7", "ckpt-inspect verify --quick --json run7/iter_0000100"};
  CLI::App& verb =
      AddVerb("verify", "Check everything that the checkpoint can prove; exit 1 if it is damaged",
              examples, [this](const ListedCheckpoint& checkpoint, Streams& streams) {
                verify_.common = common_;
                return RunVerify(storage_, checkpoint, verify_, streams);
              });
  verb.add_flag("--quick", verify_.quick, "Metadata only");
  cli::AddReadingOptions(verb, common_);
}

// It does not open the checkpoint: it repairs what the checkpoint's own format can no longer read.
void CommandLine::AddRepair() {
  const std::array<std::string, 2> examples = {
      "ckpt-inspect repair run7 -o run7-repaired",
      "ckpt-inspect repair --json out/qwen3 -o out/qwen3-repaired"};
  CLI::App& verb = *app_.add_subcommand(
      "repair",
      "Write a repaired copy: flipped bits by checksum, the rest by parity; exit 1 if it cannot");
  verb.add_option("PATH", path_, "A checkpoint with a ckptkit.json: its directory, or a root")
      ->required()
      ->option_text(" ");
  verb.add_option("-o,--output", repair_target_, "Where the repaired copy goes")
      ->required()
      ->option_text("DIR");
  verb.add_option("--iteration", iteration_, "Which checkpoint under a root")->option_text("N");
  cli::AddReadingOptions(verb, common_);
  cli::AddOutputOptions(verb, common_);
  cli::AddExamples(verb, examples);
}

void CommandLine::AddDigest() {
  const std::array<std::string, 2> examples = {"ckpt-inspect digest --algorithm sha256 --json run7",
                                               "ckpt-inspect digest --as hf run7/release"};
  CLI::App& verb = AddVerb("digest", "Hashes of the logical tensors, whatever their layout on disk",
                           examples, [this](const ListedCheckpoint& checkpoint, Streams& streams) {
                             digest_.common = common_;
                             digest_.assets = digest_assets_;
                             return RunDigest(checkpoint, digest_, streams);
                           });
  std::vector<std::string> algorithms;
  for (const HashAlgorithm algorithm : kAlgorithms) algorithms.emplace_back(HashName(algorithm));
  const auto choose = [this](const std::string& word) {
    digest_.algorithm = *std::ranges::find(kAlgorithms, word, HashName);
  };
  cli::TakeOneOf(verb.add_option_function<std::string>("--algorithm", choose,
                                                       "Hash; xxh3 has 128 bits [xxh3]"),
                 algorithms);
  verb.add_option("--match", digest_.match, "Only keys that match this pattern")
      ->option_text("GLOB");
  std::vector<std::string> words;
  for (const KnownNaming& naming : KnownNamings()) words.emplace_back(naming.word);
  cli::TakeOneOf(verb.add_option("--as", digest_.as, "The model under another naming"), words);
  verb.add_option("--hf-assets", digest_assets_,
                  "Directory with config.json, if the checkpoint has none")
      ->needs("--as")
      ->option_text("DIR");
  cli::AddReadingOptions(verb, common_);
}

void CommandLine::AddMeta() {
  const std::array<std::string, 2> examples = {"ckpt-inspect meta run7",
                                               "ckpt-inspect meta --json model.pt"};
  AddVerb("meta", "Every object with its value; for a torch.save file, all its content", examples,
          [this](const ListedCheckpoint& checkpoint, Streams& streams) {
            return RunMeta(checkpoint, {.common = common_}, streams);
          });
}

// It opens two checkpoints, and both even if they are damaged.
void CommandLine::AddDiff() {
  const std::array<std::string, 3> examples = {
      "ckpt-inspect diff Qwen3-0.6B out/qwen3-megatron",
      "ckpt-inspect diff --atol 1e-6 --rtol 1e-5 run7/iter_0000100 run8/iter_0000100",
      "ckpt-inspect diff --json --match '*.mlp.*' a.safetensors b.pt"};
  CLI::App& verb = *app_.add_subcommand(
      "diff",
      "Which tensors and settings of two checkpoints differ, where and by how much; exit 1 if any "
      "does");
  verb.add_option("A", diff_a_, "A checkpoint of any format")->required()->option_text(" ");
  verb.add_option("B", diff_b_, "Another one, of any format and naming")
      ->required()
      ->option_text(" ");
  verb.add_option("--atol", atol_, "Equal if |a - b| <= ATOL + RTOL * |b| [equal bits]")
      ->check(RefuseTolerance)
      ->option_text("ATOL");
  verb.add_option("--rtol", rtol_, "The part of it that grows with |b| [equal bits]")
      ->check(RefuseTolerance)
      ->option_text("RTOL");
  verb.add_option("--match", diff_.match, "Only keys that match this pattern, in A's terms")
      ->option_text("GLOB");
  verb.add_option("--map", diff_mapping_,
                  "Compare models by this layout table instead of the built-in ones")
      ->option_text("FILE");
  verb.add_option(
          "--hf-assets", diff_assets_,
          "Compare models; where a side has no config.json, it is the one in this directory")
      ->option_text("DIR");
  cli::AddReadingOptions(verb, common_);
  cli::AddOutputOptions(verb, common_);
  cli::AddExamples(verb, examples);
}

void CommandLine::AddPlan() {
  const std::array<std::string, 2> examples = {
      "ckpt-inspect plan --mesh dp=8,hsdp=2,ep=4 run7",
      "ckpt-inspect plan --mesh dp=16384,ep=64 --json DeepSeek-V3"};
  CLI::App& verb =
      AddVerb("plan", "What each rank of a run would read to load it, and the memory it takes",
              examples, [this](const ListedCheckpoint& checkpoint, Streams& streams) {
                plan_.common = common_;
                plan_.assets = plan_assets_;
                return RunPlan(storage_, checkpoint, plan_, streams);
              });
  verb.add_option("--mesh", plan_.mesh,
                  "Ranks (dp), replicas of the shards (hsdp; hfsdp: which divide the optimizer "
                  "again), ranks that divide the experts (ep), sharding=optim|optim_grads|no_shard")
      ->required()
      ->option_text("dp=8,hsdp=2,ep=4");
  verb.add_option("--hf-assets", plan_assets_,
                  "Directory with config.json, if the checkpoint has none")
      ->option_text("DIR");
  verb.add_option("--threads", common_.threads, "Worker threads; 0: one per core")
      ->check(CLI::NonNegativeNumber)
      ->option_text("N [0]");
}

void CommandLine::AddHtml() {
  const std::array<std::string, 1> examples = {"ckpt-inspect html -o run7.html run7/checkpoints"};
  CLI::App& verb = AddVerb("html", "One page for a browser: shard map, sizes, tensors to search",
                           examples, [this](const ListedCheckpoint& checkpoint, Streams& streams) {
                             html_.common = common_;
                             html_.path = path_;
                             html_.output = html_output_;
                             return RunHtml(storage_, checkpoint, html_, streams);
                           });
  verb.add_option("-o,--output", html_output_, "Where the page goes")
      ->required()
      ->option_text("FILE");
  verb.add_flag("--overwrite", html_.overwrite, "Replace a file that is there");
}

// The problems without those that are reasons for `failure`, which is printed as well.
std::vector<Problem> Untold(std::vector<Problem> problems, const Status& failure) {
  const auto facts = [](const Problem& p) { return std::tie(p.kind, p.message, p.file, p.tensor); };
  std::erase_if(problems, [&](const Problem& problem) {
    return std::ranges::any_of(
        failure.problems(), [&](const Problem& reason) { return facts(reason) == facts(problem); });
  });
  return problems;
}

// Verbs that do not list findings themselves print them to standard error: warnings, and errors if
// the verb does not refuse the tensors they concern.
void TellProblems(const std::vector<Problem>& problems, bool with_errors, Streams& streams) {
  std::size_t count = 0;
  for (const auto& [problem, tensors] : cli::Report(problems)) {
    if (problem.severity == Severity::kError && !with_errors) continue;
    if (++count <= kMaxTalk) cli::PrintProblem(problem, streams);
  }
  if (count > kMaxTalk) {
    streams.err.Write(fmt::format("and {} more: see ckpt-inspect verify\n", count - kMaxTalk));
  }
}

// Whether damaged bytes may be the reason that a checkpoint could not be opened, rather than the
// call or the system. A length that a flipped bit made absurd is refused as kResource.
bool MayBeDamage(const Status& status) {
  const ErrorKind kind = status.kind();
  return kind != ErrorKind::kUsage && !IsUnread(kind);
}

Result<ExitCode> CommandLine::Repair(Streams& streams) {
  repair_.common = common_;
  repair_.path = path_;
  repair_.iteration = iteration_;
  repair_.target = repair_target_;
  cli::TellResources(common_, streams);
  return RunRepair(storage_, repair_, streams);
}

Result<ExitCode> CommandLine::Diff(Streams& streams) {
  diff_.common = common_;
  diff_.a = diff_a_;
  diff_.b = diff_b_;
  diff_.mapping = diff_mapping_;
  diff_.assets = diff_assets_;
  diff_.tolerance = {
      .exact = !atol_ && !rtol_, .absolute = atol_.value_or(0), .relative = rtol_.value_or(0)};
  cli::TellResources(common_, streams);
  return RunDiff(storage_, diff_, streams);
}

Result<ExitCode> CommandLine::OpenAndRun(Streams& streams) {
  const CLI::App& chosen = *app_.get_subcommands().front();
  const std::string verb = chosen.get_name();
  if (verb == "repair") return Repair(streams);
  if (verb == "diff") return Diff(streams);
  // `verify` compares everything itself, and names all damage rather than the first.
  Result<OpenedCheckpoint> opened =
      OpenCheckpoint(storage_, Path(path_),
                     {.format = format_, .iteration = iteration_, .verify = verb != "verify"});
  if (!opened.ok() && verb == "verify" && !verify_.quick && MayBeDamage(opened.status())) {
    // The manifest can say what is damaged even if the format's own metadata cannot be read.
    const Result<Path> covered = FindCoveredDirectory(storage_, Path(path_), iteration_);
    verify_.common = common_;
    if (covered.ok()) {
      return RunVerifyUnopened(storage_, *covered, opened.status(), verify_, streams);
    }
  }
  CKPT_RETURN_IF_ERROR(opened.status());
  // `verify` finds missing files itself.
  const ListedCheckpoint checkpoint = verb == "verify" ? ListedCheckpoint{*std::move(opened), {}}
                                                       : ListProblems(*std::move(opened));
  const CheckpointIndex& index = checkpoint.source->index();
  cli::Tell(common_, "format",
            fmt::format(
                "{} at {}: {} in {}, {}, {}", checkpoint.format->name, checkpoint.path.string(),
                Counted(index.tensors().size(), "tensor"), Counted(index.chunks().size(), "chunk"),
                Counted(index.objects().size(), "object"), Counted(index.files().size(), "file")),
            streams);
  if (chosen.get_option_no_throw("--threads") != nullptr) cli::TellResources(common_, streams);
  const bool lists_problems = verb == "summary" || verb == "verify";
  const bool refuses = verb == "digest" || verb == "show" || verb == "plan";
  Result<ExitCode> outcome = verbs_.at(verb)(checkpoint, streams);
  if (!lists_problems && !common_.quiet) {
    TellProblems(Untold(checkpoint.problems, outcome.status()), !refuses, streams);
  }
  return outcome;
}

cli::ExitCode CommandLine::Run(const std::vector<std::string>& args, Streams& streams) {
  if (const auto done = cli::ParseArguments(app_, args, "summary", streams)) return *done;
  return cli::Conclude(OpenAndRun(streams), common_.json, streams);
}

}  // namespace

cli::ExitCode RunInspect(const std::vector<std::string>& args, Storage& storage, Streams& streams) {
  return CommandLine(storage).Run(args, streams);
}

}  // namespace ckpt::inspect
