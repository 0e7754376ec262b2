#include "tests/trainer/step/trained_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include <gtest/gtest.h>

#include "tests/testing/process_ranks.h"
#include "tests/testing/strict_device.h"
#include "trainer/comm/exchange_values.h"
#include "trainer/comm/thread_comm.h"
#include "trainer/ops/cpu/host_ops.h"
#include "trainer/random/philox.h"

namespace ckpt::testing {
namespace {

using namespace trainer;  // NOLINT(google-build-using-namespace): this file is about nothing else

constexpr std::int64_t kSeq = 7;

// Sequence number `index` of a run: the same on every mesh.
HostMicroBatch Sequence(std::int64_t index, const TrainConfig& config) {
  const auto key = StreamKey(7, "sequence " + std::to_string(index));
  const std::int64_t vocab = config.model.vocab_size;
  HostMicroBatch batch = {.tokens = {}, .labels = {}, .batch = 1, .seq = config.seq_length};
  for (std::uint64_t t = 0; t < static_cast<std::uint64_t>(config.seq_length); ++t) {
    const auto bound = static_cast<std::uint64_t>(vocab);
    batch.tokens.push_back(static_cast<std::int32_t>(UniformBelow(key, 2 * t, bound)));
    const auto label = static_cast<std::int32_t>(UniformBelow(key, 2 * t + 1, bound + 3));
    batch.labels.push_back(label < static_cast<std::int32_t>(vocab) ? label
                                                                    : -1);  // some do not count
  }
  return batch;
}

// Micro-batch m of rank r is sequence m·D + r of the step.
std::vector<HostMicroBatch> BatchesOf(const TrainConfig& config, int rank, std::int64_t step) {
  std::vector<HostMicroBatch> batches;
  for (std::int64_t m = 0; m < config.num_micro_batches(); ++m) {
    const std::int64_t index = step * config.global_batch_size + m * config.mesh.world_size + rank;
    batches.push_back(Sequence(index, config));
  }
  return batches;
}

std::vector<double> ReadValues(Device& device, Queue& queue, const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.num_elems()));
  device.CopyToHost(queue, tensor, values.data());
  return queue.Synchronize().ok() ? std::vector<double>(values.begin(), values.end())
                                  : std::vector<double>();
}

// A piece on its way between ranks: "name", first element, values. As text of numbers it would lose
// bits, so as bytes.
struct Piece {
  std::string name;
  std::uint64_t begin = 0;
  std::uint64_t whole = 0;  // elements of the tensor
  std::vector<double> values;
};

void AppendBytes(std::vector<std::byte>& to, const void* from, std::size_t size) {
  const auto* bytes = static_cast<const std::byte*>(from);
  to.insert(to.end(), bytes, bytes + size);
}

std::vector<std::byte> Encode(const std::vector<Piece>& pieces) {
  std::vector<std::byte> bytes;
  for (const Piece& piece : pieces) {
    const std::uint64_t header[] = {piece.name.size(), piece.begin, piece.whole,
                                    piece.values.size()};
    AppendBytes(bytes, header, sizeof(header));
    AppendBytes(bytes, piece.name.data(), piece.name.size());
    AppendBytes(bytes, piece.values.data(), piece.values.size() * sizeof(double));
  }
  return bytes;
}

std::vector<Piece> Decode(std::span<const std::byte> bytes) {
  std::vector<Piece> pieces;
  const auto take = [&](void* to, std::size_t size) {
    std::memcpy(to, bytes.data(), size);
    bytes = bytes.subspan(size);
  };
  while (!bytes.empty()) {
    std::uint64_t header[4];
    take(header, sizeof(header));
    Piece& piece = pieces.emplace_back();
    piece.name.resize(header[0]);
    piece.begin = header[1];
    piece.whole = header[2];
    piece.values.resize(header[3]);
    take(piece.name.data(), piece.name.size());
    take(piece.values.data(), piece.values.size() * sizeof(double));
  }
  return pieces;
}

// Of an element.
constexpr char kUnknown = '-';
constexpr char kKnown = '+';

Result<WholeTensors> Assemble(HostGroup& world, const std::vector<Piece>& mine) {
  std::vector<std::byte> bytes = Encode(mine);
  CKPT_ASSIGN_OR_RETURN(const std::vector<std::uint64_t> sizes,
                        ExchangeValues(world, std::uint64_t{bytes.size()}));
  const std::uint64_t largest = *std::ranges::max_element(sizes);
  bytes.resize(largest);
  std::vector<std::byte> all(largest * sizes.size());
  CKPT_RETURN_IF_ERROR(world.Exchange(bytes, all));

  WholeTensors tensors;
  // Ranges of elements that some rank holds. In whole ranges: element by element this took longer
  // than the training.
  std::map<std::string, std::string> known;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank) {
    for (const Piece& piece : Decode(std::span(all).subspan(rank * largest, sizes[rank]))) {
      std::vector<double>& whole = tensors[piece.name];
      std::string& is_known = known[piece.name];
      whole.resize(piece.whole);
      is_known.resize(piece.whole, kUnknown);
      for (std::size_t i = 0; i < piece.values.size();) {
        const std::size_t at = piece.begin + i;
        const char state = is_known[at];
        const std::size_t end =
            std::min(is_known.find_first_not_of(state, at), piece.begin + piece.values.size());
        const std::span<double> held = std::span(whole).subspan(at, end - at);
        const std::span<const double> theirs = std::span(piece.values).subspan(i, held.size());
        if (state == kUnknown) {
          std::ranges::copy(theirs, held.begin());
          is_known.replace(at, held.size(), held.size(), kKnown);
        } else if (std::memcmp(held.data(), theirs.data(), held.size_bytes()) != 0) {
          return Error(ErrorKind::kValueMismatch, "two ranks hold different values")
              .Tensor(piece.name);
        }
        i += held.size();
      }
    }
  }
  for (const auto& [name, is_known] : known) {
    if (is_known.find(kUnknown) != std::string::npos) {
      return Error(ErrorKind::kCoverage, "no rank holds some elements").Tensor(name);
    }
  }
  return tensors;
}

// The pieces of one of this rank's main arrays, of which `values` are the elements.
template <typename Values>
void AppendPieces(const MainArrays& main, const Values& values, std::vector<Piece>& pieces) {
  for (const ParamPiece& piece : main.pieces) {
    const auto first = values.begin() + piece.main_offset;
    pieces.push_back({.name = piece.spec->name,
                      .begin = static_cast<std::uint64_t>(piece.row_begin * piece.row_elems),
                      .whole = static_cast<std::uint64_t>(NumElements(piece.spec->shape)),
                      .values = {first, first + piece.rows * piece.row_elems}});
  }
}

std::vector<Piece> WeightPieces(RankTrainer& trainer, Device& device, Queue& queue) {
  std::vector<Piece> pieces;
  for (const MainArrays& main : trainer.params().mains()) {
    AppendPieces(main, ReadValues(device, queue, main.weights), pieces);
  }
  return pieces;
}

Result<std::vector<Piece>> GradientPieces(RankTrainer& trainer) {
  std::vector<Piece> pieces;
  for (const MainArrays& main : trainer.params().mains()) {
    if (!main.gradient) continue;
    CKPT_ASSIGN_OR_RETURN(const std::vector<float> values, trainer.ReadGradient(main));
    AppendPieces(main, values, pieces);
  }
  return pieces;
}

std::vector<Piece> BufferPieces(RankTrainer& trainer, Device& device, Queue& queue) {
  std::vector<Piece> pieces;
  for (const ReplicatedBuffer& buffer : trainer.model().buffers()) {
    std::vector<double> values = ReadValues(device, queue, buffer.values);
    pieces.push_back(
        {.name = buffer.spec.name, .begin = 0, .whole = values.size(), .values = values});
  }
  return pieces;
}

}  // namespace

ModelConfig SmallMoe() {
  ModelConfig config;
  config.num_layers = 2;
  config.hidden_size = 20;
  config.ffn_hidden_size = 28;
  config.num_attention_heads = 4;
  config.num_query_groups = 2;
  config.kv_channels = 6;
  config.vocab_size = 37;
  config.padded_vocab_size = 40;
  config.window_size = {0, 0};
  config.is_moe_layer = {false, true};
  config.init_method_std = 0.1;
  MoeConfig moe;
  moe.num_experts = 8;
  moe.ffn_hidden_size = 9;
  moe.router.topk = 2;
  moe.router.normalize = true;
  moe.aux = {.kind = AuxLoss::kSequence, .coefficient = 0.01};
  config.moe = moe;
  return config;
}

ModelConfig SmallDeepSeek() {
  ModelConfig config = SmallMoe();
  config.num_layers = 3;
  config.window_size = {0, 0, 0};
  config.is_moe_layer = {false, true, true};
  config.num_query_groups = 4;
  config.mla = MlaConfig{.q_lora_rank = 14,
                         .kv_lora_rank = 10,
                         .qk_head_dim = 6,
                         .qk_pos_emb_head_dim = 4,
                         .v_head_dim = 5};
  config.rope.interleaved = true;
  config.moe->router = {.score = ScoreFunction::kSigmoid,
                        .topk = 4,
                        .num_groups = 4,
                        .group_topk = 2,
                        .normalize = true,
                        .scaling = 2.5};
  config.moe->expert_bias = true;
  config.moe->bias_update_rate = 1e-3;
  config.moe->shared_expert_ffn_hidden_size = 11;
  return config;
}

TrainConfig SmallRun(const ModelConfig& model, std::int64_t sequences) {
  TrainConfig config;
  config.model = model;
  config.micro_batch_size = 1;
  config.global_batch_size = sequences;
  config.seq_length = kSeq;
  config.schedule = {.style = DecayStyle::kConstant, .max_lr = 3e-3};
  // Far above the noise of a sum: Adam divides a gradient by its own size, which makes noise of
  // tiny ones an update.
  config.optimizer.adam_eps = 1e-3;
  config.overlap_grad_reduce = true;
  config.overlap_param_gather = true;
  return config;
}

Result<TrainedRun> TrainOnRank(const TrainConfig& config, HostGroup& world,
                               const RunOptions& options) {
  TrainConfig complete = config;
  ApplyReduction(complete);
  CKPT_RETURN_IF_ERROR(ValidateTrainConfig(complete));
  Backend backend;
  if (options.make_backend) {
    CKPT_ASSIGN_OR_RETURN(backend, options.make_backend(world));
  } else {
    backend = {.device = MakeHostDevice(options.device),
               .ops = MakeHostOps(
                   {.threads = 1, .fixed_order = config.reduction == Reduction::kCanonical})};
  }
  std::unique_ptr<Device> device = std::move(backend.device);
  if (options.wrap_device) device = options.wrap_device(std::move(device));
  StrictDevice* strict = nullptr;
  if (options.is_strict) {
    auto wrapped = std::make_unique<StrictDevice>(std::move(device));
    strict = wrapped.get();
    device = std::move(wrapped);
  }
  CKPT_ASSIGN_OR_RETURN(
      const std::unique_ptr<RankTrainer> trainer,
      RankTrainer::Create(complete, world, {.device = device.get(), .ops = backend.ops.get()}));
  CKPT_RETURN_IF_ERROR(trainer->InitializeWeights());

  TrainedRun run;
  const std::unique_ptr<Queue> queue = device->MakeQueue("test");
  for (std::int64_t step = 0; step < options.steps; ++step) {
    const std::vector<HostMicroBatch> batches = BatchesOf(complete, world.rank(), step);
    if (strict != nullptr) strict->EnterStep();
    CKPT_ASSIGN_OR_RETURN(const StepReport report, trainer->Step(batches));
    if (strict != nullptr) strict->LeaveStep();
    run.reports.push_back(report);
    CKPT_RETURN_IF_ERROR(trainer->params().Synchronize());
    if (step > 0) continue;
    CKPT_ASSIGN_OR_RETURN(const std::vector<Piece> gradients, GradientPieces(*trainer));
    CKPT_ASSIGN_OR_RETURN(run.first_gradients, Assemble(world, gradients));
  }
  if (options.inspect) options.inspect(*trainer, *device);
  CKPT_ASSIGN_OR_RETURN(run.weights, Assemble(world, WeightPieces(*trainer, *device, *queue)));
  CKPT_ASSIGN_OR_RETURN(run.buffers, Assemble(world, BufferPieces(*trainer, *device, *queue)));
  return run;
}

Result<TrainedRun> Train(const TrainConfig& config, const RunOptions& options) {
  if (process_ranks != nullptr && process_ranks->size() == config.mesh.world_size) {
    return TrainOnRank(config, *process_ranks, options);
  }
  std::mutex mutex;
  TrainedRun first;
  CKPT_RETURN_IF_ERROR(RunRanks(config.mesh.world_size, [&](HostGroup& world) -> Status {
    CKPT_ASSIGN_OR_RETURN(TrainedRun run, TrainOnRank(config, world, options));
    if (world.rank() == 0) {
      const std::lock_guard lock(mutex);
      first = std::move(run);
    }
    return OkStatus();
  }));
  return first;
}

void ExpectSameTraining(const TrainedRun& run, const TrainedRun& expected,
                        const Closeness& bounds) {
  ASSERT_EQ(run.reports.size(), expected.reports.size());
  for (std::size_t i = 0; i < run.reports.size(); ++i) {
    const StepReport& got = run.reports[i];
    const StepReport& want = expected.reports[i];
    EXPECT_NEAR(got.loss, want.loss, bounds.reports * std::abs(want.loss));
    EXPECT_NEAR(got.aux_loss, want.aux_loss, bounds.reports * std::abs(want.aux_loss));
    EXPECT_NEAR(got.grad_norm, want.grad_norm, bounds.reports * want.grad_norm);
    EXPECT_EQ(got.tokens, want.tokens);
  }
  EXPECT_LE(RelativeDifference(run.first_gradients, expected.first_gradients), bounds.gradients);
  EXPECT_LE(RelativeDifference(run.weights, expected.weights), bounds.weights);
  EXPECT_EQ(run.buffers, expected.buffers);
}

double RelativeDifference(const WholeTensors& a, const WholeTensors& b) {
  constexpr double kDifferent = std::numeric_limits<double>::infinity();
  if (a.size() != b.size()) return kDifferent;
  double worst = 0;
  for (const auto& [name, values] : a) {
    const auto found = b.find(name);
    if (found == b.end() || found->second.size() != values.size()) return kDifferent;
    double magnitude = 0;
    double difference = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i]) || !std::isfinite(found->second[i])) return kDifferent;
      magnitude = std::max(magnitude, std::abs(values[i]));
      difference = std::max(difference, std::abs(values[i] - found->second[i]));
    }
    if (difference > 0) worst = std::max(worst, difference / std::max(magnitude, 1e-30));
  }
  return worst;
}

}  // namespace ckpt::testing
