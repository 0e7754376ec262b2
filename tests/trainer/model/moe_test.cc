#include "trainer/model/moe.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/testing/test_seed.h"
#include "tests/trainer/model/moe_runner.h"
#include "tests/trainer/model/naive_moe.h"
#include "tests/trainer/model/small_moe.h"

namespace ckpt::testing {
namespace {

using trainer::Activation;
using trainer::AuxLoss;
using trainer::Dispatcher;
using trainer::DropPolicy;
using trainer::GroupScore;
using trainer::ModelConfig;
using trainer::QueueMode;
using trainer::ScoreFunction;

struct MoeCase {
  std::string name;
  ModelConfig config;
  std::vector<double> expert_bias = {};
};
void PrintTo(const MoeCase& moe, std::ostream* os) { *os << moe.name; }

std::vector<MoeCase> MoeCases() {
  std::vector<MoeCase> cases;
  cases.push_back({"Softmax", SmallMoe({.topk = 2})});
  cases.push_back(
      {"SoftmaxNormalizedScaled", SmallMoe({.topk = 3, .normalize = true, .scaling = 1.7})});
  cases.push_back({"SoftmaxOverTheChosen",
                   SmallMoe({.score = ScoreFunction::kSoftmaxTopK, .topk = 3, .scaling = 0.8})});
  cases.push_back({"SoftmaxBestOfGroups", SmallMoe({.topk = 2,
                                                    .num_groups = 4,
                                                    .group_topk = 2,
                                                    .group_score = GroupScore::kMax,
                                                    .scaling = 1.3})});
  cases.push_back({"Sigmoid", SmallMoe({.score = ScoreFunction::kSigmoid, .topk = 2})});
  cases.push_back({"SigmoidGroupsNormalizedScaledBiased",
                   SmallMoe({.score = ScoreFunction::kSigmoid,
                             .topk = 3,
                             .num_groups = 2,
                             .group_topk = 1,
                             .normalize = true,
                             .scaling = 2.5}),
                   {0.3, -0.2, 0.1, 0, -0.4, 0.2, 0, 0.1}});
  cases.push_back({"OneExpertAToken", SmallMoe({.topk = 1})});
  cases.push_back({"EveryExpert", SmallMoe({.topk = kSmallMoeExperts, .normalize = true})});
  cases.push_back({"EveryTokenToOneExpert", SmallMoe({.topk = 1}), BiasTowards(5)});
  cases.push_back({"ExpertsThatNobodyChose", SmallMoe({.topk = 2}), BiasTowards(0)});
  {
    ModelConfig config = SmallMoe();
    config.activation = Activation::kGelu;
    config.moe->shared_expert_ffn_hidden_size = 7;
    cases.push_back({"GeluSharedExpert", config});
    config.moe->shared_expert_gate = true;
    cases.push_back({"GeluSharedExpertWithGate", config});
    config.activation = Activation::kSwiGlu;
    cases.push_back({"SharedExpertWithGate", config});
  }
  for (const auto& [name, score] :
       std::map<std::string, ScoreFunction>{{"Softmax", ScoreFunction::kSoftmax},
                                            {"SoftmaxOverTheChosen", ScoreFunction::kSoftmaxTopK},
                                            {"Sigmoid", ScoreFunction::kSigmoid}}) {
    ModelConfig config = SmallMoe({.score = score, .topk = 2, .normalize = true});
    config.moe->aux = {.kind = AuxLoss::kBatch, .coefficient = 0.4};
    cases.push_back({name + "BatchBalanced", config});
    config.moe->aux = {.kind = AuxLoss::kSequence, .coefficient = 0.4, .z_coefficient = 0.2};
    config.moe->shared_expert_ffn_hidden_size = 5;
    cases.push_back({name + "SequenceBalancedZLossSharedExpert", config});
  }
  {
    ModelConfig config = SmallMoe();
    config.moe->aux = {.z_coefficient = 0.3};
    cases.push_back({"ZLossAlone", config});
  }
  for (const bool pad : {false, true}) {
    for (const auto& [name, policy] : std::map<std::string, DropPolicy>{
             {"Probability", DropPolicy::kProbability}, {"Position", DropPolicy::kPosition}}) {
      ModelConfig config = SmallMoe();
      config.moe->aux = {.kind = AuxLoss::kBatch, .coefficient = 0.1};
      config.moe->capacity_factor = 0.6;
      config.moe->drop_policy = policy;
      config.moe->pad_to_capacity = pad;
      cases.push_back({"DropBy" + name + (pad ? "Padded" : ""), config});
    }
  }
  {
    ModelConfig config = SmallMoe();
    config.moe->capacity_factor = 100;
    config.moe->pad_to_capacity = true;
    cases.push_back({"PaddedFarBeyondTheTokens", config});
  }
  return cases;
}

struct Mesh {
  int ranks = 1;
  Dispatcher dispatcher = Dispatcher::kAllToAll;
  bool separate_sources = false;
};

std::string NameOf(const Mesh& mesh) {
  return std::to_string(mesh.ranks) + std::string(" ") + testing::NameOf(mesh.dispatcher) +
         (mesh.separate_sources ? ", separate sources" : "");
}

// Those that can run the model. The last has one expert a rank.
std::vector<Mesh> MeshesOf(const ModelConfig& config) {
  std::vector<Mesh> meshes{
      {.ranks = 1}, {.ranks = 2}, {.ranks = 4}, {.ranks = 2, .separate_sources = true}};
  meshes.push_back({.ranks = 2, .dispatcher = Dispatcher::kFlex});
  meshes.push_back({.ranks = 4, .dispatcher = Dispatcher::kFlex});
  if (!config.moe->capacity_factor) {
    for (const int ranks : {1, 2, 4, static_cast<int>(kSmallMoeExperts)}) {
      meshes.push_back({.ranks = ranks, .dispatcher = Dispatcher::kAllGather});
    }
  }
  meshes.push_back({.ranks = static_cast<int>(kSmallMoeExperts)});
  return meshes;
}

MoeOptions OptionsFor(const Mesh& mesh, const MoeOptions& base = {}) {
  MoeOptions options = base;
  options.ranks = mesh.ranks;
  options.dispatcher = mesh.dispatcher;
  options.separate_sources = mesh.separate_sources;
  return options;
}

class MoeTest : public ::testing::TestWithParam<MoeCase> {};

TEST_P(MoeTest, ForwardIsTheDefinition) {
  const ModelConfig& config = GetParam().config;
  const std::uint64_t seed = testing::TestSeed(kSmallMoeSeed);
  SCOPED_TRACE(::testing::Message() << "replay: CKPT_TEST_SEED=" << seed);
  std::map<std::string, std::vector<double>> weights;
  (void)RunOk(config, RandomMoeBatches(config, seed, 1),
              {.change = [&](const std::string& name, std::vector<double>& values) {
                weights[name] = values;
              }});
  const NaiveMoe naive(
      config, [&](const std::string& name) { return weights.at(name); }, GetParam().expert_bias);
  const std::vector<MoeBatch> batches =
      RandomMoeBatches(config, seed, static_cast<int>(kSmallMoeExperts));
  std::vector<NaiveMoeValues> want;
  std::vector<double> counts(static_cast<std::size_t>(kSmallMoeExperts));
  for (const MoeBatch& batch : batches) {
    want.push_back(naive.Forward(batch));
    for (std::size_t e = 0; e < counts.size(); ++e) counts[e] += want.back().counts[e];
  }
  for (const Mesh& mesh : MeshesOf(config)) {
    SCOPED_TRACE(NameOf(mesh));
    const MoeValues have =
        RunOk(config, batches, OptionsFor(mesh, {.expert_bias = GetParam().expert_bias}));
    ASSERT_EQ(have.y.size(), want.size());
    for (std::size_t i = 0; i < want.size(); ++i) {
      EXPECT_LT(Difference(have.y[i], want[i].y), 1e-13);
      EXPECT_NEAR(have.aux_losses[i], want[i].aux_loss, 1e-13);
    }
    EXPECT_EQ(have.counts, counts);
  }
}

// Largest error of a gradient along a random direction, over the gradient's typical component.
double WorstSlopeError(const ModelConfig& config, const std::vector<MoeBatch>& batches,
                       const MoeOptions& options) {
  const MoeValues base = RunOk(config, batches, options);
  std::map<std::string, std::vector<double>> gradients = base.gradients;
  for (std::size_t i = 0; i < batches.size(); ++i) {
    gradients["x" + std::to_string(i)] = base.dx[i];
  }
  double worst = 0;
  for (const auto& [changed, gradient] : gradients) {
    std::vector<double> direction =
        NormalValues("direction of " + changed, testing::TestSeed(kSmallMoeSeed),
                     static_cast<std::int64_t>(gradient.size()), 1);
    const auto objective = [&, &name = changed](double distance) {
      MoeOptions moved = options;
      moved.change = [&](const std::string& candidate, std::vector<double>& values) {
        for (std::size_t i = 0; candidate == name && i < values.size(); ++i) {
          values[i] += distance * direction[i];
        }
      };
      const MoeValues values = RunOk(config, batches, moved);
      EXPECT_EQ(values.counts, base.counts) << "a tie of the routing: take another seed";
      double sum = 0;
      for (std::size_t i = 0; i < batches.size(); ++i) {
        sum += options.aux_scale * values.aux_losses[i];
        for (std::size_t e = 0; e < batches[i].dy.size(); ++e) {
          sum += batches[i].dy[e] * values.y[i][e];
        }
      }
      return sum;
    };
    // Five points: the error is of fourth order in the distance.
    constexpr double kStep = 2e-4;
    const double slope = (8 * (objective(kStep) - objective(-kStep)) -
                          (objective(2 * kStep) - objective(-2 * kStep))) /
                         (12 * kStep);
    double want = 0;
    double square = 0;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      want += gradient[i] * direction[i];
      square += gradient[i] * gradient[i];
    }
    const double error = std::abs(slope - want) / std::max(std::sqrt(square), 1e-3);
    worst = error <= worst ? worst : error;
  }
  return worst;
}

TEST_P(MoeTest, GradientsEqualFiniteDifferences) {
  const ModelConfig& config = GetParam().config;
  const std::uint64_t seed = testing::TestSeed(kSmallMoeSeed);
  SCOPED_TRACE(::testing::Message() << "replay: CKPT_TEST_SEED=" << seed);
  double worst = 0;
  for (const Mesh& mesh : MeshesOf(config)) {
    if (mesh.ranks > 2) continue;  // equal to these, by the tests below
    SCOPED_TRACE(NameOf(mesh));
    const double error = WorstSlopeError(
        config, RandomMoeBatches(config, seed, 2),
        OptionsFor(mesh, {.expert_bias = GetParam().expert_bias, .aux_scale = 0.7}));
    EXPECT_LT(error, 1e-9);
    worst = std::max(worst, error);
  }
  RecordProperty("worst_e12", std::to_string(worst * 1e12));
}

TEST_P(MoeTest, EveryGroupAndDispatcherAgrees) {
  const ModelConfig& config = GetParam().config;
  const std::vector<MoeBatch> batches = RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed),
                                                         static_cast<int>(kSmallMoeExperts));
  const MoeOptions base{.compute = DType::kFloat32, .expert_bias = GetParam().expert_bias};
  const MoeValues want = RunOk(config, batches, base);
  double worst = 0;
  for (const Mesh& mesh : MeshesOf(config)) {
    SCOPED_TRACE(NameOf(mesh));
    const MoeValues have = RunOk(config, batches, OptionsFor(mesh, base));
    EXPECT_EQ(have.counts, want.counts);
    const double difference = Difference(have, want);
    EXPECT_LT(difference, 1e-6);
    worst = std::max(worst, difference);
  }
  RecordProperty("worst_e9", std::to_string(worst * 1e9));
}

// The canonical mode: what a token gets and the sums of the gradients do not depend on how many
// ranks share the work.
TEST_P(MoeTest, CanonicalBitsDoNotDependOnTheGroup) {
  const ModelConfig& config = GetParam().config;
  const std::vector<MoeBatch> batches =
      RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 4, 3, 7);
  for (const DType compute : {DType::kFloat32, DType::kBfloat16}) {
    const MoeOptions base{.separate_sources = true,
                          .fixed_order = true,
                          .compute = compute,
                          .gradients = DType::kInt64,
                          .expert_bias = GetParam().expert_bias};
    const MoeValues want = RunOk(config, batches, base);
    EXPECT_GT(MaxAbs(want.gradients.at("mlp.router.weight")), 0);
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE(ranks);
      MoeOptions options = base;
      options.ranks = ranks;
      EXPECT_EQ(RunOk(config, batches, options), want);
    }
  }
}

// Rows [batch · seq, H], those of positions in sequences, with others behind each sequence.
std::vector<double> SpreadRows(const std::vector<double>& rows, const MoeBatch& padded,
                               std::int64_t seq, const std::vector<double>& others) {
  const auto columns = static_cast<std::ptrdiff_t>(others.size());
  std::vector<double> spread;
  auto next = rows.begin();
  for (std::int64_t t = 0; t < padded.tokens(); ++t) {
    const bool is_token = t % padded.seq < seq && next != rows.end();
    spread.insert(spread.end(), is_token ? next : others.begin(),
                  is_token ? next + columns : others.end());
    if (is_token) next += columns;
  }
  return spread;
}

// `padding` equal tokens behind every sequence, and `sequences` of nothing else.
MoeBatch Pad(const MoeBatch& batch, std::int64_t padding, std::int64_t sequences) {
  const auto columns = static_cast<std::int64_t>(batch.x.size()) / batch.tokens();
  MoeBatch padded = {
      .batch = batch.batch + sequences, .seq = batch.seq + padding, .x = {}, .dy = {}};
  padded.x = SpreadRows(batch.x, padded, batch.seq, NormalValues("padding", 3, columns, 1));
  padded.dy = SpreadRows(batch.dy, padded, batch.seq,
                         std::vector<double>(static_cast<std::size_t>(columns)));
  for (std::int64_t t = 0; t < padded.tokens(); ++t) {
    const bool is_token = t < batch.batch * padded.seq && t % padded.seq < batch.seq;
    padded.positions.push_back(is_token ? static_cast<double>(t % padded.seq) : -1);
  }
  return padded;
}

// Routing, capacity, auxiliary losses, counts and every gradient are those without the padding, bit
// for bit in one order of sums.
TEST_P(MoeTest, PaddingTakesNoPart) {
  const ModelConfig& config = GetParam().config;
  const std::vector<MoeBatch> batches =
      RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 4);
  struct Padding {
    std::int64_t tokens, sequences;
  };
  // The same for all, as ranks that share experts need it, and another for each.
  const std::vector<std::vector<Padding>> choices = {
      {{1, 0}, {1, 0}, {1, 0}, {1, 0}},
      {{40, 0}, {40, 0}, {40, 0}, {40, 0}},
      {{0, 1}, {0, 1}, {0, 1}, {0, 1}},
      {{0, 0}, {3, 0}, {0, 2}, {17, 1}},
  };
  for (const Mesh& mesh : MeshesOf(config)) {
    if (mesh.ranks > 4) continue;
    MoeOptions options = OptionsFor(
        mesh,
        {.fixed_order = true, .compute = DType::kFloat32, .expert_bias = GetParam().expert_bias});
    const MoeValues want = RunOk(config, batches, options);
    for (const std::vector<Padding>& padding : choices) {
      if (mesh.ranks > 1 && &padding == &choices.back()) continue;
      SCOPED_TRACE(::testing::Message() << NameOf(mesh) << ", padding of " << padding[3].tokens
                                        << " and " << padding[3].sequences << " sequences");
      std::vector<MoeBatch> padded;
      for (std::size_t i = 0; i < batches.size(); ++i) {
        padded.push_back(Pad(batches[i], padding[i].tokens, padding[i].sequences));
      }
      const MoeValues have = RunOk(config, padded, options);
      EXPECT_EQ(have.aux_losses, want.aux_losses);
      EXPECT_EQ(have.counts, want.counts);
      EXPECT_EQ(have.gradients, want.gradients);
      const auto columns = static_cast<std::size_t>(config.hidden_size);
      for (std::size_t i = 0; i < batches.size(); ++i) {
        // Shared experts see padding too; nothing reads what they make of it.
        const std::vector<double> zeros(columns);
        const std::vector<double>& y = have.y[i];
        const std::vector<double> others =
            config.moe->shared_expert_ffn_hidden_size > 0 &&
                    padded[i].tokens() > batches[i].tokens()
                ? std::vector<double>(y.end() - static_cast<std::ptrdiff_t>(columns), y.end())
                : zeros;
        EXPECT_EQ(y, SpreadRows(want.y[i], padded[i], batches[i].seq, others));
        EXPECT_EQ(have.dx[i], SpreadRows(want.dx[i], padded[i], batches[i].seq, zeros));
      }
    }
  }
}

TEST_P(MoeTest, QueuesOnThreadsChangeNoBit) {
  const ModelConfig& config = GetParam().config;
  const std::vector<MoeBatch> batches =
      RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 4);
  for (const Mesh& mesh : MeshesOf(config)) {
    if (mesh.ranks > 4) continue;
    SCOPED_TRACE(NameOf(mesh));
    MoeOptions options =
        OptionsFor(mesh, {.compute = DType::kFloat32, .expert_bias = GetParam().expert_bias});
    const MoeValues at_once = RunOk(config, batches, options);
    options.device = {.queues = QueueMode::kThreads,
                      .delay_seed = testing::TestSeed(kSmallMoeSeed)};
    EXPECT_EQ(RunOk(config, batches, options), at_once);
  }
}

TEST_P(MoeTest, RecomputingChangesNoBitAndCountsNothing) {
  const ModelConfig& config = GetParam().config;
  const std::vector<MoeBatch> batches =
      RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 2);
  for (const Mesh& mesh : MeshesOf(config)) {
    if (mesh.ranks > 2) continue;
    SCOPED_TRACE(NameOf(mesh));
    MoeOptions options =
        OptionsFor(mesh, {.compute = DType::kFloat32, .expert_bias = GetParam().expert_bias});
    const MoeValues once = RunOk(config, batches, options);
    options.recompute = true;
    EXPECT_EQ(RunOk(config, batches, options), once);
  }
}

TEST_P(MoeTest, FrozenPartsLeaveTheOtherGradientsAsTheyAre) {
  const ModelConfig& config = GetParam().config;
  const std::vector<MoeBatch> batches =
      RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 2);
  const MoeOptions base{.compute = DType::kFloat32, .expert_bias = GetParam().expert_bias};
  const MoeValues all = RunOk(config, batches, base);
  std::vector<std::set<std::string>> choices(4);
  for (const auto& [name, gradient] : all.gradients) {
    const bool is_expert = name.find(".experts.") != std::string::npos;
    choices[0].insert(name);
    if (is_expert) choices[1].insert(name);
    if (!is_expert) choices[2].insert(name);
    // The first matrix of some experts, the second of the others.
    const bool is_even = (name.back() - '0') % 2 == 0;
    if (is_expert && is_even == (name.find("linear_fc1") != std::string::npos)) {
      choices[3].insert(name);
    }
  }
  for (const int ranks : {1, 2}) {
    for (const std::set<std::string>& frozen : choices) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << frozen.size() << " frozen");
      MoeOptions options = base;
      options.ranks = ranks;
      const MoeValues trained = RunOk(config, batches, options);
      options.frozen = frozen;
      const MoeValues have = RunOk(config, batches, options);
      EXPECT_EQ(have.dx, trained.dx);
      EXPECT_EQ(have.gradients.size() + frozen.size(), all.gradients.size());
      for (const auto& [name, gradient] : have.gradients) {
        EXPECT_EQ(gradient, trained.gradients.at(name)) << name;
      }
    }
  }
}

TEST_P(MoeTest, Bfloat16IsCloseToFloat32) {
  const ModelConfig& config = GetParam().config;
  // Values that bfloat16 holds, and no expert chosen by a hair.
  MoeOptions options{.compute = DType::kFloat32,
                     .expert_bias = GetParam().expert_bias,
                     .change = [](const std::string&, std::vector<double>& values) {
                       for (double& value : values) {
                         value = FromBf16Bits(ToBf16Bits(static_cast<float>(value)));
                       }
                     }};
  std::vector<MoeBatch> batches = RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 2);
  for (MoeBatch& batch : batches) options.change("dy", batch.dy);
  const MoeValues want = RunOk(config, batches, options);
  options.compute = DType::kBfloat16;
  for (const Mesh& mesh : MeshesOf(config)) {
    if (mesh.ranks > 2) continue;
    SCOPED_TRACE(NameOf(mesh));
    const MoeValues have = RunOk(config, batches, OptionsFor(mesh, options));
    EXPECT_EQ(have.counts, want.counts);  // the router computes in float32
    EXPECT_LT(Difference(have, want), 0.03);
  }
}

TEST_P(MoeTest, ARankThatFailsEndsTheOthers) {
  const ModelConfig& config = GetParam().config;
  const MoeBatch batch = RandomMoeBatches(config, testing::TestSeed(kSmallMoeSeed), 1)[0];
  for (const Dispatcher dispatcher : testing::AllDispatchers()) {
    if (dispatcher == Dispatcher::kAllGather && config.moe->capacity_factor) continue;
    for (const QueueMode queues : {QueueMode::kInline, QueueMode::kThreads}) {
      const MoeOptions options{.dispatcher = dispatcher,
                               .device = {.queues = queues, .delay_seed = 1},
                               .expert_bias = GetParam().expert_bias};
      for (const bool takes_part_at_first : {false, true}) {
        std::vector<Status> ends(4);
        const Status status = trainer::RunRanks(4, [&](trainer::HostGroup& group) -> Status {
          MoeRank rank(config, testing::TestSeed(kSmallMoeSeed), options, group);
          rank.Prepare(batch, 0);
          const bool fails = group.rank() == 2;
          for (int step = 0; step < 2; ++step) {
            if (fails && takes_part_at_first == (step == 1)) {
              return Error(ErrorKind::kSystem, "rank 2 is out of memory");
            }
            Status& end = ends[static_cast<std::size_t>(group.rank())];
            rank.Run(0);
            end = rank.Finish();
            CKPT_RETURN_IF_ERROR(end);
          }
          return OkStatus();
        });
        EXPECT_THAT(status, FailsWith(ErrorKind::kSystem));
        for (const std::size_t other : {0U, 1U, 3U}) {
          EXPECT_THAT(ends[other], FailsWith(ErrorKind::kCancelled));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, MoeTest, ::testing::ValuesIn(MoeCases()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace ckpt::testing
