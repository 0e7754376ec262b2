#include "trainer/model/flops.h"

#include "core/tensor/shape.h"
#include "trainer/model/model.h"

namespace ckpt::trainer {
namespace {

// Weights of matrices that one token is multiplied with.
double MatrixWeights(const ModelConfig& config) {
  double weights = 0;
  for (const UnitSpec& unit : ListUnits(config, 0, 1)) {
    for (const ParamSpec& param : unit.params) {
      if (param.shape.size() < 2) continue;
      const bool is_table = param.name.starts_with("embedding.");
      if (is_table &&
          !(config.tied_embeddings && param.shape.front() == config.padded_vocab_size)) {
        continue;
      }
      const double share = param.param_class == ParamClass::kExpert
                               ? static_cast<double>(config.moe->router.topk) /
                                     static_cast<double>(config.moe->num_experts)
                               : 1;
      weights += share * static_cast<double>(NumElements(param.shape));
    }
  }
  return weights;
}

}  // namespace

double AttentionFlopsPerToken(const ModelConfig& config, std::int64_t layer, std::int64_t seq) {
  const double dims =
      config.mla ? static_cast<double>(config.mla->qk_head_dim + config.mla->qk_pos_emb_head_dim +
                                       config.mla->v_head_dim)
                 : 2 * static_cast<double>(config.kv_channels);
  const auto all = static_cast<double>(seq);
  const auto at = static_cast<std::size_t>(layer);
  const auto window = static_cast<double>(at < config.window_size.size() ? config.window_size[at]
                                                                         : std::int64_t{0});
  // That a query sees, on average.
  const double keys = window == 0 || window >= all ? all / 2 : window - window * window / (2 * all);
  // A product with a score's row or column is two operations an element; the backward takes twice
  // what the forward takes.
  return 6 * keys * static_cast<double>(config.num_attention_heads) * dims;
}

double TrainingFlopsPerToken(const ModelConfig& config, std::int64_t seq) {
  double flops = 6 * MatrixWeights(config);
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    flops += AttentionFlopsPerToken(config, layer, seq);
  }
  return flops;
}

}  // namespace ckpt::trainer
