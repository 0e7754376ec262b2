// What a run of ours computes next: loads a checkpoint, trains on given tokens, prints the settings
// and every step's numbers as one JSON document. megatron_loads.py compares real Megatron with it.
#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "converters/verbs/training_state.h"
#include "core/io/posix_storage.h"
#include "core/json/json_reader.h"
#include "core/json/json_writer.h"
#include "core/layout/flatten_json.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/device/cpu/host_device.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/run/internal/load_state.h"
#include "trainer/run/run_config.h"
#include "trainer/step/rank_trainer.h"

namespace ckpt {
namespace {

using namespace trainer;  // NOLINT(google-build-using-namespace): this file is about nothing else

constexpr std::uint64_t kMaxTokensBytes = 64 << 20;

struct Options {
  std::string load;      // what Megatron-FSDP or ckpt-train saved; else `init`
  std::string init;      // hf:DIR
  std::string settings;  // a JSON object
  int ranks = 1;
  // A JSON file: [step][sequence][token], one token more than a sequence has inputs.
  std::string tokens;
};

// Where the run starts. Of `--init` there are weights only.
struct Start {
  TrainingState state = {};
  TrainConfig config = {};
  layout::Configuration settings = {};
};

Result<Start> StartFrom(const Options& options) {
  CKPT_ASSIGN_OR_RETURN(layout::Configuration given,
                        layout::FlattenJson(options.settings, "--settings"));
  if (!options.load.empty()) given["load"] = options.load;
  if (!options.init.empty()) given["init"] = options.init;
  CKPT_ASSIGN_OR_RETURN(train::RunConfig run,
                        train::ResolveRun(PosixStorage(), given, options.ranks));
  Start start = {.state = {}, .config = run.train, .settings = run.effective};
  if (run.goes_on()) {
    CKPT_ASSIGN_OR_RETURN(start.state, OpenTrainingState(PosixStorage(), options.load, {}));
  } else if (run.init_from) {
    CKPT_ASSIGN_OR_RETURN(start.state.weights, OpenModel(PosixStorage(), *run.init_from, {}));
  } else {
    return Error(ErrorKind::kUsage, "give --load or --init");
  }
  return start;
}

using Sequence = std::vector<std::int64_t>;

Result<std::vector<std::vector<Sequence>>> ReadTokens(const std::string& path) {
  CKPT_ASSIGN_OR_RETURN(const std::string text,
                        ReadSmallFile(PosixStorage(), path, kMaxTokensBytes));
  CKPT_ASSIGN_OR_RETURN(const JsonDocument json, JsonDocument::Parse(text, path));
  CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> items, json.root().Items());
  std::vector<std::vector<Sequence>> steps;
  for (const JsonCursor& item : items) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<JsonCursor> sequences, item.Items());
    std::vector<Sequence>& step = steps.emplace_back();
    for (const JsonCursor& sequence : sequences) {
      CKPT_ASSIGN_OR_RETURN(step.emplace_back(), sequence.Int64Array());
    }
  }
  return steps;
}

// Of consecutive runs of micro_batch_size sequences, every world-size-th one is this rank's, as
// Megatron deals them.
std::vector<HostMicroBatch> BatchesOf(const std::vector<Sequence>& step, const TrainConfig& config,
                                      int rank) {
  std::vector<HostMicroBatch> batches;
  for (std::int64_t m = 0; m < config.num_micro_batches(); ++m) {
    HostMicroBatch& batch = batches.emplace_back();
    batch.batch = config.micro_batch_size;
    batch.seq = config.seq_length;
    const std::int64_t first = (m * config.mesh.world_size + rank) * config.micro_batch_size;
    for (std::int64_t s = first; s < first + config.micro_batch_size; ++s) {
      const Sequence& ids = step[static_cast<std::size_t>(s)];
      for (std::size_t t = 0; t + 1 < ids.size(); ++t) {
        batch.tokens.push_back(static_cast<std::int32_t>(ids[t]));
        batch.labels.push_back(static_cast<std::int32_t>(ids[t + 1]));
      }
    }
  }
  return batches;
}

Status CheckTokens(const std::vector<std::vector<Sequence>>& steps, const TrainConfig& config) {
  for (const std::vector<Sequence>& step : steps) {
    if (std::ssize(step) != config.global_batch_size) {
      return Error(ErrorKind::kSizeMismatch, "a step is not a global batch")
          .Expected(std::to_string(config.global_batch_size))
          .Actual(std::to_string(step.size()));
    }
    for (const Sequence& ids : step) {
      if (std::ssize(ids) != config.seq_length + 1) {
        return Error(ErrorKind::kSizeMismatch, "a sequence needs seq_length tokens and one more")
            .Expected(std::to_string(config.seq_length + 1))
            .Actual(std::to_string(ids.size()));
      }
    }
  }
  return OkStatus();
}

Result<std::vector<StepReport>> Train(const Start& start,
                                      const std::vector<std::vector<Sequence>>& steps) {
  std::vector<StepReport> reports;
  const auto train = [&](HostGroup& world) -> Status {
    const std::unique_ptr<Device> device = MakeHostDevice({});
    const std::unique_ptr<Ops> ops = MakeHostOps({.threads = 1});
    CKPT_ASSIGN_OR_RETURN(
        const auto trainer,
        RankTrainer::Create(start.config, world, {.device = device.get(), .ops = ops.get()}));
    CKPT_RETURN_IF_ERROR(train::LoadState(start.state, *trainer, /*progress=*/nullptr));
    for (const std::vector<Sequence>& step : steps) {
      CKPT_ASSIGN_OR_RETURN(const StepReport report,
                            trainer->Step(BatchesOf(step, start.config, world.rank())));
      if (world.rank() == 0) reports.push_back(report);
    }
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(RunRanks(start.config.mesh.world_size, train));
  return reports;
}

Status Run(const Options& options) {
  CKPT_ASSIGN_OR_RETURN(const Start start, StartFrom(options));
  CKPT_ASSIGN_OR_RETURN(const auto steps, ReadTokens(options.tokens));
  CKPT_RETURN_IF_ERROR(CheckTokens(steps, start.config));
  CKPT_ASSIGN_OR_RETURN(const std::vector<StepReport> reports, Train(start, steps));

  JsonWriter json(2);
  json.BeginObject().Key("iteration").Int(start.state.run.iteration);
  json.Key("settings").BeginObject();
  for (const auto& [name, value] : start.settings) json.Key(name).Raw(FormatValue(value));
  json.End().Key("steps").BeginArray();
  for (const StepReport& report : reports) {
    json.BeginObject().Key("step").Int(report.step).Key("loss").Double(report.loss);
    json.Key("grad_norm").Double(report.grad_norm).Key("lr").Double(report.lr).End();
  }
  std::cout << json.End().End().Take() << "\n";
  return OkStatus();
}

}  // namespace
}  // namespace ckpt

int main(int argc, char** argv) {
  ckpt::Options options;
  options.settings = "{}";
  CLI::App app("Trains from a checkpoint on given tokens and prints what it computed");
  app.add_option("--load", options.load, "weights, optimizer, schedule and settings of a run");
  app.add_option("--init", options.init, "weights and model: hf:DIR");
  app.add_option("--settings", options.settings, "a JSON object, over all others");
  app.add_option("--ranks", options.ranks, "ranks, as threads [1]");
  app.add_option("--tokens", options.tokens, "JSON: [step][sequence][token]")->required();
  CLI11_PARSE(app, argc, argv);
  if (const ckpt::Status status = ckpt::Run(options); !status.ok()) {
    std::cerr << status.ToString() << "\n";
    return 1;
  }
  return 0;
}
