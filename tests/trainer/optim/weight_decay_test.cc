#include "trainer/optim/weight_decay.h"

#include <gmock/gmock.h>

namespace ckpt::trainer {
namespace {

ParamSpec Param(const char* name, Dims shape) {
  ParamSpec param;
  param.name = name;
  param.shape = std::move(shape);
  return param;
}

TEST(WeightDecayTest, DecayIsForMatricesThatAreNoBiases) {
  EXPECT_TRUE(Decays({}, Param("mlp.linear_fc1.weight", {8, 4})));
  EXPECT_FALSE(Decays({}, Param("input_layernorm.weight", {4})));
  EXPECT_FALSE(Decays({}, Param("self_attention.q_layernorm.weight", {4})));
  EXPECT_FALSE(Decays({}, Param("mlp.linear_fc1.bias", {8, 1})));
  EXPECT_FALSE(Decays({}, Param("scale", {})));
}

TEST(WeightDecayTest, NormsOfQueriesAndKeysDecayIfAskedTo) {
  const OptimizerConfig config = {.decay_query_key_norms = true};
  EXPECT_TRUE(Decays(config, Param("self_attention.q_layernorm.weight", {4})));
  EXPECT_TRUE(Decays(config, Param("self_attention.k_layernorm.weight", {4})));
  EXPECT_FALSE(Decays(config, Param("self_attention.kv_layernorm.weight", {4})));
  EXPECT_FALSE(Decays(config, Param("input_layernorm.weight", {4})));
  EXPECT_TRUE(Decays(config, Param("mlp.linear_fc1.weight", {8, 4})));
}

TEST(WeightDecayTest, AllDecayIfAskedTo) {
  EXPECT_TRUE(Decays({.decay_all = true}, Param("input_layernorm.weight", {4})));
}

}  // namespace
}  // namespace ckpt::trainer
