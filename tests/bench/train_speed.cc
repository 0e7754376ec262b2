// How fast one rank trains: whole steps of a model that a Hugging Face repository describes, on
// tokens that train_speed_peer.py draws alike. Prints one JSON document.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "converters/config/model_settings.h"
#include "converters/verbs/model_source.h"
#include "converters/verbs/weight_reader.h"
#include "core/io/posix_storage.h"
#include "core/json/json_writer.h"
#include "tests/bench/op_profile.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt {
namespace {

using testing::OpProfile;
using namespace trainer;  // NOLINT(google-build-using-namespace): this file is about nothing else

constexpr std::uint64_t kBudgetBytes = 64 << 20;

struct Settings {
  std::string model;  // a repository
  std::int64_t batch = 4;
  std::int64_t seq = 256;
  int steps = 8;
  int warmup = 2;
  int threads = 2;
  double lr = 1e-3;
  bool profile = false;
};

struct Measured {
  std::int64_t parameters = 0;
  std::vector<double> seconds;  // of every counted step
  std::vector<double> losses;   // of every step
};

// SplitMix64 of `index`: what the peer computes in numpy.
std::uint64_t Draw(std::uint64_t index) {
  std::uint64_t z = index * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

// The sequences of a step. Every token but the last of a sequence is asked for the one behind it.
HostMicroBatch DrawBatch(const Settings& settings, std::int64_t vocab, int step) {
  HostMicroBatch batch = {.tokens = {}, .labels = {}, .batch = settings.batch, .seq = settings.seq};
  const std::int64_t count = settings.batch * settings.seq;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>(step * count + i + 1);
    batch.tokens.push_back(
        static_cast<std::int32_t>(Draw(index) % static_cast<std::uint64_t>(vocab)));
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const bool is_last = (i + 1) % settings.seq == 0;
    batch.labels.push_back(is_last ? -1 : batch.tokens[static_cast<std::size_t>(i + 1)]);
  }
  return batch;
}

Result<TrainConfig> MakeConfig(const Settings& settings, const ModelSource& model) {
  TrainConfig config;
  CKPT_ASSIGN_OR_RETURN(const layout::Configuration of_model, ModelSettings(model.config));
  CKPT_ASSIGN_OR_RETURN(config.model, ParseModelConfig(of_model));
  if (config.model.moe) config.model.moe->aux = {};  // nor does Transformers add any unless asked
  config.micro_batch_size = settings.batch;
  config.global_batch_size = settings.batch;
  config.seq_length = settings.seq;
  config.schedule = {.style = DecayStyle::kConstant, .max_lr = settings.lr};
  config.optimizer.decay_all = true;  // torch's AdamW, given one list
  CKPT_RETURN_IF_ERROR(ValidateTrainConfig(config));
  return config;
}

Result<Measured> Train(const Settings& settings, const ModelSource& model, Ops& ops,
                       OpProfile* profile) {
  CKPT_ASSIGN_OR_RETURN(const TrainConfig config, MakeConfig(settings, model));
  const auto world = std::move(MakeThreadWorld(1).front());
  const std::unique_ptr<Device> device = MakeHostDevice({});
  CKPT_ASSIGN_OR_RETURN(const auto trainer,
                        RankTrainer::Create(config, *world, {.device = device.get(), .ops = &ops}));
  CKPT_ASSIGN_OR_RETURN(WeightReader weights,
                        WeightReader::Open(model, "trainer", {}, kBudgetBytes));
  CKPT_RETURN_IF_ERROR(trainer->SetWeights([&](const ParamSpec& spec, std::int64_t row_begin,
                                               std::int64_t rows, std::span<float> values) {
    return weights.ReadRows(spec.name, row_begin, rows, values);
  }));

  Measured measured;
  measured.parameters = CountParameters(config.model);
  for (int step = 0; step < settings.warmup + settings.steps; ++step) {
    if (step == settings.warmup && profile != nullptr) profile->Clear();
    const HostMicroBatch batch = DrawBatch(settings, config.model.vocab_size, step);
    const auto start = std::chrono::steady_clock::now();
    CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer->Step({&batch, 1}));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    measured.losses.push_back(report.loss);
    if (step >= settings.warmup) measured.seconds.push_back(took.count());
  }
  return measured;
}

void WriteProfile(const Settings& settings, const OpProfile& profile, JsonWriter& json) {
  json.Key("ops").BeginObject();
  for (const auto& [name, entry] : profile.entries()) {
    json.Key(name).BeginObject();
    json.Key("calls").Int(entry.calls / settings.steps);
    json.Key("ms").Double(entry.seconds * 1e3 / settings.steps);
    if (entry.flops > 0) json.Key("gflops").Double(entry.flops / entry.seconds / 1e9);
    json.End();
  }
  json.End().Key("products").BeginArray();
  for (const auto& [size, count] : profile.products()) {
    json.Ints(std::vector<std::int64_t>{size[0], size[1], size[2], count / settings.steps});
  }
  json.End();
}

Status Run(const Settings& settings) {
  CKPT_ASSIGN_OR_RETURN(const ModelSource model, OpenModel(PosixStorage(), settings.model, {}));
  const std::unique_ptr<Ops> ops = MakeHostOps({.threads = settings.threads});
  OpProfile profile(*ops);
  CKPT_ASSIGN_OR_RETURN(const Measured measured, settings.profile
                                                     ? Train(settings, model, profile, &profile)
                                                     : Train(settings, model, *ops, nullptr));

  JsonWriter json;
  json.BeginObject().Key("parameters").Int(measured.parameters);
  json.Key("tokens").Int(settings.batch * settings.seq);
  json.Key("seconds").BeginArray();
  for (const double seconds : measured.seconds) json.Double(seconds);
  json.End().Key("losses").BeginArray();
  for (const double loss : measured.losses) json.Double(loss);
  json.End();
  if (settings.profile) WriteProfile(settings, profile, json);
  std::cout << json.End().Take() << "\n";
  return OkStatus();
}

}  // namespace
}  // namespace ckpt

int main(int argc, char** argv) {
  ckpt::Settings settings;
  CLI::App app("Trains a model of a Hugging Face repository and times the steps");
  app.add_option("model", settings.model, "the repository")->required();
  app.add_option("--batch", settings.batch, "sequences of a step");
  app.add_option("--seq", settings.seq, "tokens of a sequence");
  app.add_option("--steps", settings.steps, "steps that count");
  app.add_option("--warmup", settings.warmup, "steps before them");
  app.add_option("--threads", settings.threads, "threads that share a call");
  app.add_option("--lr", settings.lr, "learning rate");
  app.add_flag("--profile", settings.profile, "the time of each kind of call, too");
  CLI11_PARSE(app, argc, argv);
  if (const ckpt::Status status = ckpt::Run(settings); !status.ok()) {
    std::cerr << status.ToString() << "\n";
    return 1;
  }
  return 0;
}
