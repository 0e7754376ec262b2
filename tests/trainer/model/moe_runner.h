// RunMoe: one mixture-of-experts block on the ranks of a group, over micro-batches and weights that
// are the same for every number of ranks.
#ifndef CKPT_TESTS_TRAINER_MODEL_MOE_RUNNER_H_
#define CKPT_TESTS_TRAINER_MODEL_MOE_RUNNER_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/check.h"
#include "core/base/result.h"
#include "tests/testing/full_params.h"
#include "tests/trainer/model/rank_device.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/model/moe.h"

namespace ckpt::testing {

struct MoeBatch {
  std::int64_t batch = 0;
  std::int64_t seq = 0;
  std::vector<double> x;               // [batch · seq, H]
  std::vector<double> dy;              // likewise
  std::vector<double> positions = {};  // negative: padding; empty: none

  [[nodiscard]] std::int64_t tokens() const { return batch * seq; }
};

struct MoeOptions {
  int ranks = 1;
  trainer::Dispatcher dispatcher = trainer::Dispatcher::kAllToAll;
  bool separate_sources = false;
  bool fixed_order = false;
  bool recompute = false;  // computes again before backward, with the memory of forward taken back
  DType compute = DType::kFloat64;
  std::optional<DType> gradients = {};  // else that of the statistics
  trainer::HostDeviceOptions device = {};
  std::set<std::string> frozen = {};
  std::vector<double> expert_bias = {};       // empty: none
  std::vector<double> assigned_experts = {};  // [tokens, K]; empty: the router chooses
  double aux_scale = 1;
  // Changes a parameter, or the input "x<micro-batch>", before it is used.
  std::function<void(const std::string& name, std::vector<double>& values)> change = {};
};

struct MoeValues {
  std::vector<std::vector<double>> y, dx;                // of every micro-batch
  std::vector<double> aux_losses;                        // likewise
  std::map<std::string, std::vector<double>> gradients;  // summed over the micro-batches
  std::vector<double> counts;                            // likewise

  friend bool operator==(const MoeValues&, const MoeValues&) = default;
};

inline std::vector<double> NormalValues(const std::string& name, std::uint64_t seed,
                                        std::int64_t count, double spread) {
  std::vector<std::uint32_t> key(name.begin(), name.end());
  key.push_back(static_cast<std::uint32_t>(seed));
  std::seed_seq sequence(key.begin(), key.end());
  std::mt19937_64 random(sequence);
  std::normal_distribution<double> normal;
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = spread * normal(random);
  return values;
}

inline std::vector<MoeBatch> RandomMoeBatches(const trainer::ModelConfig& config,
                                              std::uint64_t seed, int count, std::int64_t batch = 2,
                                              std::int64_t seq = 5) {
  std::vector<MoeBatch> batches;
  for (int i = 0; i < count; ++i) {
    const std::int64_t elems = batch * seq * config.hidden_size;
    batches.push_back({.batch = batch,
                       .seq = seq,
                       .x = NormalValues("x" + std::to_string(i), seed, elems, 1),
                       .dy = NormalValues("dy" + std::to_string(i), seed, elems, 1)});
  }
  return batches;
}

// Large enough that every part of the block matters.
inline std::vector<double> MoeWeight(const trainer::ParamSpec& spec, std::uint64_t seed) {
  return NormalValues(spec.name, seed, NumElements(spec.shape),
                      1 / std::sqrt(static_cast<double>(spec.shape.back())));
}

// One rank of RunMoe. Between Prepare and AddTo nothing waits for the queue, so that memory which
// the block gives up too early shows.
class MoeRank {
 public:
  MoeRank(const trainer::ModelConfig& config, std::uint64_t seed, const MoeOptions& options,
          trainer::HostGroup& group)
      : options_(options),
        hidden_size_(config.hidden_size),
        rank_(options.device, {.fixed_order = options.fixed_order}),
        group_(rank_.CollectivesOf(group)),
        counts_(rank_.Zeros(DType::kInt64, {config.moe->num_experts})),
        overflows_(rank_.Zeros(DType::kInt64, {1})),
        block_(config, "mlp.",
               {.expert_group = group_.get(),
                .dispatcher = options.dispatcher,
                .separate_sources = options.separate_sources,
                .assigned_experts = PutAssigned(config.moe->router.topk),
                .counts = {.dropped = {}, .overflows = overflows_}},
               PutBias(), counts_),
        params_(rank_.device(), rank_.queue(), {{.name = "moe", .params = block_.Params()}},
                {.weights = options.compute,
                 .gradients = options.gradients.value_or(statistics()),
                 .frozen = options.frozen}) {
    for (const auto& [name, spec] : params_.specs()) {
      std::vector<double> values = MoeWeight(spec, seed);
      if (options.change) options.change(name, values);
      params_.WriteWeight(name, values);
    }
  }

  MoeRank(const MoeRank&) = delete;
  MoeRank& operator=(const MoeRank&) = delete;
  ~MoeRank() { (void)rank_.queue().Synchronize(); }  // before its memory goes, also on failure

  // Brings a micro-batch to the device.
  void Prepare(const MoeBatch& batch, int index) {
    std::vector<double> input = batch.x;
    if (options_.change) options_.change("x" + std::to_string(index), input);
    const std::int64_t tokens = batch.tokens();
    steps_[index] = {.batch = batch.batch,
                     .seq = batch.seq,
                     .layout = LayoutOf(batch),
                     .x = rank_.Put(input, options_.compute, {tokens, hidden_size_}),
                     .dy = rank_.Put(batch.dy, options_.compute, {tokens, hidden_size_}),
                     .y = rank_.Nans(options_.compute, {tokens, hidden_size_}),
                     .dx = rank_.Nans(options_.compute, {tokens, hidden_size_}),
                     .aux_loss = rank_.Zeros(statistics(), {1})};
  }

  // REQUIRES: it was prepared.
  void Run(int index) {
    const trainer::ArenaScope scope(rank_.arena());
    const Step& step = steps_.at(index);
    trainer::BlockContext context = rank_.Context(options_.compute, step.batch, step.seq);
    context.layout = step.layout;
    if (options_.recompute) context.recompute = trainer::Recompute::kLayers;
    const auto weights = params_.Acquire(0);
    block_.PlanRouting(context);
    const trainer::Arena::Mark recomputed = rank_.arena().Position();
    block_.Forward(context, weights, step.x, step.y, step.aux_loss);
    if (options_.recompute) {
      rank_.arena().Rewind(recomputed);
      const trainer::Tensor other = rank_.arena().Allocate(options_.compute, {64, hidden_size_});
      context.ops.Fill(context.queue, other, std::numeric_limits<double>::quiet_NaN());
      block_.Recompute(context, weights, step.x, {});
    }
    block_.Backward(context, weights, params_.AcquireGradients(0), step.dy, options_.aux_scale,
                    step.dx);
    params_.ReduceGradients(0);
    params_.Release(0);
  }
  // Waits for the queue.
  Status Finish() { return rank_.queue().Synchronize(); }

  // Waits for the queue.
  Status AddTo(MoeValues& values) {
    CKPT_RETURN_IF_ERROR(Finish());
    CKPT_CHECK(rank_.Read(overflows_)[0] == 0);
    for (const auto& [index, step] : steps_) {
      const auto at = static_cast<std::size_t>(index);
      values.y[at] = rank_.Read(step.y);
      values.dx[at] = rank_.Read(step.dx);
      values.aux_losses[at] = rank_.Read(step.aux_loss)[0];
    }
    for (const auto& [name, gradient] : params_.ReadGradients()) {
      Add(gradient, values.gradients[name]);
    }
    Add(rank_.Read(counts_), values.counts);
    return OkStatus();
  }

 private:
  struct Step {
    std::int64_t batch = 0;
    std::int64_t seq = 0;
    trainer::TokenLayout layout;
    trainer::Tensor x, dy, y, dx, aux_loss;
  };

  [[nodiscard]] DType statistics() const { return trainer::StatisticsDtype(options_.compute); }
  [[nodiscard]] trainer::TokenLayout LayoutOf(const MoeBatch& batch) {
    if (batch.positions.empty()) return {};
    return {.positions = rank_.Put(batch.positions, DType::kInt32, {batch.tokens()}),
            .num_padding = std::ranges::count_if(batch.positions,
                                                 [](double position) { return position < 0; })};
  }
  [[nodiscard]] trainer::Tensor PutBias() {
    if (options_.expert_bias.empty()) return {};
    return rank_.Put(options_.expert_bias, statistics(),
                     {static_cast<std::int64_t>(options_.expert_bias.size())});
  }
  [[nodiscard]] trainer::Tensor PutAssigned(std::int64_t topk) {
    if (options_.assigned_experts.empty()) return {};
    const auto elems = static_cast<std::int64_t>(options_.assigned_experts.size());
    return rank_.Put(options_.assigned_experts, DType::kInt32, {elems / topk, topk});
  }
  static void Add(const std::vector<double>& part, std::vector<double>& sum) {
    sum.resize(part.size());
    for (std::size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
  }

  const MoeOptions& options_;
  const std::int64_t hidden_size_;
  RankDevice rank_;
  const std::unique_ptr<trainer::Collectives> group_;
  const trainer::Tensor counts_;
  const trainer::Tensor overflows_;
  trainer::MoeBlock block_;
  FullParams params_;
  std::map<int, Step> steps_;
};

// Rank r takes the micro-batches r, r + ranks, … REQUIRES: the ranks divide the micro-batches.
inline Result<MoeValues> RunMoe(const trainer::ModelConfig& config,
                                const std::vector<MoeBatch>& batches, std::uint64_t seed,
                                const MoeOptions& options) {
  MoeValues values;
  values.y.resize(batches.size());
  values.dx.resize(batches.size());
  values.aux_losses.resize(batches.size());
  std::mutex mutex;
  const int count = static_cast<int>(batches.size());
  CKPT_CHECK(count % options.ranks == 0);
  const Status status = trainer::RunRanks(options.ranks, [&](trainer::HostGroup& group) {
    MoeRank rank(config, seed, options, group);
    for (int index = group.rank(); index < count; index += options.ranks) {
      rank.Prepare(batches[static_cast<std::size_t>(index)], index);
    }
    for (int index = group.rank(); index < count; index += options.ranks) {
      rank.Run(index);
    }
    const std::lock_guard lock(mutex);
    return rank.AddTo(values);
  });
  if (!status.ok()) return status;
  return values;
}

}  // namespace ckpt::testing

#endif  // CKPT_TESTS_TRAINER_MODEL_MOE_RUNNER_H_
