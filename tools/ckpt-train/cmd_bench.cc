#include "tools/ckpt-train/cmd_bench.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/exec/task_pool.h"
#include "tools/cli/reporting.h"
#include "trainer/backend/backend_options.h"
#include "trainer/bench/bench_model.h"
#include "trainer/bench/bench_run.h"
#include "trainer/comm/world.h"
#include "trainer/model/flops.h"
#include "trainer/run/format_settings.h"
#include "trainer/run/run_config.h"

namespace ckpt::train {
namespace {

constexpr std::int64_t kLedgerSteps = 5;

// The model's settings, and a step of one micro-batch a rank in bfloat16; those that were given
// stand over them.
Result<layout::Configuration> SettingsOf(const BenchOptions& options,
                                         const layout::Configuration& given, int num_ranks) {
  std::optional<layout::Configuration> settings = BenchSettings(options.model);
  if (!settings) {
    return Error(ErrorKind::kUsage, "the benchmark has no such model")
        .Expected(fmt::format("one of {}", fmt::join(BenchModelNames(), ", ")))
        .Actual(options.model);
  }
  if (options.tokens_per_rank % options.seq != 0) {
    return Error(ErrorKind::kUsage, "a step does not consist of whole sequences")
        .Expected(fmt::format("a multiple of --seq {} as --tokens-per-rank", options.seq))
        .Actual(fmt::format("{}", options.tokens_per_rank));
  }
  const std::int64_t rows = options.tokens_per_rank / options.seq;
  settings->insert_or_assign("bf16", true);
  settings->insert_or_assign("seq_length", options.seq);
  settings->insert_or_assign("micro_batch_size", rows);
  settings->insert_or_assign("global_batch_size", rows * num_ranks);
  for (const auto& [name, value] : given) settings->insert_or_assign(name, value);
  return *std::move(settings);
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

}  // namespace

Result<cli::ExitCode> RunBench(const BenchOptions& options, Storage& storage,
                               cli::Streams& streams) {
  const int num_ranks = NumRanks(options.run);
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration given, GivenSettings(storage, options.run));
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration settings,
                        SettingsOf(options, given, num_ranks));
  CKPT_ASSIGN_OR_RETURN(RunConfig run, ResolveRun(storage, settings, num_ranks));
  run.train.optimizer.decay_all = true;  // as the other trainer does
  if (options.print_config) {
    streams.out.Write(FormatSettings(run.effective));
    return cli::ExitCode::kDone;
  }

  CKPT_ASSIGN_OR_RETURN(const std::vector<std::int32_t> experts, ExpertsOf(options, run.train));
  const int threads = options.common.threads == 0 ? DefaultThreads() : options.common.threads;
  const BenchPlan plan = {.warmup = options.warmup,
                          .steps = options.steps,
                          .ledger_steps = options.ledger ? kLedgerSteps : 0,
                          .tokens = {.seed = static_cast<std::uint32_t>(run.train.seed),
                                     .vocab_size = run.train.model.vocab_size,
                                     .seq = run.train.seq_length,
                                     .rows_of_rank = run.train.micro_batch_size,
                                     .num_ranks = num_ranks}};
  std::unique_ptr<ProgressSink> progress = cli::MakeProgress(options.common, streams);
  std::optional<BenchTimes> times;  // of rank 0, where it is one of this process
  CKPT_RETURN_IF_ERROR(trainer::RunWorld(
      {.num_ranks = options.run.ranks == 0 ? num_ranks : options.run.ranks,
       .from_threads = run.train.overlaps()},
      [&](trainer::HostGroup& world) -> Status {
        CKPT_ASSIGN_OR_RETURN(
            const trainer::Backend backend,
            trainer::MakeBackend(trainer::BackendOptionsOf(run.train, options.run.device,
                                                           std::max(1, threads / num_ranks)),
                                 world));
        CKPT_ASSIGN_OR_RETURN(const auto trainer,
                              trainer::RankTrainer::Create(run.train, world,
                                                           {.device = backend.device.get(),
                                                            .ops = backend.ops.get(),
                                                            .assigned_experts = experts}));
        CKPT_ASSIGN_OR_RETURN(BenchTimes mine,
                              TimeSteps(plan, *trainer, *backend.device, world.rank(),
                                        world.rank() == 0 ? progress.get() : nullptr));
        if (world.rank() == 0) times = std::move(mine);
        return OkStatus();
      }));
  progress.reset();  // a bar clears its line before anything else is printed
  if (!times) return cli::ExitCode::kDone;

  const BenchReport report = {
      .model = options.model,
      .num_ranks = num_ranks,
      .seq = plan.tokens.seq,
      .tokens_of_rank = plan.tokens.seq * plan.tokens.rows_of_rank,
      .flops_per_token = trainer::TrainingFlopsPerToken(run.train.model, plan.tokens.seq),
      .peak_flops = options.peak_tflops > 0 ? options.peak_tflops * 1e12 : times->peak_flops,
      .times = *std::move(times)};
  streams.out.Write(options.common.json ? BenchJson(report) : BenchText(report));
  return cli::ExitCode::kDone;
}

}  // namespace ckpt::train
