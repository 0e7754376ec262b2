#include "trainer/run/internal/describe_run.h"

#include <cstdint>

#include "converters/config/run_args.h"
#include "core/layout/value.h"
#include "trainer/optim/schedule.h"
#include "trainer/optim/weight_decay.h"
#include "trainer/step/trained_units.h"

namespace ckpt::train {
namespace {

RunSchedule DescribeSchedule(const trainer::TrainConfig& config, const RunConfig& run,
                             std::int64_t updates) {
  const trainer::ScheduleConfig& schedule = config.schedule;
  const std::int64_t batch = config.global_batch_size;
  // Style and lengths as in Megatron's arguments; a constant rate has a length too.
  const std::int64_t decay_steps =
      schedule.decay_steps > 0 ? schedule.decay_steps : run.loop.train_iters;
  return {.max_lr = schedule.max_lr,
          .min_lr = schedule.min_lr,
          .lr_warmup_steps = schedule.warmup_steps * batch,
          .num_steps = updates * batch,
          .lr_decay_style = std::string(trainer::DecayStyleName(schedule.style)),
          .lr_decay_steps = decay_steps * batch,
          .start_wd = config.optimizer.weight_decay,
          .end_wd = config.optimizer.weight_decay,
          .wd_incr_style = "constant",
          .wd_incr_steps = run.loop.train_iters * batch};
}

// One group with and one without weight decay, or a single group if everything decays.
std::vector<ParamGroup> DescribeGroups(const trainer::TrainConfig& config, std::int64_t updates) {
  ParamGroup decayed = {.max_lr = config.schedule.max_lr,
                        .min_lr = config.schedule.min_lr,
                        .lr = trainer::LearningRate(config.schedule, updates + 1),
                        .betas = {config.optimizer.adam_beta1, config.optimizer.adam_beta2},
                        .eps = config.optimizer.adam_eps,
                        .weight_decay = config.optimizer.weight_decay,
                        .step = updates};
  if (config.optimizer.kind == trainer::OptimizerKind::kSgd) {
    decayed.sgd = {.momentum = config.optimizer.sgd_momentum};
  }
  if (config.optimizer.decay_all) return {decayed};
  ParamGroup others = decayed;
  others.wd_mult = 0;
  others.weight_decay = 0;
  return {decayed, others};
}

}  // namespace

Result<TrainingRun> DescribeRun(const RunConfig& run, const RunProgress& progress,
                                std::int64_t updates, const std::string& state_digest,
                                const layout::Choices& naming) {
  OwnFacts facts = {
      .state_digest = state_digest, .run_id = run.run_id, .next_loss = progress.next_loss};
  if (!run.data_identity.empty()) facts.data_identity = run.data_identity;
  NamedValues more = ArgsOf(facts);
  if (const auto impl = naming.find("transformer_impl"); impl != naming.end()) {
    more.emplace_back(impl->first, impl->second);
  }
  if (const auto experts = naming.find("expert_names"); experts != naming.end()) {
    more.emplace_back("moe_grouped_gemm", experts->second == "grouped");
  }
  TrainingRun described = {.iteration = progress.iteration,
                           .consumed_samples = progress.consumed_samples,
                           .schedule = DescribeSchedule(run.train, run, updates),
                           .groups = DescribeGroups(run.train, updates),
                           .seed = run.train.seed};
  CKPT_ASSIGN_OR_RETURN(described.args,
                        RunArgs(run.effective,
                                {.iteration = progress.iteration,
                                 .consumed_train_samples = progress.consumed_samples},
                                more));
  return described;
}

std::vector<std::string> MomentNames(const trainer::OptimizerConfig& optimizer) {
  switch (optimizer.kind) {
    case trainer::OptimizerKind::kAdam:
      return {"exp_avg", "exp_avg_sq"};
    case trainer::OptimizerKind::kSgd:
      return {"momentum_buffer"};
  }
  return {};
}

std::set<std::string> DecayedParameters(trainer::TrainConfig config) {
  config.mesh.expert_parallel = 1;  // those of all ranks
  std::set<std::string> names;
  for (const trainer::UnitSpec& unit : ListTrainedUnits(config, 0)) {
    for (const trainer::ParamSpec& param : unit.params) {
      if (trainer::Decays(config.optimizer, param)) names.insert(param.name);
    }
  }
  return names;
}

}  // namespace ckpt::train
