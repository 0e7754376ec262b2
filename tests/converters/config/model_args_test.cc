// A model's settings on their way through the `args` of its conversion.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "converters/config/megatron_args.h"
#include "converters/config/model_settings.h"
#include "converters/config/own_args.h"
#include "converters/config/run_settings.h"
#include "converters/config/translation_table.h"
#include "converters/families/family_registry.h"
#include "tests/converters/config/args_fixture.h"
#include "tests/testing/matchers.h"
#include "trainer/model/model_config.h"
#include "trainer/model/settings_reader.h"

namespace ckpt {
namespace {

using layout::Configuration;
using layout::Value;
using testing::ArgsOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FailsWith;
using testing::GoldenConfig;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::IsOk;
using ::testing::SizeIs;
using testing::With;

Configuration Dense(const std::string& model_type) {
  return {{"model_type", model_type}, {"num_hidden_layers", 4},         {"hidden_size", 16},
          {"num_attention_heads", 4}, {"num_key_value_heads", 2},       {"vocab_size", 160},
          {"intermediate_size", 20},  {"max_position_embeddings", 128}, {"rms_norm_eps", 1e-6}};
}

Configuration Latent(const std::string& model_type) {
  return With(Dense(model_type), {{"num_key_value_heads", 4},
                                  {"q_lora_rank", 6},
                                  {"kv_lora_rank", 8},
                                  {"qk_nope_head_dim", 4},
                                  {"qk_rope_head_dim", 2},
                                  {"v_head_dim", 5},
                                  {"n_routed_experts", 16},
                                  {"num_experts_per_tok", 4},
                                  {"moe_intermediate_size", 8},
                                  {"n_shared_experts", 1},
                                  {"n_group", 4},
                                  {"topk_group", 2},
                                  {"first_k_dense_replace", 1}});
}

std::vector<std::string> DescribedWarningsOf(const Configuration& config) {
  std::vector<std::string> warnings;
  for (const Problem& problem : testing::WarningsOf(config)) warnings.push_back(Describe(problem));
  return warnings;
}

std::vector<Problem> Compared(const Configuration& config, const Configuration& args) {
  auto differences = DifferencesFromArgs(config, args);
  EXPECT_THAT(differences, IsOk());
  return differences.ok() ? *std::move(differences) : std::vector<Problem>();
}

// What the trainer makes of settings, defaults included.
Configuration AsTheTrainerReads(const Configuration& settings) {
  trainer::SettingsReader reader(settings);
  trainer::ReadModelConfig(reader);
  EXPECT_TRUE(reader.ok()) << reader.Finish().ToString();
  return reader.effective();
}

// Each as "name value"; the bound of learned positions, which no model here has, is left out.
std::vector<std::string> TrainedWith(const Configuration& settings) {
  std::vector<std::string> lines;
  for (const auto& [name, value] : AsTheTrainerReads(settings)) {
    if (name != "max_position_embeddings") lines.push_back(name + " " + FormatValue(value));
  }
  return lines;
}

struct Case {
  std::string name;
  Configuration config;
  std::vector<std::string> warnings;  // what each of them names
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Value::List kHalfSliding = {"full_attention", "sliding_attention", "full_attention",
                                  "sliding_attention"};

class DescribedModelTest : public ::testing::TestWithParam<Case> {};

TEST_P(DescribedModelTest, IsTheModelForUsAndWarnsOfWhatItIsNotForMegatron) {
  const auto settings = ModelSettings(GetParam().config);
  ASSERT_THAT(settings, IsOk());
  const auto stored = StoredModelSettings(ArgsOf(GetParam().config));
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(TrainedWith(*stored), TrainedWith(*settings));
  EXPECT_THAT(Compared(GetParam().config, ArgsOf(GetParam().config)), IsEmpty());
  const std::vector<std::string> warnings = DescribedWarningsOf(GetParam().config);
  ASSERT_EQ(warnings.size(), GetParam().warnings.size()) << ::testing::PrintToString(warnings);
  for (std::size_t i = 0; i < warnings.size(); ++i) {
    EXPECT_THAT(warnings[i], HasSubstr(GetParam().warnings[i]));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, DescribedModelTest,
    ::testing::Values(
        // What Megatron has options for.
        Case{"Plain", Dense("llama"), {}},
        Case{"Windows", With(Dense("mistral"), {{"sliding_window", 8}}), {}},
        Case{"WindowsOfLaterLayers",
             With(Dense("qwen2"),
                  {{"use_sliding_window", true}, {"sliding_window", 8}, {"max_window_layers", 2}}),
             {}},
        Case{"ListedWindows",
             With(Dense("qwen3"), {{"use_sliding_window", true},
                                   {"sliding_window", 8},
                                   {"layer_types", kHalfSliding}}),
             {}},
        Case{"EveryBias", With(Dense("llama"), {{"attention_bias", true}, {"mlp_bias", true}}), {}},
        Case{"NormalisedSoftmax",
             With(Dense("mixtral"), {{"num_local_experts", 4}, {"num_experts_per_tok", 2}}),
             {}},
        Case{"Latent", Latent("deepseek_v3"), {}},
        Case{"GroupsByTheirBest",
             With(Latent("deepseek_v2"),
                  {{"topk_method", "group_limited_greedy"}, {"num_experts_per_tok", 3}}),
             {}},
        Case{"EveryGroup", With(Latent("deepseek_v3"), {{"topk_group", 4}}), {}},
        // What it has none for.
        Case{"BiasOfAttention",
             With(Dense("llama"), {{"attention_bias", true}}),
             {"another add_attention_output_bias than the model's: expected true, found false"}},
        Case{"GroupsOfDeepSeekV2",
             With(Latent("deepseek_v2"), {{"topk_method", "group_limited_greedy"},
                                          {"n_group", 8},
                                          {"topk_group", 3},
                                          {"num_experts_per_tok", 6}}),
             {"another moe_router_group_score than the model's: expected max, found "
              "top_two_sum"}},
        Case{"GroupsByThreeExperts",
             With(Latent("deepseek_v3"), {{"num_experts_per_tok", 6}}),
             {"groups of experts compete with more than their two best"}},
        Case{"NeighboursAreNoPairs",
             With(Latent("deepseek_v3"), {{"rope_interleave", false}}),
             {"another rotary_interleaved than the model's: expected false, found true"}},
        Case{"WeightsAsTheyAre",
             With(Latent("deepseek_v3"), {{"norm_topk_prob", false}}),
             {"another moe_router_normalize_topk than the model's: expected false, found true"}},
        Case{"NormsOfLatents",
             With(Latent("deepseek_v3"), {{"rms_norm_eps", 1e-5}}),
             {"another latent_norm_epsilon than the model's: expected 1e-06, found 1e-05"}}),
    [](const auto& test) { return test.param.name; });

TEST(ModelArgs, SayWhichLayersHaveWindows) {
  const Configuration args = ArgsOf(
      With(Dense("qwen2"),
           {{"use_sliding_window", true}, {"sliding_window", 8}, {"layer_types", kHalfSliding}}));
  EXPECT_EQ(args.at("window_size"), Value(Value::List{7, 0}));
  EXPECT_EQ(args.at("window_attn_skip_freq"), Value(Value::List{0, 1, 0, 1}));
  // Without the switch there is none, whatever the size.
  EXPECT_FALSE(ArgsOf(With(Dense("qwen2"), {{"sliding_window", 8}})).contains("window_size"));
}

// The reason travels, and everything that loads the conversion gives it.
TEST(ModelArgs, OfAModelThatTheTrainerDoesNotComputeAreRefused) {
  const Configuration config =
      With(Dense("mixtral"),
           {{"num_local_experts", 4}, {"router_jitter_noise", 0.1}, {"attention_dropout", 0.5}});
  EXPECT_THAT(ModelSettings(config), FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(DescribedWarningsOf(config),
              ElementsAre(HasSubstr("attention has dropout"), HasSubstr("the router adds noise")));
  for (const auto& stored : {StoredModelSettings(ArgsOf(config)), RunSettings(ArgsOf(config))}) {
    ASSERT_THAT(stored, FailsWith(ErrorKind::kUnsupported));
    EXPECT_THAT(stored.status().ToString(), HasSubstr("attention has dropout"));
    EXPECT_THAT(stored.status().ToString(), HasSubstr("the router adds noise"));
  }
}

// Sinks, a gate that is clamped and shifted, and the biases of experts have names in Megatron; what
// has none is named.
TEST(ModelArgs, OfGptOssSayWhatMegatronComputes) {
  Configuration config =
      With(Dense("gpt_oss"), {{"num_local_experts", 4},
                              {"num_experts_per_tok", 2},
                              {"sliding_window", 8},
                              {"head_dim", 4},
                              {"swiglu_limit", 5.0},
                              {"rope_parameters.rope_type", "yarn"},
                              {"rope_parameters.factor", 4.0},
                              {"rope_parameters.original_max_position_embeddings", 32},
                              {"rope_parameters.truncate", false}});
  ASSERT_THAT(ReadAsClass(config), IsOk());
  const Configuration args = ArgsOf(config);
  for (const auto& [name, value] : Configuration{{"softmax_type", "learnable"},
                                                 {"window_size", Value::List{7, 0}},
                                                 {"window_attn_skip_freq", Value::List{1, 0, 1, 0}},
                                                 {"swiglu", false},
                                                 {"quick_geglu", true},
                                                 {"glu_linear_offset", 1.0},
                                                 {"activation_func_clamp_value", 5.0},
                                                 {"add_bias_linear", true},
                                                 {"moe_router_pre_softmax", false},
                                                 {"moe_ffn_hidden_size", 20},
                                                 {"position_embedding_type", "yarn"},
                                                 {"yarn_rotary_scaling_factor", 4.0},
                                                 {"yarn_correction_range_round_to_int", false}}) {
    ASSERT_TRUE(args.contains(name)) << name;
    EXPECT_EQ(FormatValue(args.at(name)), FormatValue(value)) << name;
  }
  const auto refusals = ElementsAre(HasSubstr("attention has sinks"), HasSubstr("swiglu_limit"),
                                    HasSubstr("the experts and their router have biases"));
  EXPECT_THAT(DescribedWarningsOf(config), refusals);
  EXPECT_THAT(StoredModelSettings(args), FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(Compared(config, args), IsEmpty());
  config["swiglu_alpha"] = 2.0;
  EXPECT_THAT(DescribedWarningsOf(config),
              Contains(HasSubstr("another quick_geglu_alpha than the model's")));
}

// What Megatron computes by default is not said of a model.
TEST(ModelArgs, OfOthersHaveMegatronsDefaults) {
  const Configuration args = ArgsOf(Dense("llama"));
  EXPECT_EQ(args.at("softmax_type"), Value("vanilla"));
  EXPECT_EQ(args.at("quick_geglu"), Value(false));
  EXPECT_EQ(args.at("glu_linear_offset"), Value(0.0));
  EXPECT_FALSE(ConfigFromMegatronArgs(args)->contains("quick_geglu"));
}

TEST(ModelArgs, TellOfNumbersThatOtherNamesDoNotStandFor) {
  const Configuration experts =
      ArgsOf(With(Dense("qwen3_moe"),
                  {{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 8}}));
  EXPECT_THAT(CheckStoredAsOthersDo(ArgsOf(Dense("llama"))), IsOk());
  EXPECT_THAT(CheckStoredAsOthersDo(experts), IsOk());
  EXPECT_THAT(CheckStoredAsOthersDo({}), IsOk());
  EXPECT_EQ(
      ConfigFromMegatronArgs(With(experts, {{"add_bias_linear", true}}))->at("expert_linear_bias"),
      Value(true));
  for (const Configuration& said :
       {Configuration{{"layernorm_zero_centered_gamma", true}},
        Configuration{{"attention_output_gate", true}}, Configuration{{"apply_layernorm_1p", true}},
        Configuration{{"rotary_interleaved", true}}, Configuration{{"gtp_weight_remat_size", 2}},
        Configuration{{"use_torch_fsdp2", true}, {"data_parallel_size", 2}}}) {
    EXPECT_THAT(CheckStoredAsOthersDo(With(ArgsOf(Dense("llama")), said)),
                FailsWith(ErrorKind::kUnsupported))
        << said.begin()->first;
  }
  EXPECT_THAT(CheckStoredAsOthersDo(With(ArgsOf(Dense("llama")), {{"use_torch_fsdp2", true},
                                                                  {"data_parallel_size", 2},
                                                                  {"gtp_weight_remat_size", 1}})),
              IsOk());
  const Configuration blocks = {{"moe_mlp_glu_interleave_size", 32}, {"moe_grouped_gemm", true}};
  EXPECT_THAT(CheckStoredAsOthersDo(With(experts, blocks)), FailsWith(ErrorKind::kUnsupported));
  EXPECT_THAT(CheckStoredAsOthersDo(With(With(experts, blocks), {{"moe_grouped_gemm", false}})),
              IsOk());
  EXPECT_THAT(CheckStoredAsOthersDo(With(ArgsOf(Dense("llama")), blocks)), IsOk());
  const Configuration shared = {{"moe_shared_expert_glu_interleave_size", 32}};
  EXPECT_THAT(CheckStoredAsOthersDo(With(experts, shared)), IsOk());
  EXPECT_THAT(CheckStoredAsOthersDo(
                  With(With(experts, shared), {{"use_grouped_gemm_for_shared_expert", true}})),
              FailsWith(ErrorKind::kUnsupported));
}

TEST(ModelArgs, TellWhatNoPublishedClassComputes) {
  const Configuration config = Dense("llama");
  for (const char* name : {"use_mup", "qk_l2_norm", "apply_residual_connection_post_layernorm"}) {
    const auto warnings = UnpublishedIn(With(ArgsOf(config), {{name, true}}));
    ASSERT_THAT(warnings, IsOk());
    ASSERT_THAT(*warnings, SizeIs(1)) << name;
    EXPECT_EQ(warnings->front().severity, Severity::kWarning);
  }
  EXPECT_THAT(*UnpublishedIn(ArgsOf(config)), IsEmpty());
}

TEST(ModelArgs, OfALaterVersionAreComparedWithNothing) {
  Configuration args = ArgsOf(Dense("llama"));
  args[std::string(kArgsVersion)] = kArgsVersionNow + 1;
  EXPECT_THAT(DifferencesFromArgs(Dense("llama"), args), FailsWith(ErrorKind::kUnsupported));
}

TEST(ModelArgs, AreTheSameWhereNeitherIsANumber) {
  const Configuration config =
      With(Dense("llama"), {{"rms_norm_eps", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_THAT(Compared(config, ArgsOf(config)), IsEmpty());
  EXPECT_THAT(DescribedWarningsOf(config), IsEmpty());
}

TEST(ModelArgs, AreComparedWithAConfigurationByWhatBothMean) {
  const Configuration config = Latent("deepseek_v3");
  Configuration args = ArgsOf(With(config, {{"rms_norm_eps", 1e-5}}));
  auto differences = Compared(config, args);
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].message, "config.json means another norm_epsilon than the run's");
  EXPECT_EQ(differences[0].expected, "1e-05");
  EXPECT_EQ(differences[0].actual, "1e-06");
  // As Megatron stores them: without our own. It trained with one epsilon for all norms.
  std::erase_if(args, [](const auto& arg) { return arg.first.starts_with(kOwnPrefix); });
  EXPECT_EQ(Compared(config, args).size(), 2U);

  // That the trainer does not compute it, is no difference.
  const Configuration dynamic = With(
      Dense("llama"), {{"rope_parameters.rope_type", "dynamic"}, {"rope_parameters.factor", 2.0}});
  EXPECT_THAT(Compared(dynamic, ArgsOf(dynamic)), IsEmpty());
}

TEST(ModelArgs, DifferInNothingThatHasNoEffect) {
  // No layer has an MLP of its own.
  const Configuration experts =
      With(Dense("mixtral"), {{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  EXPECT_THAT(Compared(experts, With(ArgsOf(experts), {{"ffn_hidden_size", 96}})), IsEmpty());
  // The first layer has one.
  const Configuration latent = Latent("deepseek_v3");
  EXPECT_THAT(Compared(latent, With(ArgsOf(latent), {{"ffn_hidden_size", 96}})), SizeIs(1));

  // Megatron's latent attention is Yarn's by default, with a factor that changes nothing.
  const Configuration yarn = With(ArgsOf(latent), {{"rope_type", "yarn"}});
  EXPECT_THAT(Compared(latent, With(yarn, {{"rotary_scaling_factor", 1.0}})), IsEmpty());
  EXPECT_FALSE(Compared(latent, With(yarn, {{"rotary_scaling_factor", 2.0}})).empty());
}

TEST(ModelArgs, DifferInNothingWherePositionsAreDividedByOne) {
  const Configuration plain = Dense("llama");
  for (const char* type : {"linear", "llama3", "yarn"}) {
    SCOPED_TRACE(type);
    Configuration scaled = With(plain, {{"rope_parameters.rope_type", type},
                                        {"rope_parameters.factor", 1.0},
                                        {"rope_parameters.original_max_position_embeddings", 32}});
    EXPECT_THAT(Compared(plain, ArgsOf(scaled)), IsEmpty());
    EXPECT_THAT(Compared(scaled, ArgsOf(plain)), IsEmpty());
    scaled["rope_parameters.factor"] = 2.0;
    EXPECT_FALSE(Compared(plain, ArgsOf(scaled)).empty());
  }
  // Of Yarn, cosine and sine have a factor of their own.
  const Configuration louder = With(plain, {{"rope_parameters.rope_type", "yarn"},
                                            {"rope_parameters.factor", 1.0},
                                            {"rope_parameters.attention_factor", 1.5}});
  EXPECT_FALSE(Compared(plain, ArgsOf(louder)).empty());
}

// A run of such a model saves it, and knows it again.
TEST(ModelArgs, KeepTheBiasesOfAttentionAlone) {
  for (const char* model_type : {"llama", "qwen3", "qwen2"}) {
    const bool is_qwen2 = model_type == std::string("qwen2");
    const auto config =
        ConfigFromMegatronArgs(ArgsOf(With(Dense(model_type), {{"attention_bias", true}})));
    ASSERT_THAT(config, IsOk());
    // A run says what it has, not what it is.
    EXPECT_EQ(config->at("model_type"), Value("megatron"));
    EXPECT_EQ(config->at("attention_bias"), Value(true));
    EXPECT_EQ(config->at("attention_output_bias"), Value(!is_qwen2));
    EXPECT_EQ(config->at("mlp_bias"), Value(false));
  }
}

TEST(ModelArgs, LeaveHowExpertsAreBalancedToTheRun) {
  const Configuration config =
      With(Dense("mixtral"), {{"num_local_experts", 4}, {"router_aux_loss_coef", 0.01}});
  EXPECT_EQ(ArgsOf(config).at("moe_aux_loss_coeff"), Value(0.01));
  EXPECT_FALSE(StoredModelSettings(ArgsOf(config))->contains("moe_aux_loss_coeff"));
}

TEST(ModelArgs, CountTheRowsThatPadTheVocabulary) {
  const Configuration args = ArgsOf(With(Dense("llama"), {{"padded_vocab_size", 256}}));
  EXPECT_EQ(args.at("vocab_size"), Value(160));
  EXPECT_EQ(args.at("padded_vocab_size"), Value(256));
  EXPECT_EQ(args.at("make_vocab_size_divisible_by"), Value(128));
}

class PublishedModelTest : public ::testing::TestWithParam<std::string> {};

TEST_P(PublishedModelTest, KeepsItsSettings) {
  const Configuration config = GoldenConfig(GetParam());
  const auto stored = StoredModelSettings(ArgsOf(config));
  ASSERT_THAT(stored, IsOk());
  EXPECT_EQ(TrainedWith(*stored), TrainedWith(ModelSettings(config).value()));
}

// model_meaning.table knows the trainer's defaults: what it leaves out or says in another spelling,
// the trainer reads as before.
TEST_P(PublishedModelTest, MeansTheSameInEverySpelling) {
  const Configuration settings = ModelSettings(GoldenConfig(GetParam())).value();
  Configuration complete = AsTheTrainerReads(settings);
  complete.erase("softmax_scale");  // computed from others, no default
  const TranslationTable table = LoadBuiltInTranslation("model_meaning.table").value();
  const auto meaning = table.TranslatePresent(settings);
  ASSERT_THAT(meaning, IsOk());
  const auto meaning_of_complete = table.TranslatePresent(complete);
  ASSERT_THAT(meaning_of_complete, IsOk());
  for (const auto& [name, value] : *meaning) {
    ASSERT_TRUE(meaning_of_complete->contains(name)) << name;
    EXPECT_EQ(FormatValue(meaning_of_complete->at(name)), FormatValue(value)) << name;
  }
  EXPECT_EQ(meaning_of_complete->size(), meaning->size());
}

INSTANTIATE_TEST_SUITE_P(Golden, PublishedModelTest, ::testing::ValuesIn(testing::TrainedModels()),
                         [](const auto& test) { return testing::TestNameOf(test.param); });

}  // namespace
}  // namespace ckpt
