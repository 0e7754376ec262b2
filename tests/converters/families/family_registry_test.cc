#include "converters/families/family_registry.h"

#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "core/layout/match.h"
#include "core/layout/resolve.h"
#include "tests/testing/matchers.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;
using testing::FailsWith;
using testing::IsOk;
using testing::IsOkAndHolds;

Configuration TinyLlama() {
  return {{"model_type", "llama"},    {"num_hidden_layers", 2},   {"hidden_size", 12},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2}, {"vocab_size", 10},
          {"intermediate_size", 20}};
}

const layout::ResolvedTensor* Find(const layout::ResolvedLayout& layout, std::string_view name) {
  for (const layout::ResolvedTensor& tensor : layout.tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

TEST(FamilyRegistry, ParsesEveryBuiltInTable) {
  const auto families = BuiltInFamilies();
  ASSERT_THAT(families, IsOk());
  EXPECT_FALSE(families->empty());
  for (const Family& family : *families) EXPECT_THAT(LayoutOf(family), IsOk()) << family.name;
}

TEST(FamilyRegistry, SaysWhichModelItDoesNotKnow) {
  const auto family = FindFamily({{"model_type", "mamba2"}});
  ASSERT_THAT(family, FailsWith(ErrorKind::kUnsupported));
  EXPECT_NE(family.status().first().actual.find("mamba2"), std::string::npos);
  EXPECT_NE(family.status().first().hint.find(
                "llama, megatron, ministral, mistral, mixtral, olmo2, olmoe, qwen2, qwen2_moe"),
            std::string::npos)
      << family.status().first().hint;
  EXPECT_THAT(FindFamily({}), FailsWith(ErrorKind::kUnsupported));
}

TEST(FamilyRegistry, LoadsATableOfTheUsersThatIncludesABuiltInFile) {
  const auto table = LoadMapping(
      "family mine\n"
      "dim h = hidden_size\n"
      "logical norm [h]\n"
      "naming hf\n"
      "  include training_state.layout\n"
      "  norm.weight : h = norm\n",
      "mine.layout", {});
  ASSERT_THAT(table, IsOk());
  EXPECT_FALSE(table->namings[0].ignores.empty());
}

Result<bool> HasBiasOfQueries(std::string_view mapping, const Configuration& config) {
  CKPT_ASSIGN_OR_RETURN(const layout::LayoutTable table, LoadMapping(mapping, "mine", config));
  CKPT_ASSIGN_OR_RETURN(const layout::ResolvedLayout layout, layout::Resolve(table, "hf", config));
  return Find(layout, "model.layers.0.self_attn.q_proj.bias") != nullptr;
}

TEST(FamilyRegistry, GivesATableOfTheUsersTheFactsOfTheModelsClass) {
  const std::string mapping = "include decoder.layout\n";
  Configuration config = TinyLlama();
  EXPECT_THAT(HasBiasOfQueries(mapping, config), IsOkAndHolds(false));
  config["model_type"] = "qwen2";
  EXPECT_THAT(HasBiasOfQueries(mapping, config), IsOkAndHolds(true));
  // What the table says itself counts more, also for a model that no family describes.
  const std::string without = "let class_has_qkv_bias = false\ninclude decoder.layout\n";
  EXPECT_THAT(HasBiasOfQueries(without, config), IsOkAndHolds(false));
  config["model_type"] = "own";
  EXPECT_THAT(HasBiasOfQueries(mapping, config), IsOkAndHolds(false));
  const std::string with = "let class_has_qkv_bias = true\ninclude decoder.layout\n";
  EXPECT_THAT(HasBiasOfQueries(with, config), IsOkAndHolds(true));
}

TEST(DecoderTable, HasOneProjectionWhereTheMlpHasNoGate) {
  Configuration config = TinyLlama();
  config["model_type"] = "megatron";
  config["gated_linear_unit"] = false;
  const auto family = FindFamily(config);
  ASSERT_THAT(family, IsOk());
  for (const char* naming : {"fsdp_dtensor", "torch_dist", "trainer"}) {
    SCOPED_TRACE(naming);
    const auto layout = layout::Resolve(**family, naming, config,
                                        std::string_view(naming) == "torch_dist"
                                            ? layout::Choices{{"layer_keys", "per_layer"}}
                                            : layout::Choices{});
    ASSERT_THAT(layout, IsOk());
    const layout::ResolvedTensor* fc1 = Find(*layout, "decoder.layers.0.mlp.linear_fc1.weight");
    ASSERT_NE(fc1, nullptr);
    EXPECT_EQ(fc1->shape, (Dims{20, 12}));
    EXPECT_EQ(Find(*layout, "decoder.layers.0.mlp.linear_fc1.weight_w"), nullptr);
  }
  // The hub has no such model.
  EXPECT_FALSE(layout::Resolve(**family, "hf", config).ok());
}

TEST(DecoderTable, LayersThatPredictFurtherTokensAreLayersWithTensorsOfTheirOwn) {
  Configuration config = TinyLlama();
  config["num_nextn_predict_layers"] = 2;
  const auto family = FindFamily(config);
  ASSERT_THAT(family, IsOk());
  const auto has = [&](const char* naming, const layout::Choices& choices,
                       const std::vector<const char*>& names, bool present) {
    const auto layout = layout::Resolve(**family, naming, config, choices);
    ASSERT_THAT(layout, IsOk());
    for (const char* name : names) {
      EXPECT_EQ(Find(*layout, name) != nullptr, present) << naming << " " << name;
    }
  };
  has("hf", {},
      {"model.layers.2.eh_proj.weight", "model.layers.3.enorm.weight",
       "model.layers.3.embed_tokens.weight", "model.layers.3.shared_head.head.weight",
       "model.layers.3.mlp.up_proj.weight"},
      true);
  has("hf", {}, {"model.layers.1.eh_proj.weight", "model.layers.1.embed_tokens.weight"}, false);
  // Transformers has no such modules, and so no copies of what they share.
  has("fsdp2", {}, {"model.layers.3.enorm.weight", "model.layers.3.mlp.up_proj.weight"}, true);
  has("fsdp2", {}, {"model.layers.3.embed_tokens.weight"}, false);
  has("torch_dist", {},
      {"decoder.layers.mlp.linear_fc2.weight", "mtp.layers.1.eh_proj.weight",
       "mtp.layers.1.transformer_layer.mlp.linear_fc2.weight"},
      true);
  has("fsdp_dtensor", {}, {"mtp.layers.0.transformer_layer.mlp.linear_fc1.weight_v"}, true);
  has("fsdp_dtensor", {{"further_names", "mtp_model_layer"}},
      {"mtp.layers.0.mtp_model_layer.mlp.linear_fc1.weight_v", "mtp.layers.0.enorm.weight"}, true);
  has("mp_rank", {{"further_names", "mtp_model_layer"}},
      {"decoder.layers.1.mlp.linear_fc1.weight",
       "mtp.layers.1.mtp_model_layer.mlp.linear_fc1.weight"},
      true);
  has("trainer", {}, {"decoder.layers.2.mlp.linear_fc1.weight", "mtp.layers.0.enorm.weight"},
      false);
}

TEST(DecoderTable, NormsOfFurtherLayersHaveBiasesWhereAllNormsDo) {
  Configuration config = TinyLlama();
  config["model_type"] = "megatron";
  config["num_nextn_predict_layers"] = 1;
  config["norm_bias"] = true;
  for (const char* naming : {"torch_dist", "fsdp_dtensor", "mp_rank"}) {
    SCOPED_TRACE(naming);
    const auto layout = layout::Resolve(*FindFamily(config).value(), naming, config);
    ASSERT_THAT(layout, IsOk());
    for (const char* name :
         {"mtp.layers.0.enorm.bias", "mtp.layers.0.hnorm.bias", "mtp.layers.0.final_layernorm.bias",
          "mtp.layers.0.transformer_layer.mlp.linear_fc1.layer_norm_bias"}) {
      EXPECT_NE(Find(*layout, name), nullptr) << name;
    }
  }
}

// Also where the class has such layers without a key that says so.
TEST(DecoderTable, HasTheFurtherLayersThatTheClassHasByDefault) {
  Configuration config = TinyLlama();
  config["model_type"] = "glm4_moe";
  config["head_dim"] = 4;
  const auto has = [&](std::string_view name) {
    Configuration read = config;
    EXPECT_THAT(ReadAsClass(read), IsOk());
    const auto layout = layout::Resolve(*FindFamily(read).value(), "hf", read);
    EXPECT_THAT(layout, IsOk());
    return layout.ok() && Find(*layout, name) != nullptr;
  };
  EXPECT_TRUE(has("model.layers.2.eh_proj.weight"));
  EXPECT_TRUE(has("model.layers.2.mlp.experts.0.up_proj.weight"));
  EXPECT_FALSE(has("model.layers.3.eh_proj.weight"));
  config["num_nextn_predict_layers"] = 0;
  EXPECT_FALSE(has("model.layers.2.eh_proj.weight"));
}

// Traps of the published configurations.
TEST(DecoderTable, TakesTheHeadSizeFromTheConfigurationBeforeDividing) {
  Configuration config = TinyLlama();
  const auto family = FindFamily(config);
  ASSERT_THAT(family, IsOk());
  auto layout = layout::Resolve(**family, "hf", config);
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(Find(*layout, "model.layers.0.self_attn.q_proj.weight")->shape, (Dims{12, 12}));
  config["head_dim"] = 5;
  layout = layout::Resolve(**family, "hf", config);
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(Find(*layout, "model.layers.0.self_attn.q_proj.weight")->shape, (Dims{20, 12}));
}

TEST(DecoderTable, GivesQwen2ABiasThatNoKeyAnnounces) {
  Configuration config = TinyLlama();
  config["model_type"] = "qwen2";
  const auto layout = layout::Resolve(*FindFamily(config).value(), "hf", config);
  ASSERT_THAT(layout, IsOk());
  EXPECT_NE(Find(*layout, "model.layers.1.self_attn.q_proj.bias"), nullptr);
  EXPECT_EQ(Find(*layout, "model.layers.1.self_attn.o_proj.bias"), nullptr);
}

// One norm over all heads is as wide as the projection.
TEST(FamilyRegistry, FillsInWhatGptOssTakesForAbsentKeys) {
  Configuration config = {{"model_type", "gpt_oss"}, {"num_hidden_layers", 3}};
  ASSERT_THAT(ReadAsClass(config), IsOk());
  EXPECT_EQ(config.at("rope_parameters.rope_type"), Value("yarn"));
  EXPECT_EQ(config.at("rope_parameters.truncate"), Value(false));
  EXPECT_EQ(config.at("rope_theta"), Value(150000));
  EXPECT_EQ(config.at("layer_types"),
            Value(Value::List{"sliding_attention", "full_attention", "sliding_attention"}));
  // With any word of positions, nothing else is assumed of them.
  config = {
      {"model_type", "gpt_oss"}, {"num_hidden_layers", 3}, {"rope_parameters.rope_theta", 10.0}};
  ASSERT_THAT(ReadAsClass(config), IsOk());
  EXPECT_FALSE(config.contains("rope_parameters.rope_type"));
  EXPECT_FALSE(config.contains("rope_theta"));
}

TEST(DecoderTable, HasNormsOverAllHeadsUnderEveryNaming) {
  Configuration config = TinyLlama();
  config["model_type"] = "olmoe";
  config["num_experts"] = 3;
  ASSERT_THAT(ReadAsClass(config), IsOk());
  const auto family = FindFamily(config);
  ASSERT_THAT(family, IsOk());
  struct Case {
    const char* format;
    layout::Choices choices;
    const char* query;
    const char* key;
    Dims layers = {};
  };
  for (const Case& c : std::vector<Case>{{"hf",
                                          {},
                                          "model.layers.1.self_attn.q_norm.weight",
                                          "model.layers.1.self_attn.k_norm.weight"},
                                         {"fsdp_dtensor",
                                          {},
                                          "decoder.layers.1.self_attention.q_layernorm.weight",
                                          "decoder.layers.1.self_attention.k_layernorm.weight"},
                                         {"trainer",
                                          {},
                                          "decoder.layers.1.self_attention.q_layernorm.weight",
                                          "decoder.layers.1.self_attention.k_layernorm.weight"},
                                         {"torch_dist",
                                          {{"layer_keys", "per_layer"}},
                                          "decoder.layers.1.self_attention.q_layernorm.weight",
                                          "decoder.layers.1.self_attention.k_layernorm.weight"},
                                         {"torch_dist",
                                          {},
                                          "decoder.layers.self_attention.q_layernorm.weight",
                                          "decoder.layers.self_attention.k_layernorm.weight",
                                          {2}}}) {
    SCOPED_TRACE(c.format);
    const auto layout = layout::Resolve(**family, c.format, config, c.choices);
    ASSERT_THAT(layout, IsOk());
    Dims query = c.layers;
    query.push_back(12);
    Dims key = c.layers;
    key.push_back(6);
    ASSERT_NE(Find(*layout, c.query), nullptr);
    ASSERT_NE(Find(*layout, c.key), nullptr);
    EXPECT_EQ(Find(*layout, c.query)->shape, query);
    EXPECT_EQ(Find(*layout, c.key)->shape, key);
  }
}

// How much of the shared experts a token takes is one row, of every layer with experts.
TEST(DecoderTable, HasTheGateOfASharedExpertUnderEveryNaming) {
  Configuration config = TinyLlama();
  config["model_type"] = "qwen2_moe";
  config["num_experts"] = 3;
  config["mlp_only_layers"] = Value::List{0};
  config["shared_expert_intermediate_size"] = 5;
  ASSERT_THAT(ReadAsClass(config), IsOk());
  const auto family = FindFamily(config);
  ASSERT_THAT(family, IsOk());
  for (const auto& [format, name] :
       {std::pair("hf", "model.layers.<l>.mlp.shared_expert_gate.weight"),
        std::pair("fsdp2", "model.layers.<l>.mlp.shared_expert_gate.weight"),
        std::pair("fsdp_dtensor", "decoder.layers.<l>.mlp.shared_experts.gate_weight"),
        std::pair("mp_rank", "decoder.layers.<l>.mlp.shared_experts.gate_weight"),
        std::pair("trainer", "decoder.layers.<l>.mlp.shared_experts.gate_weight")}) {
    SCOPED_TRACE(format);
    const auto layout = layout::Resolve(**family, format, config);
    ASSERT_THAT(layout, IsOk());
    const auto of_layer = [&](char number) {
      std::string key = name;
      key.replace(key.find("<l>"), 3, 1, number);
      return Find(*layout, key);
    };
    EXPECT_EQ(of_layer('0'), nullptr);
    ASSERT_NE(of_layer('1'), nullptr);
    EXPECT_EQ(of_layer('1')->shape, (Dims{1, 12}));
  }
  config["mlp_only_layers"] = Value::List{};
  const auto stacked = layout::Resolve(**family, "torch_dist", config);
  ASSERT_THAT(stacked, IsOk());
  const layout::ResolvedTensor* const gate =
      Find(*stacked, "decoder.layers.mlp.shared_experts.gate_weight");
  ASSERT_NE(gate, nullptr);
  EXPECT_EQ(gate->shape, (Dims{2, 1, 12}));
}

// Megatron adds biases to linear layers, those of experts too, unless it is told not to.
TEST(DecoderTable, HasBiasesOfExpertsUnderEveryNamingOfMegatron) {
  for (const bool is_gated : {true, false}) {
    Configuration config = TinyLlama();
    config["model_type"] = "megatron";
    config["num_experts"] = 3;
    config["num_experts_per_tok"] = 2;
    config["moe_intermediate_size"] = 5;
    config["expert_linear_bias"] = true;
    if (!is_gated) config["gated_linear_unit"] = false;
    ASSERT_THAT(ReadAsClass(config), IsOk());
    const auto family = FindFamily(config);
    ASSERT_THAT(family, IsOk());
    const std::string half = is_gated ? "_w" : "";
    for (const auto& [format, prefix, bias] :
         {std::tuple("fsdp_dtensor", "decoder.layers.1.mlp.", "experts.linear_fc1.bias2" + half),
          std::tuple("mp_rank", "decoder.layers.1.mlp.", std::string("experts.linear_fc1.bias2")),
          std::tuple("trainer", "decoder.layers.1.mlp.", std::string("experts.linear_fc1.bias2")),
          std::tuple("torch_dist", "decoder.layers.mlp.",
                     std::string("experts.experts.linear_fc1.bias"))}) {
      SCOPED_TRACE(format);
      const auto layout = layout::Resolve(**family, format, config);
      ASSERT_THAT(layout, IsOk());
      const layout::ResolvedTensor* const found = Find(*layout, prefix + bias);
      ASSERT_NE(found, nullptr);
      const std::int64_t rows = is_gated && bias.find("_w") == bias.npos ? 10 : 5;
      EXPECT_EQ(found->shape.back(), rows);
      EXPECT_NE(Find(*layout, std::string(prefix) + "router.bias"), nullptr);
    }
  }
}

// Megatron-FSDP cuts fc1 for SwiGLU alone.
TEST(DecoderTable, AQuickGegluOfADenseMlpStaysInOnePiece) {
  Configuration config = TinyLlama();
  config["model_type"] = "megatron";
  config["quick_geglu"] = true;
  ASSERT_THAT(ReadAsClass(config), IsOk());
  const auto family = FindFamily(config);
  ASSERT_THAT(family, IsOk());
  const auto layout = layout::Resolve(**family, "fsdp_dtensor", config);
  ASSERT_THAT(layout, IsOk());
  const std::string fc1 = "decoder.layers.1.mlp.linear_fc1.weight";
  const layout::ResolvedTensor* const whole = Find(*layout, fc1);
  ASSERT_NE(whole, nullptr);
  EXPECT_THAT(whole->shape, ::testing::ElementsAre(40, 12));
  EXPECT_EQ(Find(*layout, fc1 + "_w"), nullptr);
  EXPECT_EQ(Find(*layout, fc1 + "_v"), nullptr);
}

// A model whose norms stand behind attention and the MLP has none before them.
TEST(DecoderTable, HasNormsBehindUnderEveryNaming) {
  Configuration config = TinyLlama();
  config["model_type"] = "olmo2";
  ASSERT_THAT(ReadAsClass(config), IsOk());
  const auto family = FindFamily(config);
  ASSERT_THAT(family, IsOk());
  const layout::Choices per_layer = {{"layer_keys", "per_layer"}};
  for (const auto& [format, choices] :
       {std::pair("fsdp_dtensor", layout::Choices{}),
        std::pair("fsdp_dtensor", layout::Choices{{"transformer_impl", "local"}}),
        std::pair("mp_rank", layout::Choices{}), std::pair("trainer", layout::Choices{}),
        std::pair("torch_dist", per_layer)}) {
    SCOPED_TRACE(format);
    const auto layout = layout::Resolve(**family, format, config, choices);
    ASSERT_THAT(layout, IsOk());
    int num_norms = 0;
    for (const layout::ResolvedTensor& tensor : layout->tensors) {
      const bool is_of_layer = tensor.name.starts_with("decoder.layers.1.");
      if (is_of_layer && tensor.shape == Dims{12}) ++num_norms;
    }
    EXPECT_NE(Find(*layout, "decoder.layers.1.self_attention.linear_proj.post_layernorm.weight"),
              nullptr);
    EXPECT_NE(Find(*layout, "decoder.layers.1.mlp.linear_fc2.post_layernorm.weight"), nullptr);
    EXPECT_EQ(num_norms, 3);  // and that of the queries, which is as wide as the stream here
  }
  for (const char* format : {"hf", "fsdp2"}) {
    const auto layout = layout::Resolve(**family, format, config);
    ASSERT_THAT(layout, IsOk());
    EXPECT_NE(Find(*layout, "model.layers.1.post_attention_layernorm.weight"), nullptr);
    EXPECT_NE(Find(*layout, "model.layers.1.post_feedforward_layernorm.weight"), nullptr);
    EXPECT_EQ(Find(*layout, "model.layers.1.input_layernorm.weight"), nullptr);
  }
}

// As `hidden_size // num_attention_heads` is in Python.
TEST(DecoderTable, RoundsTheHeadSizeDown) {
  Configuration config = TinyLlama();
  config["hidden_size"] = 14;
  const auto layout = layout::Resolve(*FindFamily(config).value(), "hf", config);
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(Find(*layout, "model.layers.0.self_attn.q_proj.weight")->shape, (Dims{12, 14}));
}

TEST(FamilyFile, SaysWhatItsClassReadsAndTakesForAbsentKeys) {
  const auto included = ParseFamily(
      "family tiny\nmatch model_type == \"tiny\"\nreads depth width\n"
      "default width = depth == null ? 4 : null\ninclude tiny.layout\n",
      "tiny.family");
  ASSERT_THAT(included, IsOk());
  const auto table = ParseLayout(*included, [](std::string_view) -> Result<std::string> {
    return std::string("family shared\ndim h = width\nlogical norm [h]\n");
  });
  ASSERT_THAT(table, IsOk());
  EXPECT_EQ(included->name, "tiny");
  EXPECT_EQ(table->name, "shared");
  EXPECT_TRUE(included->reads.contains("depth"));
  ASSERT_EQ(included->defaults.size(), 1U);
  EXPECT_EQ(included->defaults[0].first, "width");
  for (const char* text :
       {"family a\ndefault = 1\n", "family a\ndefault b\n", "family a\nreads b\n"}) {
    EXPECT_THAT(ParseFamily(text, "a.family"), FailsWith(ErrorKind::kBadMetadata)) << text;
  }
}

TEST(FamilyFile, ErrorsNameTheLineOfTheFile) {
  const auto family = ParseFamily("# a\nfamily a\n\nreads b\nmatch true\nnonsense\n", "a.family");
  ASSERT_THAT(family, IsOk());
  const auto table = ParseLayout(*family, {});
  ASSERT_THAT(table, FailsWith(ErrorKind::kBadMetadata));
  EXPECT_EQ(table.status().first().file, "a.family:6");
}

TEST(FamilyRegistry, MakesOfAConfigurationWhatItsClassDoes) {
  Configuration config = {{"model_type", "mistral"}, {"attention_bias", true}, {"vocab_size", 3}};
  ASSERT_THAT(ReadAsClass(config), IsOk());
  EXPECT_FALSE(config.contains("attention_bias"));  // its class has no such option
  EXPECT_EQ(config.at("sliding_window"), Value(4096));
  EXPECT_EQ(config.at("vocab_size"), Value(3));
  Configuration unknown = {{"model_type", "mamba2"}, {"attention_bias", true}};
  const Configuration same = unknown;
  ASSERT_THAT(ReadAsClass(unknown), IsOk());
  EXPECT_EQ(unknown, same);
}

TEST(DecoderTable, CallsTheHeadOfATiedModelDerived) {
  Configuration config = TinyLlama();
  config["tie_word_embeddings"] = true;
  const auto layout = layout::Resolve(*FindFamily(config).value(), "hf", config);
  ASSERT_THAT(layout, IsOk());
  ASSERT_NE(Find(*layout, "lm_head.weight"), nullptr);
  EXPECT_TRUE(Find(*layout, "lm_head.weight")->derived);
  const auto megatron = layout::Resolve(*FindFamily(config).value(), "fsdp_dtensor", config);
  ASSERT_THAT(megatron, IsOk());
  EXPECT_EQ(Find(*megatron, "output_layer.weight"), nullptr);
}

// As safetensors' `save_model` keeps it.
TEST(DecoderTable, TakesTheHeadOfATiedModelForTheEmbeddingItLacks) {
  Configuration config = TinyLlama();
  config["tie_word_embeddings"] = true;
  const layout::LayoutTable& family = *FindFamily(config).value();
  const auto layout = layout::Resolve(family, "hf", config);
  ASSERT_THAT(layout, IsOk());
  const auto match_without = [&](std::string_view absent) {
    std::vector<GlobalTensor> tensors;
    for (const layout::ResolvedTensor& tensor : layout->tensors) {
      if (tensor.name == absent) continue;
      tensors.emplace_back();
      tensors.back().key = tensor.name;
      tensors.back().shape = tensor.shape;
    }
    return layout::MatchSource(family, "hf", config, tensors);
  };
  const auto head = match_without("model.embed_tokens.weight");
  ASSERT_THAT(head, IsOk());
  EXPECT_EQ(head->problems.size(), 0U);
  EXPECT_EQ(head->layout.choices.at("tied_weight"), "head");
  EXPECT_EQ(head->derived_present.size(), 0U);
  for (const char* absent : {"lm_head.weight", ""}) {
    const auto embedding = match_without(absent);
    ASSERT_THAT(embedding, IsOk());
    EXPECT_EQ(embedding->problems.size(), 0U);
    EXPECT_EQ(embedding->layout.choices.at("tied_weight"), "embedding");
  }
  const auto neither = match_without("model.layers.0.mlp.up_proj.weight");
  ASSERT_THAT(neither, IsOk());
  ASSERT_EQ(neither->problems.size(), 1U);
  EXPECT_EQ(neither->problems[0].tensor, "model.layers.0.mlp.up_proj.weight");
}

TEST(DecoderTable, DropsTheRowsThatMegatronPadsTheVocabularyWith) {
  Configuration config = TinyLlama();
  config["padded_vocab_size"] = 16;
  const auto layout = layout::Resolve(*FindFamily(config).value(), "fsdp_dtensor", config);
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(Find(*layout, "output_layer.weight")->shape, (Dims{16, 12}));
  const auto hf = layout::Resolve(*FindFamily(config).value(), "hf", config);
  ASSERT_THAT(hf, IsOk());
  EXPECT_EQ(Find(*hf, "lm_head.weight")->shape, (Dims{10, 12}));
}

struct HostileCase {
  const char* key;
  Value value;
  ErrorKind want;
};
void PrintTo(const HostileCase& c, std::ostream* os) { *os << c.key; }
class HostileConfigTest : public ::testing::TestWithParam<HostileCase> {};

TEST_P(HostileConfigTest, IsRefusedNamingTheKey) {
  Configuration config = TinyLlama();
  config[GetParam().key] = GetParam().value;
  const auto layout = layout::Resolve(*FindFamily(config).value(), "hf", config);
  ASSERT_THAT(layout, FailsWith(GetParam().want));
  EXPECT_NE(layout.status().ToString().find(GetParam().key), std::string::npos)
      << layout.status().ToString();
}

INSTANTIATE_TEST_SUITE_P(
    Values, HostileConfigTest,
    ::testing::Values(HostileCase{"num_attention_heads", 0, ErrorKind::kBadMetadata},
                      HostileCase{"num_key_value_heads", 0, ErrorKind::kBadMetadata},
                      HostileCase{"num_key_value_heads", 3, ErrorKind::kBadMetadata},
                      HostileCase{"hidden_size", -12, ErrorKind::kBadMetadata},
                      HostileCase{"hidden_size", Value(), ErrorKind::kBadMetadata},
                      HostileCase{"hidden_size", "12", ErrorKind::kBadMetadata},
                      HostileCase{"hidden_size", 1.5, ErrorKind::kBadMetadata},
                      HostileCase{"num_hidden_layers", INT64_MAX, ErrorKind::kResource},
                      HostileCase{"num_hidden_layers", 1 << 24, ErrorKind::kResource},
                      HostileCase{"vocab_size", INT64_MAX, ErrorKind::kResource},
                      HostileCase{"num_experts", "many", ErrorKind::kBadMetadata},
                      HostileCase{"tie_word_embeddings", 1, ErrorKind::kBadMetadata}));

}  // namespace
}  // namespace ckpt
