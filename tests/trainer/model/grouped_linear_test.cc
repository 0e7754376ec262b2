// Experts that lie behind one another are one product.
#include "trainer/model/internal/grouped_linear.h"

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "tests/trainer/model/model_runner.h"
#include "tests/trainer/model/tiny_models.h"
#include "trainer/ops/forwarding_ops.h"

namespace ckpt {
namespace {

using ::testing::ElementsAre;
using testing::FillFromSeed;
using testing::ModelRunner;
using testing::RandomBatch;
using testing::RunnerOptions;
using namespace trainer;  // NOLINT(google-build-using-namespace)

// First expert and number of experts.
template <typename T>
std::vector<std::pair<std::int64_t, std::int64_t>> RunsOf(const std::vector<T>& experts) {
  std::vector<std::pair<std::int64_t, std::int64_t>> runs;
  for (const auto& run : ListRuns(std::span<const T>(experts))) {
    if constexpr (std::is_same_v<T, Gradient>) {
      runs.emplace_back(run.first, run.matrices.tensor.dim(0));
    } else {
      runs.emplace_back(run.first, run.matrices.dim(0));
    }
  }
  return runs;
}

TEST(ListRunsTest, MatricesBehindOneAnotherAreOneRun) {
  std::array<float, 5 * 6> memory{};
  std::vector<Tensor> experts;
  for (std::size_t i = 0; i < 5; ++i) {
    experts.emplace_back(&memory[6 * i], DType::kFloat32,
                         std::initializer_list<std::int64_t>{2, 3});
  }
  EXPECT_THAT(RunsOf(experts), ElementsAre(std::pair(0, 5)));
  const std::vector<ExpertRun<Tensor>> runs = ListRuns(std::span<const Tensor>(experts));
  EXPECT_EQ(runs[0].matrices.data, memory.data());
  EXPECT_EQ(runs[0].matrices.num_elems(), 30);

  std::swap(experts[1], experts[2]);  // no longer in order
  EXPECT_THAT(RunsOf(experts),
              ElementsAre(std::pair(0, 1), std::pair(1, 1), std::pair(2, 1), std::pair(3, 2)));
}

TEST(ListRunsTest, FrozenExpertsHaveNoRunOfGradients) {
  std::array<float, 4 * 6> memory{};
  std::vector<Gradient> experts(5);
  for (std::size_t i = 0, at = 0; i < 5; ++i) {
    if (i == 2) continue;  // frozen: its neighbours lie behind one another all the same
    experts[i].tensor = Tensor(&memory[6 * at++], DType::kFloat32, {2, 3});
  }
  EXPECT_THAT(RunsOf(experts), ElementsAre(std::pair(0, 2), std::pair(3, 2)));
  experts[1].write = GradWrite::kAdd;
  EXPECT_THAT(RunsOf(experts), ElementsAre(std::pair(0, 1), std::pair(1, 1), std::pair(3, 2)));
  EXPECT_THAT(RunsOf(std::vector<Gradient>(5)), ElementsAre());
}

class CountingOps final : public ForwardingOps {
 public:
  CountingOps(Ops& target, std::map<std::string, int>& counts)
      : ForwardingOps(target), counts_(counts) {}

 private:
  void Around(Queue& /*queue*/, const OpWork& work, const std::function<void()>& call) override {
    ++counts_[work.name];
    call();
  }

  std::map<std::string, int>& counts_;
};

TEST(GroupedLinearTest, AllExpertsOfALayerAreOneProduct) {
  const ModelConfig config = testing::TinyMoe();
  std::map<std::string, int> counts;
  RunnerOptions options;
  options.wrap = [&](Ops& ops) { return std::make_unique<CountingOps>(ops, counts); };
  ModelRunner runner(config, RandomBatch(1, config.vocab_size), options);
  FillFromSeed(1, runner.params());
  runner.Step();
  const auto layers = static_cast<int>(std::ranges::count(config.is_moe_layer, true));
  ASSERT_GT(layers, 0);
  EXPECT_EQ(counts["GroupedForward"], 2 * layers);
  EXPECT_EQ(counts["GroupedBackwardData"], 2 * layers);
  EXPECT_EQ(counts["GroupedBackwardWeights"], 2 * layers);
}

}  // namespace
}  // namespace ckpt
