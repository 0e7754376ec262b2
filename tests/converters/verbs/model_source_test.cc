// Which naming a checkpoint has whose keys fit several, and what another naming lacks.
#include "converters/verbs/model_source.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "converters/families/family_registry.h"
#include "converters/verbs/model_digest.h"
#include "core/checkpoint/memory_source.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using layout::Choices;
using layout::Configuration;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;

Configuration DenseRun() {
  return {{"model_type", "llama"},    {"num_hidden_layers", 2},     {"hidden_size", 8},
          {"num_attention_heads", 2}, {"num_key_value_heads", 2},   {"vocab_size", 6},
          {"intermediate_size", 4},   {"hidden_act", "silu"},       {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000.0},    {"transformer_impl", "local"}};
}

// The model of `config` as a file of this format that holds tensors as in the naming.
Result<ModelSource> Matched(const std::string& format, const std::string& naming,
                            const Choices& choices, const Configuration& config) {
  CKPT_ASSIGN_OR_RETURN(const layout::LayoutTable* const family, FindFamily(config));
  CKPT_ASSIGN_OR_RETURN(const layout::ResolvedLayout layout,
                        layout::ResolveExactly(*family, naming, config, choices));
  std::vector<MemoryTensor> tensors;
  for (const layout::ResolvedTensor& tensor : layout.tensors) {
    std::int64_t count = 1;
    for (const std::int64_t dim : tensor.shape) count *= dim;
    tensors.push_back({.key = tensor.name,
                       .dtype = DType::kFloat32,
                       .shape = tensor.shape,
                       .values = Bytes(static_cast<std::size_t>(count) * 4)});
  }
  OpenedCheckpoint opened;
  CKPT_ASSIGN_OR_RETURN(opened.format, FindFormat(format));
  CKPT_ASSIGN_OR_RETURN(opened.source, MakeMemorySource(std::move(tensors)));
  return MatchModel(std::make_shared<const OpenedCheckpoint>(std::move(opened)), config, {});
}

// Dense layers of Megatron's `singleton_local_shards` are called as the live ones of Transformer
// Engine are.
const Choices kSingleton = {
    {"layer_keys", "per_layer"}, {"shards", "singleton"}, {"transformer_impl", "local"}};

TEST(ModelSourceTest, HasTheNamingOfItsContainerIfItsKeysFit) {
  // Also if the configuration says another form.
  for (const char* impl : {"local", "transformer_engine"}) {
    SCOPED_TRACE(impl);
    Configuration config = DenseRun();
    config["transformer_impl"] = impl;
    const auto model = Matched("torch_dist", "torch_dist", kSingleton, config);
    ASSERT_THAT(model, IsOk());
    EXPECT_EQ(model->match.layout.naming, "torch_dist");
    EXPECT_EQ(model->match.layout.choices.at("transformer_impl"), impl);
    const auto live = Matched("fsdp_dtensor", "fsdp_dtensor", {}, config);
    ASSERT_THAT(live, IsOk());
    EXPECT_EQ(live->match.layout.naming, "fsdp_dtensor");
  }
}

// A container of any tensors has no naming of its own.
TEST(ModelSourceTest, HasTheNamingOfWhichTheConfigurationSaysTheForm) {
  Configuration config = DenseRun();
  const auto local = Matched("dcp", "torch_dist", kSingleton, config);
  ASSERT_THAT(local, IsOk());
  EXPECT_EQ(local->match.layout.naming, "torch_dist");
  config["transformer_impl"] = "transformer_engine";
  const auto live = Matched("dcp", "torch_dist", kSingleton, config);
  ASSERT_THAT(live, IsOk());
  EXPECT_EQ(live->match.layout.naming, "fsdp_dtensor");
}

// A run whose arguments name no family, with biases that only one family publishes.
Configuration BiasedExperts() {
  Configuration config = DenseRun();
  config["model_type"] = "megatron";
  config.insert({{"num_experts", 2},
                 {"num_experts_per_tok", 1},
                 {"moe_intermediate_size", 4},
                 {"expert_linear_bias", true}});
  return config;
}

TEST(ModelSourceTest, NamesWhatANamingLacksAsTheSourceDoes) {
  auto model =
      Matched("torch_dist", "torch_dist", {{"transformer_impl", "local"}}, BiasedExperts());
  ASSERT_THAT(model, IsOk());
  model->is_family_guessed = true;
  const auto view = ViewModel(*model, "hf", {});
  ASSERT_THAT(view, FailsWith(ErrorKind::kCoverage));
  const Problem& problem = view.status().first();
  EXPECT_THAT(problem.tensor, HasSubstr("decoder.layers.mlp.router.bias"));
  EXPECT_THAT(problem.tensor, HasSubstr("decoder.layers.mlp.experts.experts.linear_fc1.bias"));
  EXPECT_EQ(problem.actual, "");
  EXPECT_EQ(problem.hint, kSayTheFamily);
  model->is_family_guessed = false;
  EXPECT_EQ(ViewModel(*model, "hf", {}).status().first().hint, "");
}

TEST(ModelSourceTest, WarnsOfPublishedNamesThatAreGuessed) {
  auto model = Matched("torch_dist", "torch_dist", {{"transformer_impl", "local"}}, DenseRun());
  ASSERT_THAT(model, IsOk());
  EXPECT_THAT(DigestModel(*model, {.as = "hf"})->warnings, IsEmpty());
  model->is_family_guessed = true;
  const auto digest = DigestModel(*model, {.as = "hf"});
  ASSERT_THAT(digest, IsOk());
  ASSERT_EQ(digest->warnings.size(), 1U);
  EXPECT_EQ(digest->warnings[0].severity, Severity::kWarning);
  EXPECT_THAT(digest->warnings[0].hint, HasSubstr("--hf-assets"));
  EXPECT_THAT(DigestModel(*model, {.as = "torch-dist"})->warnings, IsEmpty());
}

TEST(ModelSourceTest, HasAnotherNamingIfThatOfItsContainerDoesNotFit) {
  const auto model = Matched("torch_dist", "hf", {}, DenseRun());
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->match.layout.naming, "hf");
}

}  // namespace
}  // namespace ckpt
