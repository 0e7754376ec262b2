#include "trainer/model/moe.h"

#include <utility>

#include "core/base/check.h"
#include "trainer/model/internal/activate.h"
#include "trainer/model/internal/block_params.h"
#include "trainer/model/internal/grouped_linear.h"
#include "trainer/model/internal/shared_experts.h"

namespace ckpt::trainer {
namespace {

MoeConfig WithRuntime(MoeConfig moe, const MoeRuntime& runtime) {
  moe.router.is_assigned = static_cast<bool>(runtime.assigned_experts);
  return moe;
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
    const SharedExperts shared(config, prefix + "shared_experts.");
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
      moe_(WithRuntime(config.moe.value(), runtime)),
      prefix_(std::move(prefix)),
      runtime_(runtime),
      expert_bias_(expert_bias),
      expert_counts_(expert_counts),
      num_held_(moe_.num_experts / runtime.ranks()),
      fc1_rows_(Fc1Rows(config.activation, config.moe->ffn_hidden_size)),
      dispatch_(MakeDispatch(runtime.dispatcher, Spec(), runtime.expert_group)) {
  if (moe_.shared_expert_ffn_hidden_size > 0) {
    shared_ = std::make_unique<SharedExperts>(config, prefix_ + "shared_experts.");
    num_shared_params_ = shared_->Params().size();
  }
}

MoeBlock::~MoeBlock() = default;
MoeBlock::MoeBlock(MoeBlock&&) noexcept = default;

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

DispatchSpec MoeBlock::Spec() const {
  return {.num_experts = moe_.num_experts,
          .topk = moe_.router.topk,
          .capacity = {.factor = moe_.capacity_factor,
                       .policy = moe_.drop_policy,
                       .pad = moe_.pad_to_capacity},
          .rank_capacity_factor = runtime_.rank_capacity_factor,
          .separates_sources = runtime_.separate_sources};
}

void MoeBlock::PlanRouting(BlockContext& context) {
  const std::int64_t tokens = context.tokens();
  const DType statistics = context.statistics();
  const Tensor& assigned = runtime_.assigned_experts;
  CKPT_CHECK(!assigned || (tokens <= assigned.dim(0) && context.routed_tokens() == tokens));
  routing_ = {.logits = context.arena.Allocate(statistics, {tokens, moe_.num_experts}),
              .scores = context.arena.Allocate(statistics, {tokens, moe_.num_experts}),
              .experts = assigned
                             ? assigned.Rows(0, tokens)
                             : context.arena.Allocate(DType::kInt32, {tokens, moe_.router.topk}),
              .weights = context.arena.Allocate(statistics, {tokens, moe_.router.topk})};
  dispatch_->Plan(context, tokens, context.routed_tokens());
}

void MoeBlock::RouteForward(BlockContext& context, const Tensor& router, const Tensor& x,
                            const Tensor& aux_loss) {
  // Scores are computed in the statistics' dtype, as Transformers and Megatron do.
  context.ops.Gemm(context.queue, {.transpose_b = true}, x, router, routing_.logits);
  const bool chooses = !moe_.router.is_assigned;
  context.ops.Router(context.queue, moe_.router, routing_.logits, chooses ? expert_bias_ : Tensor(),
                     chooses ? context.layout.positions : Tensor(), routing_.scores,
                     routing_.experts, routing_.weights);
  DispatchCounts counts = runtime_.counts;
  if (!aux_loss) counts.dropped = {};
  dispatch_->Route(context, routing_.experts, routing_.weights, counts);
  if (!aux_loss) return;
  if (has_aux_loss()) {
    context.ops.RouterAuxLoss(context.queue, moe_.router, Aux(context), routing_.logits,
                              routing_.scores, routing_.experts, 1, aux_loss, {});
  }
  if (expert_counts_) {
    const Tensor held = expert_counts_.Rows(runtime_.rank() * num_held_, num_held_);
    context.ops.CountRows(context.queue, dispatch_->offsets(), dispatch_->segments(), held);
  }
}

void MoeBlock::Forward(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
                       const Tensor& y, const Tensor& aux_loss) {
  const Parts<Tensor> w = Unpack(weights);
  RouteForward(context, w.router, x, aux_loss);
  Compute(context, w, x, y);
}

void MoeBlock::Recompute(BlockContext& context, std::span<const Tensor> weights, const Tensor& x,
                         const Tensor& y) {
  Compute(context, Unpack(weights), x, y);
}

void MoeBlock::Compute(BlockContext& context, const Parts<Tensor>& weights, const Tensor& x,
                       const Tensor& y) {
  // Shared experts come first. They need no rows of other ranks, so the device has work while a
  // host that must know the number of rows waits for it (Collectives::ReadCounts).
  Tensor shared;
  if (shared_) {
    if (y) shared = context.arena.Allocate(context.compute, {y.dim(0), y.dim(1)});
    shared_->Forward(context, weights.shared, x, shared);
  }

  const std::int64_t max_rows = dispatch_->max_rows();
  const auto allocate = [&](std::int64_t columns) {
    return context.arena.Allocate(context.compute, {max_rows, columns});
  };
  const bool keeps = context.recompute == Recompute::kNone;
  saved_ = {.x = x,
            .rows = allocate(config_.hidden_size),
            .row_weights = context.arena.Allocate(context.statistics(), {max_rows}),
            .projected = allocate(fc1_rows_),
            .activated = keeps ? allocate(moe_.ffn_hidden_size) : Tensor()};
  dispatch_->ToExperts(context, x, routing_.weights, saved_.rows, saved_.row_weights);
  GroupedLinear(context, *dispatch_, saved_.rows, weights.fc1, saved_.projected);
  if (!y && !keeps) return;
  const ArenaScope scope(context.arena);
  const Tensor activated = keeps ? saved_.activated : allocate(moe_.ffn_hidden_size);
  Activate(context, config_.activation, saved_.projected,
           {.weights = saved_.row_weights, .count = dispatch_->count()}, activated);
  if (!y) return;
  const Tensor results = allocate(config_.hidden_size);
  GroupedLinear(context, *dispatch_, activated, weights.fc2, results);
  dispatch_->FromExperts(context, results, {}, y, {});
  if (shared) context.ops.Add(context.queue, y, shared, y);
}

void MoeBlock::RouteBackward(BlockContext& context, const Tensor& router, const Gradient& drouter,
                             const Tensor& dweights, double aux_scale, const Tensor& dx) {
  const ArenaScope scope(context.arena);
  const DType statistics = context.statistics();
  const Tensor dlogits = context.arena.Allocate(statistics, {context.tokens(), moe_.num_experts});
  context.ops.RouterBackward(context.queue, moe_.router, routing_.scores, routing_.experts,
                             dweights, dlogits);
  if (has_aux_loss()) {
    context.ops.RouterAuxLoss(context.queue, moe_.router, Aux(context), routing_.logits,
                              routing_.scores, routing_.experts, aux_scale, /*loss=*/{}, dlogits);
  }
  context.ops.RouterLogitsBackward(context.queue, dlogits, saved_.x, router, dx, drouter);
}

void MoeBlock::Backward(BlockContext& context, std::span<const Tensor> weights,
                        std::span<const Gradient> gradients, const Tensor& dy, double aux_scale,
                        const Tensor& dx) {
  const Parts<Tensor> w = Unpack(weights);
  const Parts<Gradient> g = Unpack(gradients);
  const ArenaScope scope(context.arena);
  const std::int64_t max_rows = dispatch_->max_rows();

  const Tensor dresults = context.arena.Allocate(context.compute, {max_rows, config_.hidden_size});
  const Tensor dactivated =
      context.arena.Allocate(context.compute, {max_rows, moe_.ffn_hidden_size});
  const Tensor drow_weights = context.arena.Allocate(context.statistics(), {max_rows});
  dispatch_->ToExperts(context, dy, {}, dresults, {});
  GroupedLinearBackwardData(context, *dispatch_, dresults, w.fc2, dactivated);
  const Tensor again = saved_.activated ? Tensor() : dactivated;  // overwrites it
  const Tensor dprojected = saved_.projected;                     // overwrites it
  ActivateBackward(context, config_.activation, dactivated, saved_.projected,
                   {.weights = saved_.row_weights, .count = dispatch_->count()}, dprojected,
                   drow_weights, again);
  GroupedLinearBackwardWeights(context, *dispatch_, dresults, again ? again : saved_.activated,
                               g.fc2);
  GroupedLinearBackwardWeights(context, *dispatch_, dprojected, saved_.rows, g.fc1);
  const Tensor drows = dresults;  // overwrites them
  GroupedLinearBackwardData(context, *dispatch_, dprojected, w.fc1, drows);

  const Tensor dweights =
      context.arena.Allocate(context.statistics(), {context.tokens(), moe_.router.topk});
  dispatch_->FromExperts(context, drows, drow_weights, dx, dweights);
  RouteBackward(context, w.router, g.router, dweights, aux_scale, dx);
  if (shared_) {
    const Tensor dshared =
        context.arena.Allocate(context.compute, {context.tokens(), config_.hidden_size});
    shared_->Backward(context, w.shared, g.shared, dy, dshared);
    context.ops.Add(context.queue, dx, dshared, dx);
  }
}

}  // namespace ckpt::trainer
