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
  EXPECT_TRUE(Decays(Param("mlp.linear_fc1.weight", {8, 4})));
  EXPECT_FALSE(Decays(Param("input_layernorm.weight", {4})));
  EXPECT_FALSE(Decays(Param("mlp.linear_fc1.bias", {8, 1})));
  EXPECT_FALSE(Decays(Param("scale", {})));
}

}  // namespace
}  // namespace ckpt::trainer
