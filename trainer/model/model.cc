#include "trainer/model/model.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "trainer/model/internal/block_params.h"
#include "trainer/model/internal/layer.h"
#include "trainer/model/internal/linear.h"
#include "trainer/model/internal/norm.h"
#include "trainer/model/internal/rope_table.h"

namespace ckpt::trainer {
namespace {

// Chunk size for the activations of the first step, whose need is not known before it.
constexpr std::uint64_t kArenaChunkBytes = std::uint64_t{8} << 20;

constexpr const char* kFinalNorm = "decoder.final_layernorm.";

constexpr int kEmbeddingUnit = 0;
constexpr int UnitOfLayer(std::size_t layer) { return static_cast<int>(layer) + 1; }

// Holds a unit's weights for a scope.
class UnitLease {
 public:
  UnitLease(ParamAccess& params, int unit)
      : params_(params), unit_(unit), weights_(params.Acquire(unit)) {}
  ~UnitLease() { params_.Release(unit_); }
  UnitLease(const UnitLease&) = delete;
  UnitLease& operator=(const UnitLease&) = delete;

  [[nodiscard]] std::span<const Tensor> weights() const { return weights_; }

 private:
  ParamAccess& params_;
  const int unit_;
  const std::span<const Tensor> weights_;
};

Status CheckSupported(const ModelConfig& config, const ModelRuntime& runtime) {
  Status status;
  if (config.learned_positions > 0) {
    status.Add(Error(ErrorKind::kUsage, "learned position embeddings are not implemented")
                   .Expected("rotary positions"));
  }
  if (config.moe && config.moe->num_experts % runtime.moe.ranks() != 0) {
    status.Add(Error(ErrorKind::kUsage, "the ranks of the expert group do not divide the experts")
                   .Expected("a multiple of " + std::to_string(runtime.moe.ranks()))
                   .Actual(std::to_string(config.moe->num_experts) + " experts"));
  }
  return status;
}

ParamSpec VocabularyMatrix(const ModelConfig& config, std::string name) {
  return MatrixSpec(std::move(name), config.padded_vocab_size, config.hidden_size,
                    config.init_method_std);
}

// The first unit. The root if the embedding is also the output layer.
UnitSpec EmbeddingUnit(const ModelConfig& config) {
  UnitSpec unit{
      .name = config.tied_embeddings ? "root" : "embedding", .params = {}, .is_end = true};
  unit.params.push_back(VocabularyMatrix(config, "embedding.word_embeddings.weight"));
  if (!config.tied_embeddings) return unit;
  for (ParamSpec& param : Norm(config, kFinalNorm).Params()) {
    unit.params.push_back(std::move(param));
  }
  return unit;
}

// The last unit, of an output layer of its own.
UnitSpec HeadUnit(const ModelConfig& config) {
  UnitSpec unit{.name = "head", .params = Norm(config, kFinalNorm).Params(), .is_end = true};
  unit.params.push_back(VocabularyMatrix(config, "output_layer.weight"));
  return unit;
}

class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, const ModelRuntime& runtime)
      : config_(config),
        runtime_(runtime),
        arena_(*runtime.device, *runtime.queue, kArenaChunkBytes),
        rope_(config.rope, RotatedElements(config)),
        final_norm_(config, kFinalNorm) {}

  // The part of construction that can fail. Errors: kSystem.
  Status Build();

  [[nodiscard]] const ModelConfig& config() const override { return config_; }
  [[nodiscard]] const std::vector<UnitSpec>& units() const override { return units_; }
  [[nodiscard]] std::vector<ReplicatedBuffer>& buffers() override { return expert_biases_; }
  [[nodiscard]] const Tensor& expert_counts() const override { return expert_counts_; }
  [[nodiscard]] std::uint64_t activation_peak_bytes() const override { return arena_.peak_bytes(); }

  Status ForwardBackward(ParamAccess& params, const MicroBatch& batch, const LossScales& scales,
                         const Tensor& losses, const Tensor& aux_loss) override;
  Status Forward(ParamAccess& params, const MicroBatch& batch, const Tensor& losses,
                 const Tensor& logits) override;

 private:
  // What the head's unit was given for its parameters: the weights, or where their gradients go.
  template <typename T>
  struct HeadParts {
    std::span<const T> final_norm;
    T output;
  };
  // The sum that a layer began with, and the position of the arena where its own memory starts.
  struct LayerRun {
    Tensor x;
    Arena::Mark start;
  };

  // The head is a part of the embedding's unit if the two are tied.
  [[nodiscard]] int head_unit() const {
    return config_.tied_embeddings ? kEmbeddingUnit : UnitOfLayer(layers_.size());
  }
  template <typename T>
  [[nodiscard]] HeadParts<T> DivideHead(std::span<const T> params) const;
  // Request the weights that are used next: of the layers from `first` on and of the head, or of
  // the layers before `end`, backwards.
  void PrefetchFrom(ParamAccess& params, std::size_t first) const;
  void PrefetchBackFrom(ParamAccess& params, std::size_t end) const;
  // Embedding and head are one unit if they are tied: it is whole for the whole pass.
  [[nodiscard]] std::optional<UnitLease> HoldRoot(ParamAccess& params) const {
    if (!config_.tied_embeddings) return std::nullopt;
    return std::optional<UnitLease>(std::in_place, params, kEmbeddingUnit);
  }
  // Looks up the tokens' rows and requests the first layers.
  void Embed(BlockContext& context, ParamAccess& params, const MicroBatch& batch, const Tensor& x);
  Status AllocateExpertState();
  void Enter(StepPhase phase) const {
    if (runtime_.clock != nullptr) runtime_.clock->Enter(phase);
  }
  [[nodiscard]] bool recomputes_layers() const { return runtime_.recompute == Recompute::kLayers; }

  Result<BlockContext> Begin(const MicroBatch& batch);
  [[nodiscard]] Tensor AllocateHidden(BlockContext& context) const;
  // Takes the stream from the first layer's input to the last one's output. A recomputation needs
  // the first tensor of a layer's output only until the next layer, so `passing` serves all layers.
  std::vector<LayerRun> ForwardLayers(BlockContext& context, ParamAccess& params,
                                      const Tensor& passing, const Tensor& aux_loss,
                                      Residual& stream);
  void BackwardLayers(BlockContext& context, ParamAccess& params, std::span<const LayerRun> runs,
                      double aux_scale, const Tensor& residual);
  // Calls `body(first token, number of tokens)` for chunks of all tokens.
  template <typename Body>
  void ForChunks(BlockContext& context, const Body& body) const;
  [[nodiscard]] Tensor AllocateLogits(BlockContext& context) const;  // of a chunk
  // Writes the gradient of the last layer's output.
  void RunHead(BlockContext& context, const HeadParts<Tensor>& head,
               const HeadParts<Gradient>& gradients, const MicroBatch& batch, double token_scale,
               const Residual& stream, const Tensor& losses, const Tensor& residual);

  const ModelConfig config_;
  const ModelRuntime runtime_;
  Arena arena_;
  RopeTable rope_;
  Norm final_norm_;
  std::vector<std::unique_ptr<Layer>> layers_;
  std::vector<UnitSpec> units_;
  Buffer expert_state_;
  std::vector<ReplicatedBuffer> expert_biases_;
  Tensor expert_counts_;
};

Status Decoder::Build() {
  CKPT_RETURN_IF_ERROR(AllocateExpertState());
  CKPT_RETURN_IF_ERROR(arena_.Reserve(runtime_.activation_bytes));
  if (runtime_.seq > 0) {
    CKPT_RETURN_IF_ERROR(rope_.Prepare(*runtime_.device, *runtime_.queue,
                                       StatisticsDtype(runtime_.compute), runtime_.seq));
  }
  units_ = ListUnits(config_, runtime_.moe.rank(), runtime_.moe.ranks());
  std::int64_t num_moe_layers = 0;
  for (int index = 0; index < config_.num_layers; ++index) {
    LayerSurroundings surroundings{.rope = &rope_, .moe = runtime_.moe};
    if (config_.is_moe_layer[static_cast<std::size_t>(index)]) {
      const std::int64_t row = num_moe_layers++;
      surroundings.expert_counts = expert_counts_.Rows(row, 1).Reshape({config_.moe->num_experts});
      if (!expert_biases_.empty()) {
        surroundings.expert_bias = expert_biases_[static_cast<std::size_t>(row)].values;
      }
    }
    layers_.push_back(std::make_unique<Layer>(config_, index, surroundings));
  }
  return OkStatus();
}

template <typename T>
Decoder::HeadParts<T> Decoder::DivideHead(std::span<const T> params) const {
  if (config_.tied_embeddings) return {.final_norm = params.subspan(1), .output = params.front()};
  return {.final_norm = params.first(params.size() - 1), .output = params.back()};
}

void Decoder::PrefetchFrom(ParamAccess& params, std::size_t first) const {
  const auto depth = static_cast<std::size_t>(runtime_.prefetch_depth);
  for (std::size_t layer = first; layer < first + depth && layer < layers_.size(); ++layer) {
    params.Prefetch(UnitOfLayer(layer));
  }
  if (first + depth > layers_.size()) params.Prefetch(head_unit());
}

void Decoder::PrefetchBackFrom(ParamAccess& params, std::size_t end) const {
  const auto depth = static_cast<std::size_t>(runtime_.prefetch_depth);
  for (std::size_t i = 0; i < depth && i < end; ++i) params.Prefetch(UnitOfLayer(end - 1 - i));
}

// One buffer holds the counts of all layers, then the biases.
Status Decoder::AllocateExpertState() {
  const auto num_layers = static_cast<std::int64_t>(
      std::count(config_.is_moe_layer.begin(), config_.is_moe_layer.end(), true));
  if (!config_.moe || num_layers == 0) return OkStatus();
  const std::int64_t num_experts = config_.moe->num_experts;
  const DType bias_dtype = StatisticsDtype(runtime_.compute);
  const std::vector<ReplicatedBufferSpec> bias_specs = ListBuffers(config_);
  const auto num_elems = static_cast<std::uint64_t>(num_layers * num_experts);
  const std::uint64_t counts_bytes = num_elems * ElementBytes(DType::kInt64);
  const std::uint64_t bias_bytes = bias_specs.empty() ? 0 : num_elems * ElementBytes(bias_dtype);
  CKPT_ASSIGN_OR_RETURN(expert_state_,
                        runtime_.device->Allocate(counts_bytes + bias_bytes, MemoryUse::kOther));
  expert_counts_ = Tensor(expert_state_.data(), DType::kInt64, {num_layers, num_experts});
  const Tensor biases(expert_state_.data() + counts_bytes, bias_dtype, {num_layers, num_experts});
  for (const ReplicatedBufferSpec& spec : bias_specs) {
    const auto row = static_cast<std::int64_t>(expert_biases_.size());
    expert_biases_.push_back({.spec = spec, .values = biases.Rows(row, 1).Reshape({num_experts})});
  }
  return OkStatus();
}

Result<BlockContext> Decoder::Begin(const MicroBatch& batch) {
  CKPT_RETURN_IF_ERROR(arena_.Consolidate());
  BlockContext context{.ops = *runtime_.ops,
                       .device = *runtime_.device,
                       .queue = *runtime_.queue,
                       .arena = arena_,
                       .compute = runtime_.compute,
                       .batch = batch.batch,
                       .seq = batch.seq,
                       .layout = batch.layout,
                       .recompute = runtime_.recompute};
  CKPT_RETURN_IF_ERROR(
      rope_.Prepare(context.device, context.queue, context.statistics(), batch.seq));
  return context;
}

Tensor Decoder::AllocateHidden(BlockContext& context) const {
  return context.arena.Allocate(context.compute, {context.tokens(), config_.hidden_size});
}

Status Decoder::ForwardBackward(ParamAccess& params, const MicroBatch& batch,
                                const LossScales& scales, const Tensor& losses,
                                const Tensor& aux_loss) {
  Enter(StepPhase::kForward);
  CKPT_ASSIGN_OR_RETURN(BlockContext context, Begin(batch));
  const ArenaScope scope(arena_);
  const Tensor residual = AllocateHidden(context);  // the gradient, from layer to layer
  const Tensor embedded = AllocateHidden(context);

  const std::optional<UnitLease> root = HoldRoot(params);
  Embed(context, params, batch, embedded);
  Residual stream = {.x = embedded};
  const std::vector<LayerRun> runs =
      ForwardLayers(context, params, /*passing=*/residual, aux_loss, stream);

  Enter(StepPhase::kBackward);
  std::span<const Gradient> gradients = params.AcquireGradients(head_unit());
  {
    const UnitLease head(params, head_unit());
    RunHead(context, DivideHead(head.weights()), DivideHead(gradients), batch, scales.token, stream,
            losses, residual);
  }
  if (!config_.tied_embeddings) params.ReduceGradients(head_unit());
  BackwardLayers(context, params, runs, scales.aux, residual);
  if (!config_.tied_embeddings) gradients = params.AcquireGradients(kEmbeddingUnit);
  Gradient embedding = gradients.front();
  if (config_.tied_embeddings) embedding.write = GradWrite::kAdd;  // to the head's
  if (embedding) {
    context.ops.EmbeddingBackward(context.queue, batch.tokens, residual, embedding);
  }
  params.ReduceGradients(kEmbeddingUnit);
  return OkStatus();
}

void Decoder::Embed(BlockContext& context, ParamAccess& params, const MicroBatch& batch,
                    const Tensor& x) {
  const UnitLease embedding(params, kEmbeddingUnit);
  PrefetchFrom(params, 0);
  context.ops.Embedding(context.queue, batch.tokens, embedding.weights().front(), x);
}

std::vector<Decoder::LayerRun> Decoder::ForwardLayers(BlockContext& context, ParamAccess& params,
                                                      const Tensor& passing, const Tensor& aux_loss,
                                                      Residual& stream) {
  std::vector<LayerRun> runs;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const Residual out = {.x = recomputes_layers() ? passing : AllocateHidden(context),
                          .delta = AllocateHidden(context)};
    runs.push_back({.x = stream.delta ? stream.delta : stream.x, .start = arena_.Position()});
    const UnitLease unit(params, UnitOfLayer(layer));
    PrefetchFrom(params, layer + 1);
    layers_[layer]->Forward(context, unit.weights(), stream, out, aux_loss);
    if (recomputes_layers()) arena_.Rewind(layers_[layer]->recomputed());
    stream = out;
  }
  return runs;
}

void Decoder::BackwardLayers(BlockContext& context, ParamAccess& params,
                             std::span<const LayerRun> runs, double aux_scale,
                             const Tensor& residual) {
  for (std::size_t layer = layers_.size(); layer-- > 0;) {
    const LayerRun& run = runs[layer];
    const UnitLease unit(params, UnitOfLayer(layer));
    PrefetchBackFrom(params, layer);
    if (recomputes_layers()) layers_[layer]->Recompute(context, unit.weights(), run.x);
    const std::span<const Gradient> gradients = params.AcquireGradients(UnitOfLayer(layer));
    layers_[layer]->Backward(context, unit.weights(), gradients, aux_scale, residual);
    params.ReduceGradients(UnitOfLayer(layer));
    arena_.Rewind(run.start);
  }
}

template <typename Body>
void Decoder::ForChunks(BlockContext& context, const Body& body) const {
  const std::int64_t tokens = context.tokens();
  for (std::int64_t first = 0; first < tokens; first += runtime_.loss_chunk_tokens) {
    body(first, std::min(runtime_.loss_chunk_tokens, tokens - first));
  }
}

Tensor Decoder::AllocateLogits(BlockContext& context) const {
  return context.arena.Allocate(
      context.compute,
      {std::min(runtime_.loss_chunk_tokens, context.tokens()), config_.padded_vocab_size});
}

void Decoder::RunHead(BlockContext& context, const HeadParts<Tensor>& head,
                      const HeadParts<Gradient>& gradients, const MicroBatch& batch,
                      double token_scale, const Residual& stream, const Tensor& losses,
                      const Tensor& residual) {
  const std::int64_t tokens = context.tokens();
  const ArenaScope scope(arena_);
  const Tensor normed = AllocateHidden(context);
  const Tensor dnormed = AllocateHidden(context);
  const Tensor chunk_logits = AllocateLogits(context);
  const Tensor lse = arena_.Allocate(context.statistics(), {chunk_logits.dim(0)});
  const Tensor token_weights = arena_.Allocate(context.statistics(), {chunk_logits.dim(0)});

  final_norm_.Forward(context, head.final_norm, stream, normed);
  context.ops.Fill(context.queue, token_weights, token_scale);
  Gradient doutput = gradients.output;
  ForChunks(context, [&](std::int64_t first, std::int64_t count) {
    const Tensor inputs = normed.Rows(first, count);
    const Tensor logits = chunk_logits.Rows(0, count);
    const Tensor labels = batch.labels.Rows(first, count);
    const Tensor dlogits = logits;  // overwrites them: they are the largest activation
    Linear(context, inputs, head.output, {}, logits);
    context.ops.CrossEntropy(context.queue, logits, labels, losses.Rows(first, count),
                             lse.Rows(0, count));
    context.ops.CrossEntropyBackward(context.queue, logits, labels, lse.Rows(0, count),
                                     token_weights.Rows(0, count), dlogits);
    LinearBackward(context, dlogits, inputs, head.output, dnormed.Rows(first, count), doutput, {});
    doutput.write = GradWrite::kAdd;
  });
  CKPT_CHECK(tokens > 0);  // otherwise nothing has written the gradients of the output layer
  final_norm_.Backward(context, head.final_norm, gradients.final_norm, dnormed,
                       /*accumulate=*/false, residual);
}

Status Decoder::Forward(ParamAccess& params, const MicroBatch& batch, const Tensor& losses,
                        const Tensor& logits) {
  CKPT_ASSIGN_OR_RETURN(BlockContext context, Begin(batch));
  const ArenaScope scope(arena_);
  // Two tensors serve all layers: the sum that a layer begins with is overwritten by its delta.
  const Tensor embedded = AllocateHidden(context);
  const Residual out = {.x = AllocateHidden(context), .delta = embedded};

  const std::optional<UnitLease> root = HoldRoot(params);
  Embed(context, params, batch, embedded);
  Residual stream = {.x = embedded};
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
    const ArenaScope layer_scope(arena_);
    const UnitLease unit(params, UnitOfLayer(layer));
    PrefetchFrom(params, layer + 1);
    layers_[layer]->Forward(context, unit.weights(), stream, out, {});
    stream = out;
  }

  const Tensor chunk_logits = logits ? Tensor() : AllocateLogits(context);
  const Tensor lse = arena_.Allocate(context.statistics(), {context.tokens()});
  const UnitLease head_lease(params, head_unit());
  const HeadParts<Tensor> head = DivideHead(head_lease.weights());
  const Tensor normed = stream.x;  // overwrites it
  final_norm_.Forward(context, head.final_norm, stream, normed);
  ForChunks(context, [&](std::int64_t first, std::int64_t count) {
    const Tensor of_chunk = logits ? logits.Rows(first, count) : chunk_logits.Rows(0, count);
    Linear(context, normed.Rows(first, count), head.output, {}, of_chunk);
    context.ops.CrossEntropy(context.queue, of_chunk, batch.labels.Rows(first, count),
                             losses.Rows(first, count), lse.Rows(first, count));
  });
  return OkStatus();
}

}  // namespace

std::vector<UnitSpec> ListUnits(const ModelConfig& config, int expert_rank, int expert_ranks) {
  std::vector<UnitSpec> units = {EmbeddingUnit(config)};
  for (int index = 0; index < config.num_layers; ++index) {
    units.push_back({.name = "decoder.layers." + std::to_string(index),
                     .params = LayerParams(config, index, {expert_rank, expert_ranks})});
  }
  if (!config.tied_embeddings) units.push_back(HeadUnit(config));
  return units;
}

std::vector<ReplicatedBufferSpec> ListBuffers(const ModelConfig& config) {
  std::vector<ReplicatedBufferSpec> buffers;
  if (!config.moe || !config.moe->expert_bias) return buffers;
  for (std::size_t layer = 0; layer < config.is_moe_layer.size(); ++layer) {
    if (!config.is_moe_layer[layer]) continue;
    buffers.push_back(
        {.name = "decoder.layers." + std::to_string(layer) + ".mlp.router.expert_bias",
         .shape = {config.moe->num_experts}});
  }
  return buffers;
}

Result<std::unique_ptr<Model>> Model::Create(const ModelConfig& config,
                                             const ModelRuntime& runtime) {
  CKPT_RETURN_IF_ERROR(CheckSupported(config, runtime));
  auto decoder = std::make_unique<Decoder>(config, runtime);
  CKPT_RETURN_IF_ERROR(decoder->Build());
  return std::unique_ptr<Model>(std::move(decoder));
}

}  // namespace ckpt::trainer
