// How fast ranks that share a machine train: whole steps of a model that a Hugging Face repository
// describes, on tokens that train_speed_peer.py draws alike. Prints one JSON document.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "converters/config/model_settings.h"
#include "converters/verbs/model_source.h"
#include "converters/verbs/weight_reader.h"
#include "core/base/status.h"
#include "core/io/posix_storage.h"
#include "core/json/json_writer.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ledger/ledger.h"
#include "trainer/ledger/recorded_ops.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt {
namespace {

using namespace trainer;  // NOLINT(google-build-using-namespace): this file is about nothing else

constexpr std::uint64_t kBudgetBytes = 64 << 20;

struct Settings {
  std::string model;  // a repository
  std::int64_t batch = 4;
  std::int64_t seq = 256;
  int steps = 8;
  int warmup = 2;
  int threads = 2;  // of all ranks
  int ranks = 1;
  double lr = 1e-3;
  bool bf16 = false;
  bool profile = false;
};

struct Measured {
  std::int64_t parameters = 0;
  std::vector<double> seconds;  // of every counted step
  std::vector<double> losses;   // of every step
  Ledger ledger;                // of the counted steps, if operations were recorded
};

// SplitMix64 of `index`: what the peer computes in numpy.
std::uint64_t Draw(std::uint64_t index) {
  std::uint64_t z = index * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

// A rank's sequences of a step. Every token but the last of a sequence is asked for
// the one behind it.
HostMicroBatch DrawBatch(const Settings& settings, std::int64_t vocab, int step, int rank) {
  const std::int64_t of_rank = settings.batch / settings.ranks;
  HostMicroBatch batch = {.tokens = {}, .labels = {}, .batch = of_rank, .seq = settings.seq};
  const std::int64_t count = of_rank * settings.seq;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto index = static_cast<std::uint64_t>((step * settings.ranks + rank) * count + i + 1);
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
  config.mesh.world_size = settings.ranks;
  config.micro_batch_size = settings.batch / settings.ranks;
  config.global_batch_size = settings.batch;
  config.seq_length = settings.seq;
  config.schedule = {.style = DecayStyle::kConstant, .max_lr = settings.lr};
  config.optimizer.decay_all = true;  // torch's AdamW, given one list
  if (settings.bf16) config.precision.compute = DType::kBfloat16;
  CKPT_RETURN_IF_ERROR(ValidateTrainConfig(config));
  return config;
}

// `recorded`: `ops`, or null.
Result<Measured> Train(const Settings& settings, const ModelSource& model, HostGroup& world,
                       Ops& ops, RecordedOps* recorded) {
  CKPT_ASSIGN_OR_RETURN(const TrainConfig config, MakeConfig(settings, model));
  const std::unique_ptr<Device> device = MakeHostDevice({});
  CKPT_ASSIGN_OR_RETURN(const auto trainer,
                        RankTrainer::Create(config, world, {.device = device.get(), .ops = &ops}));
  CKPT_ASSIGN_OR_RETURN(WeightReader weights,
                        WeightReader::Open(model, "trainer", {}, kBudgetBytes));
  CKPT_RETURN_IF_ERROR(trainer->SetWeights([&](const ParamSpec& spec, std::int64_t row_begin,
                                               std::int64_t rows, std::span<float> values) {
    return weights.ReadRows(spec.name, row_begin, rows, values);
  }));

  Measured measured;
  measured.parameters = CountParameters(config.model);
  CKPT_ASSIGN_OR_RETURN(const std::unique_ptr<WorkRecord> record, device->RecordWork());
  for (int step = 0; step < settings.warmup + settings.steps; ++step) {
    if (step == settings.warmup && recorded != nullptr) recorded->Begin(*record);
    const HostMicroBatch batch = DrawBatch(settings, config.model.vocab_size, step, world.rank());
    const auto start = std::chrono::steady_clock::now();
    CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer->Step({&batch, 1}));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    measured.losses.push_back(report.loss);
    if (step >= settings.warmup) measured.seconds.push_back(took.count());
  }
  if (recorded == nullptr) return measured;
  const std::vector<OpWork> operations = recorded->End();
  CKPT_ASSIGN_OR_RETURN(const std::vector<DeviceWork> work, record->Finish());
  measured.ledger = MakeLedger(work, operations, settings.steps, {});
  return measured;
}

void WriteProfile(const Ledger& ledger, JsonWriter& json) {
  json.Key("ledger");
  WriteLedger(ledger, json);
  json.Key("products").BeginArray();  // m, n, k, and how often in a step
  for (const LedgerLine& line : ledger.lines) {
    if (line.num_products == 0) continue;
    const auto& [m, n, k] = line.product;
    const auto count = static_cast<std::int64_t>(line.calls + 0.5) * line.num_products;
    json.Ints(std::vector<std::int64_t>{m, n, k, count});
  }
  json.End();
}

Status Run(const Settings& settings) {
  CKPT_ASSIGN_OR_RETURN(const ModelSource model, OpenModel(PosixStorage(), settings.model, {}));
  if (settings.ranks < 1 || settings.batch % settings.ranks != 0) {
    return Error(ErrorKind::kUsage, "the ranks share the sequences of a step evenly")
        .Actual(fmt::format("{} sequences for {} ranks", settings.batch, settings.ranks));
  }
  Measured measured;  // by rank 0
  CKPT_RETURN_IF_ERROR(RunRanks(settings.ranks, [&](HostGroup& world) -> Status {
    const std::unique_ptr<Ops> ops =
        MakeHostOps({.threads = std::max(settings.threads / settings.ranks, 1)});
    RecordedOps recorded(*ops);
    const bool records = settings.profile && world.rank() == 0;
    CKPT_ASSIGN_OR_RETURN(Measured mine, Train(settings, model, world, records ? recorded : *ops,
                                               records ? &recorded : nullptr));
    if (world.rank() == 0) measured = std::move(mine);
    return OkStatus();
  }));

  JsonWriter json;
  json.BeginObject().Key("parameters").Int(measured.parameters);
  json.Key("tokens").Int(settings.batch * settings.seq);
  json.Key("seconds").BeginArray();
  for (const double seconds : measured.seconds) json.Double(seconds);
  json.End().Key("losses").BeginArray();
  for (const double loss : measured.losses) json.Double(loss);
  json.End();
  if (settings.profile) WriteProfile(measured.ledger, json);
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
  app.add_option("--threads", settings.threads, "threads that share the work");
  app.add_option("--ranks", settings.ranks, "ranks that divide weights, sequences and threads");
  app.add_flag("--bf16", settings.bf16, "compute in bfloat16; the optimizer's weights are float32");
  app.add_option("--lr", settings.lr, "learning rate");
  app.add_flag("--profile", settings.profile,
               "time, bytes and FLOP of each kind of operation, too");
  CLI11_PARSE(app, argc, argv);
  if (const ckpt::Status status = ckpt::Run(settings); !status.ok()) {
    std::cerr << status.ToString() << "\n";
    return 1;
  }
  return 0;
}
