#include "trainer/model/moe.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/check.h"
#include "trainer/model/activate.h"
#include "trainer/model/block_params.h"
#include "trainer/model/grouped_linear.h"
#include "trainer/model/linear.h"

namespace ckpt::trainer {
namespace {

ModelConfig SharedExpertsConfig(ModelConfig config) {
  config.ffn_hidden_size = config.moe->shared_expert_ffn_hidden_size;
  return config;
}

// `x` in the statistics' dtype. Scores are computed in it, as Transformers and Megatron do.
Tensor AsStatistics(BlockContext& context, const Tensor& x) {
  if (x.dtype == context.statistics()) return x;
  const Tensor cast = context.arena.Allocate(context.statistics(), {x.dim(0), x.dim(1)});
  context.ops.Cast(context.queue, x, cast);
  return cast;
}

}  // namespace

std::vector<ParamSpec> MoeParams(const ModelConfig& config, const std::string& prefix,
                                 ExpertPlace place) {
  const MoeConfig& moe = config.moe.value();
  const std::int64_t hidden_size = config.hidden_size;
  std::vector<ParamSpec> params;
  params.push_back(
      MatrixSpec(prefix + "router.weight", moe.num_experts, hidden_size, config.init_method_std));
  if (moe.shared_expert_ffn_hidden_size > 0) {
    const Mlp shared(SharedExpertsConfig(config), prefix + "shared_experts.");
    for (ParamSpec& param : shared.Params()) params.push_back(std::move(param));
  }
  const std::int64_t num_held = moe.num_experts / place.ranks;
  const std::int64_t first = place.rank * num_held;
  const auto add_experts = [&](const std::string& name, std::int64_t rows, std::int64_t columns,
                               double std) {
    for (std::int64_t expert = first; expert < first + num_held; ++expert) {
      ParamSpec param = MatrixSpec(prefix + "experts." + name + ".weight" + std::to_string(expert),
                                   rows, columns, std);
      param.param_class = ParamClass::kExpert;
      param.stack = prefix + "experts." + name;
      params.push_back(std::move(param));
    }
  };
  add_experts("linear_fc1", Fc1Rows(config.activation, config.moe->ffn_hidden_size), hidden_size,
              config.init_method_std);
  add_experts("linear_fc2", hidden_size, moe.ffn_hidden_size, ResidualInitStd(config));
  return params;
}

MoeBlock::MoeBlock(const ModelConfig& config, std::string prefix, const MoeRuntime& runtime,
                   Tensor expert_bias, Tensor expert_counts)
    : config_(config),
      moe_(config.moe.value()),
      prefix_(std::move(prefix)),
      runtime_(runtime),
      expert_bias_(expert_bias),
      expert_counts_(expert_counts),
      num_held_(moe_.num_experts / runtime.expert_group->size()),
      fc1_rows_(Fc1Rows(config.activation, config.moe->ffn_hidden_size)) {
  if (moe_.shared_expert_ffn_hidden_size > 0) {
    shared_.emplace(SharedExpertsConfig(config), prefix_ + "shared_experts.");
    num_shared_params_ = shared_->Params().size();
  }
}

template <typename T>
MoeBlock::Parts<T> MoeBlock::Unpack(std::span<const T> params) const {
  const auto held = static_cast<std::size_t>(num_held_);
  CKPT_CHECK(params.size() == 1 + num_shared_params_ + 2 * held);
  return {.router = params.front(),
          .shared = params.subspan(1, num_shared_params_),
          .fc1 = params.subspan(1 + num_shared_params_, held),
          .fc2 = params.subspan(1 + num_shared_params_ + held, held)};
}

bool MoeBlock::has_aux_loss() const {
  return moe_.aux.kind != AuxLoss::kNone || moe_.aux.z_coefficient != 0;
}

AuxLossForm MoeBlock::Aux(const BlockContext& context) const {
  AuxLossForm aux = moe_.aux;
  aux.seq = context.seq;
  return aux;
}

DropForm MoeBlock::Drop(std::int64_t tokens) const {
  DropForm drop = {
      .num_experts = moe_.num_experts, .policy = moe_.drop_policy, .pad = moe_.pad_to_capacity};
  if (moe_.capacity_factor) {
    const double mean_load =
        static_cast<double>(tokens * moe_.router.topk) / static_cast<double>(moe_.num_experts);
    // A token chooses an expert at most once, so an expert cannot receive more rows than tokens.
    const double capacity =
        std::min(std::ceil(mean_load * *moe_.capacity_factor), static_cast<double>(tokens));
    // A capacity of 0 would mean no limit, so it is at least 1, also without tokens.
    drop.capacity = std::max<std::int64_t>(static_cast<std::int64_t>(capacity), 1);
  }
  return drop;
}

void MoeBlock::RouteForward(BlockContext& context, const Tensor& router, const Tensor& x,
                            const Tensor& aux_loss) {
  const std::int64_t tokens = context.tokens();
  const DType statistics = context.statistics();
  saved_.logits = context.arena.Allocate(statistics, {tokens, moe_.num_experts});
  saved_.scores = context.arena.Allocate(statistics, {tokens, moe_.num_experts});
  saved_.experts = context.arena.Allocate(DType::kInt32, {tokens, moe_.router.topk});
  saved_.weights = context.arena.Allocate(statistics, {tokens, moe_.router.topk});
  {
    const ArenaScope scope(context.arena);
    context.ops.Gemm(context.queue, {.transpose_b = true}, AsStatistics(context, x),
                     AsStatistics(context, router), saved_.logits);
  }
  context.ops.Router(context.queue, moe_.router, saved_.logits, expert_bias_,
                     context.layout.positions, saved_.scores, saved_.experts, saved_.weights);
  if (aux_loss && has_aux_loss()) {
    context.ops.RouterAuxLoss(context.queue, moe_.router, Aux(context), saved_.logits,
                              saved_.scores, saved_.experts, 1, aux_loss, {});
  }
}

Status MoeBlock::Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
                         const Tensor& y, const Tensor& aux_loss) {
  const Parts<Tensor> w = Unpack(weights);
  saved_ = {};
  saved_.x = x;
  RouteForward(context, w.router, x, aux_loss);
  // An expert's capacity depends on the number of tokens, so every Forward makes a new dispatch.
  // The queue may still use the memory of the old one until it has been waited for.
  std::unique_ptr<Dispatch> dispatch =
      MakeDispatch(runtime_.dispatcher,
                   {.num_experts = moe_.num_experts,
                    .drop = Drop(context.routed_tokens()),
                    .separates_sources = runtime_.separate_sources},
                   *runtime_.expert_group);
  CKPT_RETURN_IF_ERROR(dispatch->Route(context, saved_.experts, saved_.weights));
  dispatch_ = std::move(dispatch);
  if (aux_loss && expert_counts_) {
    const Tensor held = expert_counts_.Rows(runtime_.expert_group->rank() * num_held_, num_held_);
    context.ops.CountRows(context.queue, dispatch_->offsets(), dispatch_->segments(), held);
  }
  if (aux_loss && runtime_.dropped != nullptr) {
    // Padding is never routed, so it does not count as dropped.
    const std::int64_t of_padding =
        moe_.capacity_factor ? context.layout.num_padding * moe_.router.topk : 0;
    *runtime_.dropped += dispatch_->num_unplaced() - of_padding;
  }

  const std::int64_t num_rows = dispatch_->num_rows();
  saved_.rows = context.arena.Allocate(context.compute, {num_rows, config_.hidden_size});
  saved_.row_weights = context.arena.Allocate(context.statistics(), {num_rows});
  saved_.projected = context.arena.Allocate(context.compute, {num_rows, fc1_rows_});
  saved_.activated = context.arena.Allocate(context.compute, {num_rows, moe_.ffn_hidden_size});
  dispatch_->ToExperts(context, x, saved_.rows);
  dispatch_->WeightsToExperts(context, saved_.weights, saved_.row_weights);
  GroupedLinear(context, *dispatch_, saved_.rows, w.fc1, saved_.projected);
  Activate(context, config_.activation, saved_.projected, saved_.row_weights, saved_.activated);
  {
    const ArenaScope scope(context.arena);
    const Tensor results = context.arena.Allocate(context.compute, {num_rows, config_.hidden_size});
    GroupedLinear(context, *dispatch_, saved_.activated, w.fc2, results);
    dispatch_->FromExperts(context, results, y);
  }
  if (shared_) {
    const Tensor shared =
        context.arena.Allocate(context.compute, {context.tokens(), config_.hidden_size});
    shared_->Forward(context, w.shared, x, shared);
    context.ops.Add(context.queue, y, shared, y);
  }
  return OkStatus();
}

void MoeBlock::RouteBackward(BlockContext& context, const Tensor& router, const Gradient& drouter,
                             const Tensor& dweights, double aux_scale, const Tensor& dx) {
  const ArenaScope scope(context.arena);
  const DType statistics = context.statistics();
  const Tensor dlogits = context.arena.Allocate(statistics, {context.tokens(), moe_.num_experts});
  context.ops.RouterBackward(context.queue, moe_.router, saved_.scores, saved_.experts, dweights,
                             dlogits);
  if (has_aux_loss()) {
    const Tensor value = context.arena.Allocate(statistics, {1});  // Forward has reported it
    context.ops.Fill(context.queue, value, 0);
    context.ops.RouterAuxLoss(context.queue, moe_.router, Aux(context), saved_.logits,
                              saved_.scores, saved_.experts, aux_scale, value, dlogits);
  }
  const Tensor part = context.arena.Allocate(statistics, {context.tokens(), config_.hidden_size});
  context.ops.Gemm(context.queue, {}, dlogits, AsStatistics(context, router), part);
  context.ops.Accumulate(context.queue, part, dx);
  if (drouter) {
    LinearBackwardWeights(context, dlogits, AsStatistics(context, saved_.x), drouter, {});
  }
}

void MoeBlock::Backward(BlockContext& context, std::span<const Tensor> weights,
                        std::span<const Gradient> gradients, const Tensor& dy, double aux_scale,
                        const Tensor& dx) {
  const Parts<Tensor> w = Unpack(weights);
  const Parts<Gradient> g = Unpack(gradients);
  const ArenaScope scope(context.arena);
  const std::int64_t num_rows = dispatch_->num_rows();

  const Tensor dresults = context.arena.Allocate(context.compute, {num_rows, config_.hidden_size});
  const Tensor dactivated =
      context.arena.Allocate(context.compute, {num_rows, moe_.ffn_hidden_size});
  const Tensor drow_weights = context.arena.Allocate(context.statistics(), {num_rows});
  dispatch_->ToExperts(context, dy, dresults);
  GroupedLinearBackwardData(context, *dispatch_, dresults, w.fc2, dactivated);
  GroupedLinearBackwardWeights(context, *dispatch_, dresults, saved_.activated, g.fc2);
  const Tensor dprojected = saved_.projected;  // overwrites it
  ActivateBackward(context, config_.activation, dactivated, saved_.projected, saved_.row_weights,
                   dprojected, drow_weights);
  GroupedLinearBackwardWeights(context, *dispatch_, dprojected, saved_.rows, g.fc1);
  const Tensor drows = dresults;  // overwrites them
  GroupedLinearBackwardData(context, *dispatch_, dprojected, w.fc1, drows);
  dispatch_->FromExperts(context, drows, dx);

  const Tensor dweights =
      context.arena.Allocate(context.statistics(), {context.tokens(), moe_.router.topk});
  dispatch_->WeightsFromExperts(context, drow_weights, dweights);
  RouteBackward(context, w.router, g.router, dweights, aux_scale, dx);
  if (shared_) {
    const Tensor dshared =
        context.arena.Allocate(context.compute, {context.tokens(), config_.hidden_size});
    shared_->Backward(context, w.shared, g.shared, dy, dshared);
    context.ops.Add(context.queue, dx, dshared, dx);
  }
}

}  // namespace ckpt::trainer
