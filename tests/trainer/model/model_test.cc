#include "trainer/model/model.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/model/max_abs.h"
#include "tests/trainer/model/model_runner.h"
#include "tests/trainer/model/tiny_models.h"
#include "trainer/comm/thread_comm.h"

namespace ckpt::testing {
namespace {

using ::testing::ElementsAre;
using trainer::ModelConfig;

constexpr std::uint64_t kSeed = 7;

std::unique_ptr<ModelRunner> MakeRunner(const ModelConfig& config,
                                        const RunnerOptions& options = {}) {
  auto runner =
      std::make_unique<ModelRunner>(config, RandomBatch(kSeed, config.vocab_size), options);
  FillFromSeed(kSeed, runner->params());
  return runner;
}

double MaxDifference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double max = 0;
  for (std::size_t i = 0; i < a.size(); ++i) max = std::max(max, std::abs(a[i] - b[i]));
  return max;
}

class EveryModelTest : public ::testing::TestWithParam<TinyModel> {};

TEST_P(EveryModelTest, RecomputingChangesNoBitAndSavesMemory) {
  const auto kept = MakeRunner(GetParam().config, {.compute = DType::kFloat32});
  const StepValues want = kept->Step();
  std::uint64_t before = kept->model().activation_peak_bytes();
  for (const auto recompute : {trainer::Recompute::kActivations, trainer::Recompute::kLayers}) {
    const auto recomputed =
        MakeRunner(GetParam().config, {.compute = DType::kFloat32, .recompute = recompute});
    EXPECT_EQ(recomputed->Step(), want);
    EXPECT_LT(recomputed->model().activation_peak_bytes(), before);
    before = recomputed->model().activation_peak_bytes();
  }
}

TEST_P(EveryModelTest, QueuesOnThreadsChangeNoBit) {
  const auto at_once = MakeRunner(GetParam().config, {.compute = DType::kFloat32});
  const auto later = MakeRunner(
      GetParam().config, {.compute = DType::kFloat32,
                          .device = {.queues = trainer::QueueMode::kThreads, .delay_seed = kSeed}});
  EXPECT_EQ(at_once->Step(), later->Step());
}

TEST_P(EveryModelTest, StepsRepeatBitForBit) {
  const auto runner = MakeRunner(GetParam().config, {.compute = DType::kFloat32});
  const StepValues first = runner->Step();
  EXPECT_EQ(first, runner->Step());
  EXPECT_EQ(first.losses, runner->Evaluate());
}

TEST_P(EveryModelTest, Bfloat16IsCloseToFloat32) {
  const auto exact = MakeRunner(GetParam().config, {.compute = DType::kFloat32});
  const auto rounded = MakeRunner(GetParam().config, {.compute = DType::kBfloat16});
  const StepValues want = exact->Step();
  const StepValues have = rounded->Step();
  EXPECT_LE(MaxDifference(have.losses, want.losses), 0.1 * MaxAbs(want.losses));
  for (const auto& [name, gradient] : want.gradients) {
    EXPECT_LE(MaxDifference(have.gradients.at(name), gradient), 0.3 * MaxAbs(gradient)) << name;
  }
}

TEST_P(EveryModelTest, MicroBatchesAddUp) {
  const auto runner = MakeRunner(GetParam().config);
  const StepValues once = runner->Step();
  runner->ForwardBackward();
  for (const auto& [name, twice] : runner->params().ReadGradients()) {
    std::vector<double> doubled = once.gradients.at(name);
    for (double& value : doubled) value *= 2;
    EXPECT_LE(MaxDifference(twice, doubled), 1e-12 * MaxAbs(doubled)) << name;
  }
}

TEST_P(EveryModelTest, FrozenParametersLeaveTheOtherGradientsAsTheyAre) {
  const auto all = MakeRunner(GetParam().config);
  const StepValues want = all->Step();
  RunnerOptions options;
  for (const auto& [name, gradient] : want.gradients) {
    if (options.frozen.size() < want.gradients.size() / 2) options.frozen.insert(name);
  }
  const StepValues have = MakeRunner(GetParam().config, options)->Step();
  EXPECT_EQ(have.gradients.size() + options.frozen.size(), want.gradients.size());
  for (const auto& [name, gradient] : have.gradients) {
    EXPECT_EQ(gradient, want.gradients.at(name)) << name;
  }
}

TEST_P(EveryModelTest, NoParameterIsWithoutGradient) {
  const ModelConfig& config = GetParam().config;
  // Tokens enough for every expert.
  ModelRunner many(config, RandomBatch(kSeed, config.vocab_size, 4, 32));
  FillFromSeed(kSeed, many.params());
  for (const auto& [name, gradient] : many.Step().gradients) {
    EXPECT_GT(MaxAbs(gradient), 0) << name;
  }
}

// Only the order changes in which the gradient of the output layer is added up.
TEST_P(EveryModelTest, ChunksOfLogitsGiveWhatAllLogitsGive) {
  const ModelConfig& config = GetParam().config;
  const RunnerOptions whole = {.fixed_order = true};
  RunnerOptions chunked = whole;
  chunked.loss_chunk_tokens = 5;  // of 24 tokens
  const auto at_once = MakeRunner(config, whole);
  const auto in_chunks = MakeRunner(config, chunked);
  const StepValues want = at_once->Step();
  const StepValues have = in_chunks->Step();
  EXPECT_EQ(have.losses, want.losses);
  EXPECT_EQ(in_chunks->Evaluate(), want.losses);
  std::vector<double> logits;
  std::vector<double> want_logits;
  EXPECT_EQ(in_chunks->Evaluate(&logits), at_once->Evaluate(&want_logits));
  EXPECT_EQ(logits, want_logits);
  for (const auto& [name, gradient] : want.gradients) {
    if (name == "output_layer.weight" || config.tied_embeddings) {
      EXPECT_LE(MaxDifference(have.gradients.at(name), gradient), 1e-13 * MaxAbs(gradient)) << name;
    } else {
      EXPECT_EQ(have.gradients.at(name), gradient) << name;
    }
  }
}

TEST(ModelTest, ChunksOfLogitsTakeLessMemory) {
  ModelConfig config = TinyDense();
  config.vocab_size = 4000;
  config.padded_vocab_size = 4000;
  const auto peak = [&](std::int64_t chunk) {
    const auto runner = MakeRunner(config, {.loss_chunk_tokens = chunk});
    runner->Step();
    return runner->model().activation_peak_bytes();
  };
  constexpr std::uint64_t kTokens = 24;
  EXPECT_GE(peak(kTokens) - peak(6), (kTokens - 6) * 4000 * sizeof(double));
  EXPECT_EQ(peak(4096), peak(kTokens));
}

INSTANTIATE_TEST_SUITE_P(Tiny, EveryModelTest, ::testing::ValuesIn(AllModels()),
                         [](const auto& test) { return test.param.name; });

// As in Megatron. Rows of zeros have the logit 0, so each adds exp(0) to the softmax.
TEST(ModelTest, RowsThatPadTheVocabularyTakePartInTheLoss) {
  const ModelConfig padded = TinyDense();
  ModelConfig bare = padded;
  bare.padded_vocab_size = bare.vocab_size;
  const auto num_padding = static_cast<double>(padded.padded_vocab_size - padded.vocab_size);
  ASSERT_GT(num_padding, 0);
  const auto with = MakeRunner(padded);
  const auto without = MakeRunner(bare);
  constexpr const char* kOutput = "output_layer.weight";
  for (const auto& [name, spec] : without->params().specs()) {
    std::vector<double> weight = without->params().ReadWeight(name);
    weight.resize(with->params().ReadWeight(name).size());
    with->params().WriteWeight(name, weight);
  }

  std::vector<double> logits;
  const std::vector<double> bare_losses = without->Evaluate(&logits);
  const TokenBatch batch = RandomBatch(kSeed, padded.vocab_size);
  std::vector<double> want;
  for (std::size_t t = 0; t < bare_losses.size(); ++t) {
    if (batch.labels[t] < 0) {
      want.push_back(0);
      continue;
    }
    const std::size_t label =
        t * static_cast<std::size_t>(bare.vocab_size) + static_cast<std::size_t>(batch.labels[t]);
    const double sum = std::exp(bare_losses[t] + logits[label]);
    want.push_back(std::log(sum + num_padding) - logits[label]);
  }
  const StepValues step = with->Step();
  EXPECT_LE(MaxDifference(step.losses, want), 1e-12);
  EXPECT_LE(MaxDifference(with->Evaluate(), want), 1e-12);

  const std::vector<double>& gradient = step.gradients.at(kOutput);
  const std::vector<double> of_padding(gradient.begin() + bare.vocab_size * bare.hidden_size,
                                       gradient.end());
  EXPECT_EQ(static_cast<double>(of_padding.size()),
            num_padding * static_cast<double>(padded.hidden_size));
  EXPECT_GT(MaxAbs(of_padding), 0);
}

TEST(ModelTest, GathersALayerTwiceAndReducesAUnitOnce) {
  const auto runner = MakeRunner(TinyDense());
  runner->params().ClearCalls();
  runner->ForwardBackward();
  EXPECT_THAT(runner->params().calls(),
              ElementsAre("acquire 0", "prefetch 1", "release 0",              //
                          "acquire 1", "prefetch 2", "release 1",              //
                          "acquire 2", "prefetch 3", "release 2",              //
                          "acquire 3", "release 3", "reduce 3",                //
                          "acquire 2", "prefetch 1", "reduce 2", "release 2",  //
                          "acquire 1", "reduce 1", "release 1",                //
                          "reduce 0"));
  EXPECT_TRUE(runner->params().is_at_rest());
}

TEST(ModelTest, RequestsSeveralUnitsAheadIfAskedTo) {
  const auto runner = MakeRunner(TinyDense(), {.prefetch_depth = 2});
  runner->params().ClearCalls();
  runner->ForwardBackward();
  EXPECT_THAT(runner->params().calls(),
              ElementsAre("acquire 0", "prefetch 1", "prefetch 2", "release 0",  //
                          "acquire 1", "prefetch 2", "prefetch 3", "release 1",  //
                          "acquire 2", "prefetch 3", "release 2",                //
                          "acquire 3", "release 3", "reduce 3",                  //
                          "acquire 2", "prefetch 1", "reduce 2", "release 2",    //
                          "acquire 1", "reduce 1", "release 1",                  //
                          "reduce 0"));
}

// One matrix embeds tokens and gives logits: it is whole for the whole pass, and its gradient is
// complete at the end.
TEST(ModelTest, TiedEmbeddingsAreHeldForTheWholePass) {
  ModelConfig config = TinyDense();
  config.tied_embeddings = true;
  const auto runner = MakeRunner(config);
  runner->params().ClearCalls();
  runner->ForwardBackward();
  const std::vector<std::string> calls = runner->params().calls();
  EXPECT_EQ(calls.front(), "acquire 0");
  EXPECT_EQ(calls.back(), "release 0");
  EXPECT_EQ(*(calls.end() - 2), "reduce 0");
  EXPECT_TRUE(runner->params().is_at_rest());
}

TEST(ModelTest, NoTokenSeesALaterOne) {
  const ModelConfig config = TinyDense();
  const auto runner = MakeRunner(config);
  std::vector<double> logits;
  runner->Evaluate(&logits);
  TokenBatch changed = RandomBatch(kSeed, config.vocab_size);
  constexpr std::int64_t kChanged = 3;  // of the first sequence
  changed.tokens[kChanged] = changed.tokens[kChanged] == 0 ? 1 : 0;
  runner->SetBatch(changed);
  std::vector<double> after;
  runner->Evaluate(&after);
  for (std::int64_t t = 0; t < changed.batch * changed.seq; ++t) {
    const auto row = [&](const std::vector<double>& all) {
      const auto begin = all.begin() + t * config.padded_vocab_size;
      return std::vector<double>(begin, begin + config.padded_vocab_size);
    };
    const bool sees_it = t >= kChanged && t < changed.seq;
    EXPECT_EQ(row(logits) != row(after), sees_it) << "token " << t;
  }
}

TEST(ModelTest, AWindowHidesWhatLiesBehindIt) {
  ModelConfig config = TinyDense();
  config.num_layers = 1;
  config.window_size = {2};
  config.is_moe_layer = {false};
  const auto runner = MakeRunner(config);
  std::vector<double> logits;
  runner->Evaluate(&logits);
  TokenBatch changed = RandomBatch(kSeed, config.vocab_size);
  changed.tokens[0] = changed.tokens[0] == 0 ? 1 : 0;
  runner->SetBatch(changed);
  std::vector<double> after;
  runner->Evaluate(&after);
  std::vector<bool> differs;
  for (std::int64_t t = 0; t < changed.seq; ++t) {
    differs.push_back(logits[static_cast<std::size_t>(t * config.padded_vocab_size)] !=
                      after[static_cast<std::size_t>(t * config.padded_vocab_size)]);
  }
  EXPECT_THAT(differs, ElementsAre(true, true, false, false, false, false, false, false));
}

TEST(ModelTest, ALongerSequenceLeavesShorterOnesAlone) {
  const ModelConfig config = TinyDense();
  const auto runner = MakeRunner(config);
  const std::vector<double> before = runner->Evaluate();
  runner->SetBatch(RandomBatch(kSeed, config.vocab_size, 1, 17));
  runner->Evaluate();
  runner->SetBatch(RandomBatch(kSeed, config.vocab_size));
  EXPECT_EQ(runner->Evaluate(), before);
}

TEST(ModelTest, ScalesTheGradientOfTheLossAlone) {
  const auto plain = MakeRunner(TinyDense());
  const auto scaled = MakeRunner(TinyDense(), {.scales = {.token = 0.125}});
  const StepValues one = plain->Step();
  const StepValues eighth = scaled->Step();
  EXPECT_EQ(one.losses, eighth.losses);
  for (const auto& [name, gradient] : one.gradients) {
    std::vector<double> want = gradient;
    for (double& value : want) value *= 0.125;  // exact
    EXPECT_EQ(eighth.gradients.at(name), want) << name;
  }
}

TEST(ModelTest, NamesParametersAsMegatronDoes) {
  ModelConfig config = TinyDense();
  config.qkv_bias = true;
  config.qk_layernorm = true;
  config.num_layers = 1;
  config.window_size = {0};
  config.is_moe_layer = {false};
  const auto runner = MakeRunner(config);
  std::vector<std::string> listed;
  for (const trainer::UnitSpec& unit : runner->model().units()) {
    for (const trainer::ParamSpec& param : unit.params) {
      listed.push_back(unit.name + ": " + param.name + " " + FormatDims(param.shape));
    }
  }
  EXPECT_THAT(
      listed,
      ElementsAre("embedding: embedding.word_embeddings.weight [25, 12]",
                  "decoder.layers.0: decoder.layers.0.input_layernorm.weight [12]",
                  "decoder.layers.0: decoder.layers.0.self_attention.linear_qkv.weight [48, 12]",
                  "decoder.layers.0: decoder.layers.0.self_attention.linear_qkv.bias [48]",
                  "decoder.layers.0: decoder.layers.0.self_attention.q_layernorm.weight [6]",
                  "decoder.layers.0: decoder.layers.0.self_attention.k_layernorm.weight [6]",
                  "decoder.layers.0: decoder.layers.0.self_attention.linear_proj.weight [12, 24]",
                  "decoder.layers.0: decoder.layers.0.pre_mlp_layernorm.weight [12]",
                  "decoder.layers.0: decoder.layers.0.mlp.linear_fc1.weight [40, 12]",
                  "decoder.layers.0: decoder.layers.0.mlp.linear_fc2.weight [12, 20]",
                  "head: decoder.final_layernorm.weight [12]",
                  "head: output_layer.weight [25, 12]"));
}

TEST(ModelTest, TiedEmbeddingsAreOneUnitWithTheHead) {
  ModelConfig config = TinyDense();
  config.tied_embeddings = true;
  const std::vector<trainer::UnitSpec> units = trainer::ListUnits(config, 0, 1);
  ASSERT_EQ(units.size(), static_cast<std::size_t>(config.num_layers) + 1);
  EXPECT_EQ(units.front().name, "root");
  ASSERT_EQ(units.front().params.size(), 2U);
  EXPECT_EQ(units.front().params.back().name, "decoder.final_layernorm.weight");
}

TEST(ModelTest, InitialisesResidualOutputsSmaller) {
  const auto runner = MakeRunner(TinyDense());
  const auto std_of = [&](const std::string& name) {
    return runner->params().specs().at(name).init.std;
  };
  EXPECT_DOUBLE_EQ(std_of("decoder.layers.0.self_attention.linear_qkv.weight"), 0.02);
  EXPECT_DOUBLE_EQ(std_of("decoder.layers.0.self_attention.linear_proj.weight"), 0.01);
  EXPECT_DOUBLE_EQ(std_of("decoder.layers.0.mlp.linear_fc1.weight"), 0.02);
  EXPECT_DOUBLE_EQ(std_of("decoder.layers.0.mlp.linear_fc2.weight"), 0.01);
  EXPECT_DOUBLE_EQ(std_of("output_layer.weight"), 0.02);
}

TEST(ModelTest, CountsTheExpertsOfTrainedTokensOnce) {
  ModelConfig config = TinyMoe();
  config.moe->router.score = trainer::ScoreFunction::kSigmoid;
  config.moe->expert_bias = true;
  const auto runner = MakeRunner(config, {.recompute = trainer::Recompute::kLayers});
  ASSERT_EQ(runner->model().expert_counts().dim(0), 1);
  ASSERT_EQ(runner->model().buffers().size(), 1U);
  EXPECT_EQ(runner->model().buffers()[0].spec.name, "decoder.layers.1.mlp.router.expert_bias");
  runner->Evaluate();
  runner->ForwardBackward();
  double total = 0;
  for (const double count : runner->Read(runner->model().expert_counts())) total += count;
  const TokenBatch batch = RandomBatch(kSeed, config.vocab_size);
  EXPECT_EQ(total, static_cast<double>(batch.batch * batch.seq * config.moe->router.topk));
}

TEST(ModelTest, TheExpertBiasChangesWhoIsChosenAndNothingElse) {
  ModelConfig config = TinyMoe();
  config.moe->router.score = trainer::ScoreFunction::kSigmoid;
  config.moe->expert_bias = true;
  const auto runner = MakeRunner(config);
  const std::vector<double> before = runner->Evaluate();
  const trainer::Tensor& bias = runner->model().buffers()[0].values;
  runner->Write({5, 5, 5, 5, 5, 5}, bias);
  EXPECT_EQ(runner->Evaluate(), before);
  runner->Write({5, 5, 0, 0, 0, 0}, bias);
  runner->ForwardBackward();
  const double tokens = 24;
  EXPECT_THAT(runner->Read(runner->model().expert_counts()),
              ElementsAre(tokens, tokens, 0, 0, 0, 0));
}

TEST(ModelTest, RefusesExpertsThatDoNotDivideOverTheirGroup) {
  const auto device = trainer::MakeHostDevice({});
  auto world = trainer::MakeThreadWorld(4);
  const auto experts = device->MakeCollectives(std::move(world[0]));
  ASSERT_THAT(experts, IsOk());
  trainer::ModelRuntime runtime;
  runtime.device = device.get();
  runtime.moe.expert_group = experts->get();
  EXPECT_THAT(trainer::Model::Create(TinyMoe(), runtime), FailsWith(ErrorKind::kUsage));
}

TEST(ModelTest, RefusesLearnedPositions) {
  ModelConfig config = TinyDense();
  config.learned_positions = 16;
  const auto device = trainer::MakeHostDevice({});
  trainer::ModelRuntime runtime;
  runtime.device = device.get();
  EXPECT_THAT(trainer::Model::Create(config, runtime), FailsWith(ErrorKind::kUsage));
}

}  // namespace
}  // namespace ckpt::testing
