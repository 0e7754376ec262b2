// In what order a model requests weights and hands over gradients.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/matchers.h"
#include "tests/trainer/model/tiny_models.h"
#include "trainer/model/model.h"
#include "trainer/params/param_access.h"
#include "trainer/rehearsal/idle_device.h"
#include "trainer/rehearsal/idle_ops.h"

namespace ckpt::testing {
namespace {

using ::testing::ElementsAre;
using trainer::Gradient;
using trainer::ModelConfig;
using trainer::Tensor;
using trainer::UnitSpec;

// Writes down what is asked of it. Nothing reads its parameters.
class Recorder final : public trainer::ParamAccess {
 public:
  Recorder(const std::vector<UnitSpec>& units, std::byte* memory) {
    for (const UnitSpec& unit : units) {
      std::vector<Tensor>& weights = weights_.emplace_back();
      std::vector<Gradient>& gradients = gradients_.emplace_back();
      for (const trainer::ParamSpec& param : unit.params) {
        Tensor tensor(memory, DType::kFloat32, {});
        tensor.ndim = static_cast<int>(param.shape.size());
        std::ranges::copy(param.shape, tensor.dims.begin());
        weights.push_back(tensor);
        gradients.push_back({.tensor = tensor});
      }
    }
  }

  void Prefetch(int unit) override { Note("prefetch", unit); }
  std::span<const Tensor> Acquire(int unit) override {
    Note("use", unit);
    return weights_[static_cast<std::size_t>(unit)];
  }
  void Release(int unit) override { Note("release", unit); }
  std::span<const Gradient> AcquireGradients(int unit) override {
    return gradients_[static_cast<std::size_t>(unit)];
  }
  void ReduceGradients(int unit) override { Note("reduce", unit); }

  [[nodiscard]] const std::vector<std::string>& notes() const { return notes_; }

 private:
  void Note(const std::string& call, int unit) {
    notes_.push_back(call + " " + std::to_string(unit));
  }

  std::vector<std::vector<Tensor>> weights_;
  std::vector<std::vector<Gradient>> gradients_;
  std::vector<std::string> notes_;
};

std::vector<std::string> CallsOf(ModelConfig config, int prefetch_depth) {
  config.num_layers = 3;
  config.window_size.assign(3, 0);
  config.is_moe_layer.assign(3, false);
  const auto device = trainer::MakeIdleDevice();
  const auto ops = trainer::MakeIdleOps();
  const auto queue = device->MakeQueue("compute");
  const auto model = trainer::Model::Create(config, {.ops = ops.get(),
                                                     .device = device.get(),
                                                     .queue = queue.get(),
                                                     .prefetch_depth = prefetch_depth});
  EXPECT_THAT(model, IsOk());
  const auto memory =
      device->Allocate(std::uint64_t{1} << 20, trainer::MemoryUse::kOther);  // only addresses
  EXPECT_THAT(memory, IsOk());
  Recorder params((*model)->units(), memory->data());
  const Tensor tokens(memory->data(), DType::kInt32, {4});
  const Tensor losses(memory->data(), DType::kFloat32, {4});
  EXPECT_THAT(
      (*model)->ForwardBackward(params, {.tokens = tokens, .labels = tokens, .batch = 1, .seq = 4},
                                {}, losses, losses.Rows(0, 1)),
      IsOk());
  return params.notes();
}

// The head's gradients leave before those of the layers, the embedding's after them.
TEST(ScheduleTest, OneUnitIsRequestedAheadOfTheOneInUse) {
  EXPECT_THAT(CallsOf(TinyDense(), 1),
              ElementsAre("use 0", "prefetch 1", "release 0",              //
                          "use 1", "prefetch 2", "release 1",              //
                          "use 2", "prefetch 3", "release 2",              //
                          "use 3", "prefetch 4", "release 3",              //
                          "use 4", "release 4", "reduce 4",                //
                          "use 3", "prefetch 2", "reduce 3", "release 3",  //
                          "use 2", "prefetch 1", "reduce 2", "release 2",  //
                          "use 1", "reduce 1", "release 1", "reduce 0"));
}

TEST(ScheduleTest, SeveralUnitsAreRequestedAheadIfAskedFor) {
  EXPECT_THAT(CallsOf(TinyDense(), 2),
              ElementsAre("use 0", "prefetch 1", "prefetch 2", "release 0",              //
                          "use 1", "prefetch 2", "prefetch 3", "release 1",              //
                          "use 2", "prefetch 3", "prefetch 4", "release 2",              //
                          "use 3", "prefetch 4", "release 3",                            //
                          "use 4", "release 4", "reduce 4",                              //
                          "use 3", "prefetch 2", "prefetch 1", "reduce 3", "release 3",  //
                          "use 2", "prefetch 1", "reduce 2", "release 2",                //
                          "use 1", "reduce 1", "release 1", "reduce 0"));
}

// One matrix embeds tokens and gives logits: its gradient is complete at the end.
TEST(ScheduleTest, TiedEmbeddingsAreHeldForTheWholePass) {
  ModelConfig config = TinyDense();
  config.tied_embeddings = true;
  const std::vector<std::string> calls = CallsOf(config, 1);
  EXPECT_EQ(calls.front(), "use 0");
  EXPECT_EQ(calls.back(), "release 0");
  EXPECT_EQ(*(calls.end() - 2), "reduce 0");
}

}  // namespace
}  // namespace ckpt::testing
