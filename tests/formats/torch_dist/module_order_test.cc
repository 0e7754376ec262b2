#include "formats/torch_dist/internal/module_order.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ckpt::torch_dist {
namespace {

struct Named {
  std::string name;
  std::int64_t layer = 0;
  std::int64_t expert = 0;
};

// Each must come before the next one.
void ExpectInOrder(const std::vector<Named>& parameters, const ModuleForm& form) {
  for (std::size_t p = 1; p < parameters.size(); ++p) {
    const Named& before = parameters[p - 1];
    const Named& after = parameters[p];
    const auto first = PlaceOf(before.name, before.layer, before.expert, form);
    const auto second = PlaceOf(after.name, after.layer, after.expert, form);
    ASSERT_TRUE(first && second) << before.name << ", " << after.name;
    EXPECT_LT(*first, *second) << before.name << ", " << after.name;
  }
}

std::string InLayer(const std::string& leaf) { return "decoder.layers." + leaf; }
std::string OfExpert(const std::string& leaf) {
  return InLayer("mlp.experts.experts.linear_" + leaf);
}

TEST(ModuleOrderTest, LayersAscendBetweenEmbeddingAndHead) {
  for (const bool norm_in_projection : {false, true}) {
    ExpectInOrder({{"embedding.word_embeddings.weight"},
                   {"embedding.position_embeddings.weight"},
                   {InLayer("self_attention.linear_proj.weight"), 0},
                   {InLayer("mlp.linear_fc2.weight"), 0},
                   {InLayer("self_attention.linear_proj.weight"), 1},
                   {"decoder.final_layernorm.weight"},
                   {"decoder.final_layernorm.bias"},
                   {"output_layer.weight"}},
                  {.norm_in_projection = norm_in_projection});
  }
}

// Where keys are the same, and the modules are not.
TEST(ModuleOrderTest, TheNormBeforeTheAttentionHasTwoPlaces) {
  const std::string norm = InLayer("self_attention.linear_qkv.layer_norm_weight");
  const std::string bias = InLayer("self_attention.linear_qkv.layer_norm_bias");
  const std::string output = InLayer("self_attention.linear_proj.bias");
  const std::string queries = InLayer("self_attention.linear_qkv.weight");
  const std::string of_queries = InLayer("self_attention.q_layernorm.weight");
  ExpectInOrder({{norm}, {bias}, {output}, {queries}, {of_queries}}, {.norm_in_projection = false});
  ExpectInOrder({{output}, {norm}, {bias}, {queries}, {of_queries}}, {.norm_in_projection = true});
}

TEST(ModuleOrderTest, NormsOfLatentsLieInTheirProjectionOrBehindAll) {
  const std::string down = InLayer("self_attention.linear_kv_down_proj.weight");
  const std::string up = InLayer("self_attention.linear_kv_up_proj.weight");
  const std::string norm = InLayer("self_attention.linear_kv_up_proj.layer_norm_weight");
  ExpectInOrder({{down}, {up}, {norm}}, {.norm_in_projection = false});
  ExpectInOrder({{down}, {norm}, {up}}, {.norm_in_projection = true});
}

// The gate is a parameter of the module of the shared experts itself.
TEST(ModuleOrderTest, AModulesOwnParametersComeBeforeThoseOfItsParts) {
  ExpectInOrder({{InLayer("mlp.router.weight")},
                 {InLayer("mlp.shared_experts.gate_weight")},
                 {InLayer("mlp.shared_experts.linear_fc1.weight")}},
                {});
  ExpectInOrder(
      {{InLayer("mlp.linear_fc2.weight")}, {InLayer("mlp.linear_fc2.post_layernorm.weight")}}, {});
}

// Grouped, a projection has all experts, each one's bias behind its weight.
TEST(ModuleOrderTest, ExpertsAreGroupedOrOneByOne) {
  const Named router = {InLayer("mlp.router.weight")};
  const Named shared = {InLayer("mlp.shared_experts.linear_fc1.weight")};
  ExpectInOrder({router,
                 {OfExpert("fc1.weight"), 0, 0},
                 {OfExpert("fc1.bias"), 0, 0},
                 {OfExpert("fc1.weight"), 0, 1},
                 {OfExpert("fc1.bias"), 0, 1},
                 {OfExpert("fc2.weight"), 0, 0},
                 {OfExpert("fc2.bias"), 0, 0},
                 {OfExpert("fc2.weight"), 0, 1},
                 shared},
                {.experts_one_by_one = false});
  ExpectInOrder({router,
                 {OfExpert("fc1.weight"), 0, 0},
                 {OfExpert("fc1.bias"), 0, 0},
                 {OfExpert("fc2.weight"), 0, 0},
                 {OfExpert("fc2.bias"), 0, 0},
                 {OfExpert("fc1.weight"), 0, 1},
                 {OfExpert("fc2.weight"), 0, 1},
                 shared},
                {.experts_one_by_one = true});
}

TEST(ModuleOrderTest, LayersThatPredictFurtherTokensComeBeforeTheHead) {
  const std::string inner = "mtp.layers.transformer_layer.";
  ExpectInOrder({{InLayer("mlp.linear_fc2.weight"), 7},
                 {"decoder.final_layernorm.weight"},
                 {"mtp.layers.enorm.weight", 0},
                 {"mtp.layers.hnorm.weight", 0},
                 {"mtp.layers.eh_proj.weight", 0},
                 {inner + "self_attention.linear_qkv.layer_norm_weight", 0},
                 {inner + "self_attention.linear_proj.weight", 0},
                 {inner + "mlp.experts.experts.linear_fc1.weight", 0, 0},
                 {inner + "mlp.experts.experts.linear_fc1.weight", 0, 1},
                 {inner + "mlp.shared_experts.linear_fc2.bias", 0},
                 {"mtp.layers.final_layernorm.weight", 0},
                 {"mtp.layers.enorm.weight", 1},
                 {"output_layer.weight"}},
                {});
}

TEST(ModuleOrderTest, OtherModulesHaveNoPlace) {
  EXPECT_FALSE(PlaceOf(InLayer("mixer.in_proj.weight"), 0, 0, {}));
  EXPECT_FALSE(PlaceOf("mtp.layers.mtp_model_layer.layers.mixer.in_proj.weight", 0, 0, {}));
}

}  // namespace
}  // namespace ckpt::torch_dist
