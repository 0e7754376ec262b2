#include "trainer/explain/internal/kernel_times.h"

#include <algorithm>
#include <cstddef>

#include "trainer/explain/internal/amounts.h"
#include "trainer/model/dispatch.h"
#include "trainer/model/flops.h"
#include "trainer/optim/optimizer.h"

namespace ckpt::train {
namespace {

constexpr double kHalfBytes = 2;  // of an activation: rates are those of bfloat16

}  // namespace

template <typename Add>
void KernelTimes::AddExperts(const trainer::UnitSpec& unit, const Add& add) const {
  const trainer::MoeConfig& moe = *model_.moe;
  double weights = 0;
  for (const trainer::ParamSpec& param : unit.params) {
    if (param.param_class == trainer::ParamClass::kExpert && param.shape.size() > 1) {
      weights += static_cast<double>(NumElements(param.shape));
    }
  }
  const double of_expert =
      weights * config_.mesh.expert_parallel / static_cast<double>(moe.num_experts);
  const auto topk = static_cast<double>(moe.router.topk);
  // Forward, for the rows' gradients, and for the weights'.
  const double rows = ComputedShare(gpu_.expert_tile_rows);
  const double sums = ComputedShare(gpu_.expert_sum_rows);
  add(2 * tokens_ * topk * of_expert * (2 * rows + sums) / gpu_.expert_product_flops.value,
      rows / (2 * rows + sums));
  // To rows and back, twice: each reads one and writes topk, or the reverse.
  add(Pass(4 * (topk + 1) * Width(), gpu_.expert_row_bytes), 0.5);
  add(tokens_ * gpu_.router_seconds.value, 0.5);
}

LayerTimes KernelTimes::Layer(const trainer::UnitSpec& unit, std::int64_t layer) const {
  double forward = 2 * tokens_ * DenseWeights(unit) / gpu_.product_flops.value;
  double backward = 2 * forward;
  const auto add = [&](double seconds, double forward_share) {
    forward += seconds * forward_share;
    backward += seconds * (1 - forward_share);
  };
  const double attention = tokens_ *
                           trainer::AttentionFlopsPerToken(model_, layer, config_.seq_length) /
                           gpu_.attention_flops.value;
  add(attention, 1 / (1 + gpu_.attention_backward_ratio.value));
  // Forward: two arrays in, two out; backward: three in, one out; two norms.
  add(Pass(2 * 8 * Width(), gpu_.norm_bytes), 0.5);
  // Forward: one in, one out; backward: two in, one out.
  add(Pass(5 * static_cast<double>((model_.num_attention_heads + model_.num_query_groups) *
                                   model_.kv_channels),
           gpu_.query_key_bytes),
      0.4);
  const double activation = Pass(8 * ActivationWidth(layer), gpu_.activation_bytes);
  add(activation, 3.0 / 8);
  if (IsMoe(layer)) AddExperts(unit, add);
  add(gpu_.gap_seconds.value, 1.0 / 3);
  if (config_.recompute == trainer::Recompute::kLayers) backward += forward;
  if (config_.recompute == trainer::Recompute::kActivations) backward += activation * 3.0 / 8;
  return {.forward = kMs * forward, .backward = kMs * backward};
}

double KernelTimes::HeadMs() const {
  const auto vocab = static_cast<double>(model_.padded_vocab_size);
  const double products = 6 * tokens_ * vocab * Width() / gpu_.product_flops.value;
  return kMs * (products + Pass(3 * vocab, gpu_.loss_bytes));
}

double KernelTimes::EmbeddingMs() const { return kMs * Pass(2 * Width(), gpu_.norm_bytes); }

double KernelTimes::UpdateMs(const trainer::ShardPlan& plan, const Placements& placed) const {
  double elems = 0;
  double exchanged = 0;
  for (const trainer::GroupPlan& group : plan.groups) {
    if (!group.trainable) continue;
    elems += static_cast<double>(group.main.elems);
    if (placed.UpdatesExchange(group)) exchanged += static_cast<double>(group.main.elems);
  }
  const double gradient = SizeOf(1, plan.precision.main_grads);
  const double state = SizeOf(1, plan.precision.main_params);
  const double compute = SizeOf(1, plan.precision.compute);
  const double arrays = 2 * (1 + trainer::NumMoments(config_.optimizer));
  const double update = arrays * state + gradient + compute;
  double seconds = std::max((elems * update + exchanged * compute) / gpu_.update_bytes.value,
                            exchanged * compute / gpu_.gather_bytes.value);
  if (config_.optimizer.moments_on_host) {  // they come and go while others are updated
    const double moments = trainer::NumMoments(config_.optimizer) * state;
    seconds = std::max(seconds, elems * moments / gpu_.host_copy_bytes.value);
  }
  return kMs * (elems * gradient / gpu_.square_bytes.value + seconds);
}

double KernelTimes::ExchangedBytes() const {
  const trainer::MoeConfig& moe = *model_.moe;
  const double rows = trainer::RowsPerToken(config_.dispatcher, moe.num_experts, moe.router.topk,
                                            config_.mesh.expert_parallel);
  return tokens_ * rows * Width() * SizeOf(1, config_.precision.compute);
}

bool KernelTimes::IsMoe(std::int64_t layer) const {
  return model_.moe && model_.is_moe_layer[static_cast<std::size_t>(layer)];
}

double KernelTimes::Width() const { return static_cast<double>(model_.hidden_size); }

double KernelTimes::Pass(double elems, const Rate& rate) const {
  return tokens_ * elems * kHalfBytes / rate.value;
}

double KernelTimes::DenseWeights(const trainer::UnitSpec& unit) {
  double weights = 0;
  for (const trainer::ParamSpec& param : unit.params) {
    if (param.param_class == trainer::ParamClass::kDense && param.shape.size() > 1) {
      weights += static_cast<double>(NumElements(param.shape));
    }
  }
  return weights;
}

double KernelTimes::ActivationWidth(std::int64_t layer) const {
  if (!IsMoe(layer)) return static_cast<double>(model_.ffn_hidden_size);
  const trainer::MoeConfig& moe = *model_.moe;
  return static_cast<double>(moe.router.topk * moe.ffn_hidden_size +
                             moe.shared_expert_ffn_hidden_size);
}

double KernelTimes::ComputedShare(const Rate& tile_rows) const {
  const trainer::MoeConfig& moe = *model_.moe;
  const double rows_of_expert = tokens_ * static_cast<double>(moe.router.topk) *
                                config_.mesh.expert_parallel / static_cast<double>(moe.num_experts);
  return std::max(rows_of_expert + tile_rows.value / 2, tile_rows.value) / rows_of_expert;
}

}  // namespace ckpt::train
