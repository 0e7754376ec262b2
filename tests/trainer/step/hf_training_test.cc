// Training against Transformers and torch's AdamW: the losses that the golden repositories
// recorded.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "converters/config/model_settings.h"
#include "converters/verbs/model_source.h"
#include "converters/verbs/weight_reader.h"
#include "core/checkpoint/read.h"
#include "core/io/posix_storage.h"
#include "core/json/json_reader.h"
#include "formats/registry/registry.h"
#include "tests/testing/golden.h"
#include "tests/testing/matchers.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt {
namespace {

using testing::GoldenDir;
using testing::IsOk;
using namespace trainer;  // NOLINT(google-build-using-namespace)

constexpr std::uint64_t kHfBudgetBytes = 64 << 20;
constexpr double kTolerance = 1e-4;  // of each loss

Result<std::vector<std::int64_t>> ReadIntegers(const CheckpointSource& source,
                                               const std::string& key, Dims& shape) {
  const GlobalTensor* tensor = source.index().FindTensor(key);
  if (tensor == nullptr) return Error(ErrorKind::kMissing, "no such tensor").Tensor(key);
  shape = tensor->shape;
  std::vector<std::int64_t> values(static_cast<std::size_t>(NumElements(shape)));
  CKPT_RETURN_IF_ERROR(ReadBox(source, *tensor, WholeBox(shape),
                               std::as_writable_bytes(std::span(values)), kHfBudgetBytes));
  return values;
}

// One sequence each. Transformers shifts labels inside the model.
Result<std::vector<HostMicroBatch>> ReadSequences(const Path& reference) {
  CKPT_ASSIGN_OR_RETURN(const OpenedCheckpoint opened, OpenCheckpoint(PosixStorage(), reference));
  Dims shape;
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> tokens,
                        ReadIntegers(*opened.source, "input_ids", shape));
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::int64_t> labels,
                        ReadIntegers(*opened.source, "labels", shape));
  std::vector<HostMicroBatch> sequences;
  for (std::int64_t s = 0; s < shape[0]; ++s) {
    HostMicroBatch& sequence = sequences.emplace_back();
    sequence.batch = 1;
    sequence.seq = shape[1];
    for (std::int64_t t = s * shape[1]; t < (s + 1) * shape[1]; ++t) {
      const bool is_last = t + 1 == (s + 1) * shape[1];
      sequence.tokens.push_back(static_cast<std::int32_t>(tokens[static_cast<std::size_t>(t)]));
      sequence.labels.push_back(
          is_last ? -1 : static_cast<std::int32_t>(labels[static_cast<std::size_t>(t + 1)]));
    }
  }
  return sequences;
}

// The AdamW run of reference.json.
struct RecordedHfRun {
  OptimizerConfig optimizer;
  double lr = 0;
  std::vector<double> losses;
};

Result<RecordedHfRun> ReadRecordedRun(const Path& path) {
  CKPT_ASSIGN_OR_RETURN(const std::string text,
                        ReadSmallFile(PosixStorage(), path, kHfBudgetBytes));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(text, "reference.json"));
  CKPT_ASSIGN_OR_RETURN(const JsonCursor adamw, json.root().At("adamw"));
  const auto number = [&](const char* key) -> Result<double> {
    CKPT_ASSIGN_OR_RETURN(const JsonCursor value, adamw.At(key));
    return value.Double();
  };
  RecordedHfRun run;
  CKPT_ASSIGN_OR_RETURN(run.lr, number("lr"));
  CKPT_ASSIGN_OR_RETURN(run.optimizer.adam_eps, number("eps"));
  CKPT_ASSIGN_OR_RETURN(run.optimizer.weight_decay, number("weight_decay"));
  CKPT_ASSIGN_OR_RETURN(const JsonCursor betas, adamw.At("betas"));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> beta, betas.Items());
  CKPT_ASSIGN_OR_RETURN(run.optimizer.adam_beta1, beta.at(0).Double());
  CKPT_ASSIGN_OR_RETURN(run.optimizer.adam_beta2, beta.at(1).Double());
  run.optimizer.decay_all = true;
  CKPT_ASSIGN_OR_RETURN(const JsonCursor losses, adamw.At("losses"));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, losses.Items());
  for (const JsonCursor& item : items) {
    CKPT_ASSIGN_OR_RETURN(run.losses.emplace_back(), item.Double());
  }
  return run;
}

// Losses of as many steps as were recorded, all on the same sequences.
Result<std::vector<double>> TrainOn(const MeshConfig& mesh, const ModelSource& model,
                                    const RecordedHfRun& recorded,
                                    const std::vector<HostMicroBatch>& sequences) {
  TrainConfig config;
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration settings, ModelSettings(model.config));
  CKPT_ASSIGN_OR_RETURN(config.model, ParseModelConfig(settings));
  config.mesh = mesh;
  config.global_batch_size = static_cast<std::int64_t>(sequences.size());
  config.seq_length = sequences.front().seq;
  config.per_token_loss = true;  // the mean over all counted tokens of the batch
  config.optimizer = recorded.optimizer;
  config.schedule = {.style = DecayStyle::kConstant, .max_lr = recorded.lr};
  config.clip_grad = 0;
  CKPT_RETURN_IF_ERROR(ValidateTrainConfig(config));

  std::vector<double> losses;
  const auto train = [&](HostGroup& world) -> Status {
    const std::unique_ptr<Device> device = MakeHostDevice({});
    const std::unique_ptr<Ops> ops = MakeHostOps({});
    CKPT_ASSIGN_OR_RETURN(
        const auto trainer,
        RankTrainer::Create(config, world, {.device = device.get(), .ops = ops.get()}));
    CKPT_ASSIGN_OR_RETURN(WeightReader weights,
                          WeightReader::Open(model, "trainer", {}, kHfBudgetBytes));
    const auto read = [&](const ParamSpec& spec, std::int64_t row_begin, std::int64_t rows,
                          std::span<float> values) {
      return weights.ReadRows(spec.name, row_begin, rows, values);
    };
    CKPT_RETURN_IF_ERROR(trainer->SetWeights(read));
    std::vector<HostMicroBatch> mine;
    const auto size = static_cast<std::size_t>(world.size());
    for (auto s = static_cast<std::size_t>(world.rank()); s < sequences.size(); s += size) {
      mine.push_back(sequences[s]);
    }
    for (std::size_t step = 0; step < recorded.losses.size(); ++step) {
      CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer->Step(mine));
      if (world.rank() == 0) losses.push_back(report.loss);
    }
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(RunRanks(mesh.world_size, train));
  return losses;
}

class HfTrainingTest : public ::testing::TestWithParam<std::string> {};

TEST_P(HfTrainingTest, FollowsTheRecordedLosses) {
  const Path directory = GoldenDir() / "hf" / GetParam();
  const auto model = OpenModel(PosixStorage(), directory / "ckpt", {});
  ASSERT_THAT(model, IsOk());
  const auto recorded = ReadRecordedRun(directory / "reference.json");
  ASSERT_THAT(recorded, IsOk());
  ASSERT_EQ(recorded->losses.size(), 20U);
  const auto sequences = ReadSequences(directory / "reference.safetensors");
  ASSERT_THAT(sequences, IsOk());

  // Two ranks share out the experts too, where there are any and they divide.
  std::vector<MeshConfig> meshes = {{}, {.world_size = 2}, {.world_size = 2, .expert_parallel = 2}};
  for (const MeshConfig& mesh : meshes) {
    const auto settings = ModelSettings(model->config);
    const std::int64_t experts =
        ParseModelConfig(*settings)->moe ? ParseModelConfig(*settings)->moe->num_experts : 0;
    if (mesh.expert_parallel > 1 && (experts == 0 || experts % mesh.expert_parallel != 0)) continue;
    SCOPED_TRACE(::testing::Message()
                 << mesh.world_size << " ranks, expert parallel " << mesh.expert_parallel);
    const auto losses = TrainOn(mesh, *model, *recorded, *sequences);
    ASSERT_THAT(losses, IsOk());
    double worst = 0;
    for (std::size_t i = 0; i < losses->size(); ++i) {
      worst = std::max(worst, std::abs((*losses)[i] - recorded->losses[i]) / recorded->losses[i]);
    }
    EXPECT_LE(worst, kTolerance);
    std::cout << GetParam() << ": " << mesh.world_size << " ranks, expert parallel "
              << mesh.expert_parallel << ": " << worst << "\n";
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, HfTrainingTest, ::testing::ValuesIn(testing::TrainedModels()),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace ckpt
