// The layout tables, asked with the trainer's own facts, name exactly the tensors that the trainer
// has.
#include "trainer/checkpoint/model_facts.h"

#include <map>
#include <ostream>
#include <string>

#include <gmock/gmock.h>

#include "converters/families/family_registry.h"
#include "core/layout/resolve.h"
#include "core/layout/value.h"
#include "tests/testing/matchers.h"
#include "trainer/model/model.h"

namespace ckpt::trainer {
namespace {

using layout::Value;
using testing::IsOk;

struct FactsCase {
  const char* name;
  layout::Configuration settings;
};
void PrintTo(const FactsCase& c, std::ostream* os) { *os << c.name; }

layout::Configuration Settings(const layout::Configuration& more) {
  layout::Configuration settings = {{"num_layers", 3},
                                    {"hidden_size", 24},
                                    {"ffn_hidden_size", 20},
                                    {"num_attention_heads", 4},
                                    {"vocab_size", 37}};
  for (const auto& [name, value] : more) settings[name] = value;
  return settings;
}

layout::Configuration Latent(const layout::Configuration& more) {
  layout::Configuration settings = {{"multi_latent_attention", true},
                                    {"kv_lora_rank", 10},
                                    {"qk_head_dim", 6},
                                    {"qk_pos_emb_head_dim", 4},
                                    {"v_head_dim", 8}};
  for (const auto& [name, value] : more) settings[name] = value;
  return settings;
}

layout::Configuration Experts(const layout::Configuration& more) {
  layout::Configuration settings = {{"num_experts", 4}, {"moe_ffn_hidden_size", 9}};
  for (const auto& [name, value] : more) settings[name] = value;
  return settings;
}

class ModelFactsTest : public ::testing::TestWithParam<FactsCase> {};

TEST_P(ModelFactsTest, GiveTheTablesNamesAndShapesOfTheTrainersTensors) {
  const auto config = ParseModelConfig(Settings(GetParam().settings));
  ASSERT_THAT(config, IsOk());
  std::map<std::string, Dims> expected;
  for (const UnitSpec& unit : ListUnits(*config, 0, 1)) {
    for (const ParamSpec& param : unit.params) expected[param.name] = param.shape;
  }
  for (const ReplicatedBufferSpec& buffer : ListBuffers(*config)) {
    expected[buffer.name] = buffer.shape;
  }

  const layout::Configuration facts = ModelFacts(*config);
  const auto family = FindFamily(facts);
  ASSERT_THAT(family, IsOk());
  const auto resolved = layout::Resolve(**family, "trainer", facts);
  ASSERT_THAT(resolved, IsOk());
  std::map<std::string, Dims> named;
  for (const layout::ResolvedTensor& tensor : resolved->tensors) named[tensor.name] = tensor.shape;
  EXPECT_EQ(named, expected);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ModelFactsTest,
    ::testing::Values(
        FactsCase{"Plain", {}},
        FactsCase{"TiedAndPadded",
                  {{"untie_embeddings_and_output_weights", false}, {"padded_vocab_size", 48}}},
        FactsCase{"GroupsAndHeadNorms",
                  {{"num_query_groups", 2}, {"kv_channels", 10}, {"qk_layernorm", true}}},
        FactsCase{"EveryBias", {{"add_bias_linear", true}}},
        FactsCase{"LayerNorms", {{"normalization", "LayerNorm"}}},
        FactsCase{"LayerNormsAndExperts", Experts({{"normalization", "LayerNorm"},
                                                   {"moe_layer_freq", Value::List{0, 1, 0}}})},
        FactsCase{"BiasOfQkvAlone", {{"add_qkv_bias", true}}},
        FactsCase{"BiasOfMlpAlone",
                  {{"add_bias_linear", true},
                   {"add_qkv_bias", false},
                   {"add_attention_output_bias", false}}},
        FactsCase{"Gelu", {{"swiglu", false}, {"add_bias_linear", true}}},
        FactsCase{"Latent", Latent({})},
        FactsCase{"LatentQueriesAndBiases",
                  Latent({{"q_lora_rank", 12}, {"add_latent_bias", true}})},
        FactsCase{"ExpertsEverywhere", Experts({})},
        FactsCase{"ExpertsInSomeLayers", Experts({{"moe_layer_freq", Value::List{0, 1, 0}}})},
        FactsCase{"NormsBehindAndOverAllHeads",
                  {{"qk_layernorm", true},
                   {"qk_layernorm_over_heads", true},
                   {"num_query_groups", 2},
                   {"post_layernorm", true}}},
        FactsCase{"SharedExpertWithGate", Experts({{"moe_shared_expert_intermediate_size", 14},
                                                   {"moe_shared_expert_gate", true}})},
        FactsCase{"SharedExpertAndRouterBias", Experts({{"moe_shared_expert_intermediate_size", 14},
                                                        {"moe_router_score_function", "sigmoid"},
                                                        {"moe_router_enable_expert_bias", true},
                                                        {"add_bias_linear", true}})},
        FactsCase{"LatentWithExperts", Latent(Experts({{"moe_layer_freq", Value::List{0, 1, 1}}}))},
        FactsCase{"GeluExperts", Experts({{"swiglu", false}})}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace ckpt::trainer
