#include "tools/ckpt-train/cmd_bench.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "converters/config/hf_config.h"
#include "converters/config/model_settings.h"
#include "core/base/task_pool.h"
#include "core/base/units.h"
#include "core/json/json_reader.h"
#include "core/layout/find_value.h"
#include "tools/ckpt-train/run_setup.h"
#include "tools/ckpt-train/yaml_settings.h"
#include "tools/cli/reporting.h"
#include "trainer/backend/backend_options.h"
#include "trainer/bench/bench_model.h"
#include "trainer/bench/bench_run.h"
#include "trainer/comm/world.h"
#include "trainer/ledger/recorded_ops.h"
#include "trainer/model/flops.h"
#include "trainer/run/format_settings.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {
namespace {

constexpr std::int64_t kLedgerSteps = 5;
constexpr std::int64_t kExposedSteps = 11;  // of which the first is not counted
constexpr std::int64_t kSeq = 4096;
constexpr std::int64_t kTokensPerRank = 16384;
constexpr std::uint64_t kMaxModelFileBytes = 64 * kMiB;

// What is timed.
struct Timed {
  layout::Configuration given;  // settings
  layout::Configuration model;  // of a Hugging Face config.json: apply where `given` says nothing
  bool is_named = false;        // one of the benchmark's models
};

// Whether the text is a config.json and not settings, which as YAML may be JSON too.
bool IsHfConfig(const std::string& text, const std::string& name) {
  const Result<JsonDocument> json = JsonDocument::Parse(text, name);
  return json.ok() && (json->root().Find("model_type") || json->root().Find("architectures"));
}

Result<Timed> ReadModelFile(Storage& storage, const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(storage, path, kMaxModelFileBytes));
  Timed timed;
  if (IsHfConfig(text, path.string())) {
    CKPT_ASSIGN_OR_RETURN(const layout::Configuration config, ParseHfConfig(text, path.string()));
    CKPT_ASSIGN_OR_RETURN(timed.model, ModelSettings(config));
  } else {
    CKPT_ASSIGN_OR_RETURN(timed.given, ParseYamlSettings(text, path.string()));
  }
  return timed;
}

Result<Timed> FindModel(Storage& storage, const std::string& model) {
  if (std::optional<layout::Configuration> settings = BenchSettings(model)) {
    return Timed{.given = *std::move(settings), .model = {}, .is_named = true};
  }
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(model));
  if (stat.type == FileType::kRegular) return ReadModelFile(storage, model);
  return Error(ErrorKind::kUsage, "the benchmark has no such model")
      .Expected(fmt::format("one of {}, a config.json or a file of settings",
                            fmt::join(BenchModelNames(), ", ")))
      .Actual(model);
}

// The model, and a step of one micro-batch a rank, in bfloat16 unless its file says another thing.
// The settings `given` stand over it.
Result<Timed> WhatIsTimed(Storage& storage, const BenchOptions& options,
                          const layout::Configuration& given, int num_ranks) {
  CKPT_ASSIGN_OR_RETURN(Timed timed, FindModel(storage, options.model));
  layout::Configuration& settings = timed.given;
  const std::int64_t seq =
      options.seq.value_or(layout::FindInt(settings, "seq_length").value_or(kSeq));
  const std::optional<std::int64_t> rows_of_file = layout::FindInt(settings, "micro_batch_size");
  const std::int64_t tokens =
      options.tokens_per_rank.value_or(rows_of_file ? *rows_of_file * seq : kTokensPerRank);
  if (seq < 1 || tokens < 1 || tokens % seq != 0) {
    return Error(ErrorKind::kUsage, "a step does not consist of whole sequences")
        .Expected(fmt::format("a multiple of --seq {} as --tokens-per-rank", seq))
        .Actual(fmt::format("{}", tokens));
  }
  if (!settings.contains("params_dtype")) settings.emplace("bf16", true);
  settings.insert_or_assign("seq_length", seq);
  settings.insert_or_assign("micro_batch_size", tokens / seq);
  settings.insert_or_assign("global_batch_size", tokens / seq * num_ranks);
  for (const auto& [name, value] : given) settings.insert_or_assign(name, value);
  return timed;
}

// The experts of a micro-batch's tokens; empty: the router chooses.
Result<std::vector<std::int32_t>> ExpertsOf(const BenchOptions& options,
                                            const trainer::TrainConfig& config) {
  if (!options.balanced) return std::vector<std::int32_t>();
  const auto& moe = config.model.moe;
  if (!moe) {
    return Error(ErrorKind::kUsage, "--balanced is for models with experts").Actual(options.model);
  }
  Status refused;
  const auto refuse = [&](const char* setting) {
    refused.Add(
        Error(ErrorKind::kUsage, fmt::format("with --balanced, {} has no effect", setting)));
  };
  if (moe->router.num_groups > 1) refuse("moe_router_num_groups");
  if (moe->expert_bias) refuse("moe_router_enable_expert_bias");
  if (!refused.ok()) return refused;
  return BalancedExperts(static_cast<std::uint32_t>(config.seed),
                         config.micro_batch_size * config.seq_length, moe->num_experts,
                         moe->router.topk);
}

// Before any step is computed.
Status CheckTimeProducts(const BenchOptions& options, const trainer::TrainConfig& config,
                         int num_ranks, Storage& storage) {
  if (options.time_products.empty()) return OkStatus();
  if (num_ranks != 1) {
    return Error(ErrorKind::kUsage, "--time-products is for one rank")
        .Actual(fmt::format("{} ranks", num_ranks))
        .Hint("every rank of a run takes the file: --set product_algorithms=FILE");
  }
  if (!config.product_algorithms.empty()) {
    return Error(ErrorKind::kUsage,
                 "--time-products chooses what product_algorithms has chosen already")
        .Actual(config.product_algorithms);
  }
  CKPT_ASSIGN_OR_RETURN(const FileStat stat, storage.Stat(options.time_products));
  if (stat.type == FileType::kMissing) return OkStatus();
  return Error(ErrorKind::kAlreadyExists, "the file of --time-products exists")
      .File(options.time_products);
}

// The file of a trial. It is there before the first step, so that a path that cannot be written
// does not cost a trial, and it goes if no trial fills it.
class TrialFile {
 public:
  static Result<std::unique_ptr<TrialFile>> Create(Storage& storage, const Path& path) {
    CKPT_RETURN_IF_ERROR(WriteSmallFile(storage, path, {}));
    return std::unique_ptr<TrialFile>(new TrialFile(storage, path));
  }
  ~TrialFile() {
    if (!is_filled_) (void)storage_.RemoveAll(path_);
  }
  TrialFile(const TrialFile&) = delete;
  TrialFile& operator=(const TrialFile&) = delete;

  Status Fill(const trainer::ProductTrial& trial) {
    const std::string chosen = FormatProductAlgorithms(trial.Chosen());
    CKPT_RETURN_IF_ERROR(ReplaceSmallFile(storage_, path_, AsBytes(chosen)));
    is_filled_ = true;
    return OkStatus();
  }

 private:
  TrialFile(Storage& storage, Path path) : storage_(storage), path_(std::move(path)) {}

  Storage& storage_;
  const Path path_;
  bool is_filled_ = false;
};

BenchPlan PlanOf(const BenchOptions& options, const trainer::TrainConfig& config, bool is_named,
                 int num_ranks, trainer::ProductTrial* trial) {
  return {.warmup = options.warmup,
          .steps = options.steps,
          .ledger_steps = options.ledger ? kLedgerSteps : 0,
          .steps_without_transfers = options.exposed ? kExposedSteps : 0,
          .peaks = {.flops = options.peak_tflops * 1e12, .bytes = options.peak_tbytes * 1e12},
          .has_bench_weights = is_named,
          .product_trial = trial,
          .tokens = {.seed = static_cast<std::uint32_t>(config.seed),
                     .vocab_size = config.model.vocab_size,
                     .seq = config.seq_length,
                     .rows_of_rank = config.micro_batch_size,
                     .num_ranks = num_ranks}};
}

// What every rank of this process times.
struct BenchInput {
  const trainer::TrainConfig& config;
  const BenchPlan& plan;
  std::string device;                 // name of a backend
  std::vector<std::int32_t> experts;  // those of ExpertsOf
  int threads = 1;                    // of a rank
};

// `progress` counts the steps of rank 0.
Result<BenchTimes> TimeOnRank(const BenchInput& input, trainer::HostGroup& world,
                              ProgressSink* progress) {
  trainer::BackendOptions backend_options =
      trainer::BackendOptionsOf(input.config, input.device, input.threads);
  backend_options.product_trial = input.plan.product_trial;
  CKPT_ASSIGN_OR_RETURN(const trainer::Backend backend,
                        trainer::MakeBackend(backend_options, world));
  trainer::RecordedOps recorded(*backend.ops);
  const bool is_first = world.rank() == 0;
  const bool records = input.plan.ledger_steps > 0 && is_first;
  CKPT_ASSIGN_OR_RETURN(const auto trainer, trainer::RankTrainer::Create(
                                                input.config, world,
                                                {.device = backend.device.get(),
                                                 .ops = records ? &recorded : backend.ops.get(),
                                                 .host_threads = input.threads,
                                                 .assigned_experts = input.experts}));
  return TimeSteps(input.plan, *trainer, *backend.device, records ? &recorded : nullptr,
                   world.rank(), is_first ? progress : nullptr);
}

// The times of rank 0, where it is one of this process.
Result<std::optional<BenchTimes>> TimeOnRanks(const BenchInput& input,
                                              const trainer::WorldOptions& world_options,
                                              const cli::CommonOptions& common,
                                              cli::Streams& streams) {
  const std::unique_ptr<ProgressSink> progress = cli::MakeProgress(common, streams);
  std::optional<BenchTimes> times;
  CKPT_RETURN_IF_ERROR(trainer::RunWorld(world_options, [&](trainer::HostGroup& world) -> Status {
    CKPT_ASSIGN_OR_RETURN(BenchTimes mine, TimeOnRank(input, world, progress.get()));
    if (world.rank() == 0) times = std::move(mine);
    return OkStatus();
  }));
  return times;
}

BenchReport ReportOf(const BenchInput& input, const std::string& model, BenchTimes times) {
  const BenchTokens& tokens = input.plan.tokens;
  return {.model = model,
          .device = input.device,
          .num_ranks = tokens.num_ranks,
          .seq = tokens.seq,
          .tokens_of_rank = tokens.seq * tokens.rows_of_rank,
          .flops_per_token = trainer::TrainingFlopsPerToken(input.config.model, tokens.seq),
          .times = std::move(times)};
}

}  // namespace

Result<cli::ExitCode> RunBench(const BenchOptions& options, Storage& storage,
                               cli::Streams& streams) {
  const int num_ranks = NumRanks(options.run);
  if (options.exposed && num_ranks == 1) {
    return Error(ErrorKind::kUsage, "with one rank, --exposed has no effect")
        .Hint("--ranks 2 communicates");
  }
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration given, GivenSettings(storage, options.run));
  CKPT_ASSIGN_OR_RETURN(const Timed timed, WhatIsTimed(storage, options, given, num_ranks));
  CKPT_ASSIGN_OR_RETURN(RunConfig run,
                        ResolveRun(storage, timed.given, num_ranks, {.model = timed.model}));
  CKPT_RETURN_IF_ERROR(CheckTimeProducts(options, run.train, num_ranks, storage));
  run.train.optimizer.decay_all = timed.is_named;  // as the other trainer does
  if (options.print_config) {
    streams.out.Write(FormatSettings(run.effective));
    return cli::ExitCode::kDone;
  }

  CKPT_ASSIGN_OR_RETURN(const std::string device,
                        ChooseDevice(run.train, options.run.device, options.common, streams));
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::int32_t> experts, ExpertsOf(options, run.train));
  trainer::ProductTrial trial;
  std::unique_ptr<TrialFile> file;
  if (!options.time_products.empty()) {
    CKPT_ASSIGN_OR_RETURN(file, TrialFile::Create(storage, options.time_products));
  }
  const BenchPlan plan =
      PlanOf(options, run.train, timed.is_named, num_ranks, file == nullptr ? nullptr : &trial);
  const int threads = options.common.threads == 0 ? DefaultThreads() : options.common.threads;
  const BenchInput input = {.config = run.train,
                            .plan = plan,
                            .device = device,
                            .experts = experts,
                            .threads = std::max(1, threads / num_ranks)};
  CKPT_ASSIGN_OR_RETURN(
      std::optional<BenchTimes> times,
      TimeOnRanks(input,
                  {.num_ranks = options.run.ranks == 0 ? num_ranks : options.run.ranks,
                   .from_threads = run.train.overlaps_on_host(),
                   .timeout = run.loop.timeout},
                  options.common, streams));
  if (!times) return cli::ExitCode::kDone;

  const BenchReport report = ReportOf(input, options.model, *std::move(times));
  streams.out.Write(options.common.json ? BenchJson(report) : BenchText(report));
  if (file != nullptr) CKPT_RETURN_IF_ERROR(file->Fill(trial));
  return cli::ExitCode::kDone;
}

}  // namespace ckpt::train
