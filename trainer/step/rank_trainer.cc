#include "trainer/step/rank_trainer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trainer/params/mesh_comms.h"
#include "trainer/params/piece_rows.h"
#include "trainer/random/philox.h"
#include "trainer/step/grad_norm.h"
#include "trainer/step/step_memory.h"
#include "trainer/step/trained_units.h"
#include "trainer/step/world_sum.h"

namespace ckpt::trainer {
namespace {

std::int64_t CountLabels(const HostMicroBatch& batch) {
  return std::ranges::count_if(batch.labels, [](std::int32_t label) { return label >= 0; });
}

std::int64_t CountPadding(const HostMicroBatch& batch) {
  return std::ranges::count_if(batch.positions, [](std::int32_t position) { return position < 0; });
}

// The arrays of a micro-batch, in their order on the device.
std::array<const std::vector<std::int32_t>*, 5> ArraysOf(const HostMicroBatch& batch) {
  return {&batch.tokens, &batch.labels, &batch.positions, &batch.cu_seqlens, &batch.lengths};
}

struct HostLosses {
  std::vector<double> tokens;
  double aux = 0;

  // Summed in order of token, so the result is the same on every mesh.
  [[nodiscard]] double Sum() const { return std::accumulate(tokens.begin(), tokens.end(), 0.0); }
};

std::int64_t MostTokens(std::span<const HostMicroBatch> batches) {
  std::int64_t most = 0;
  for (const HostMicroBatch& batch : batches) most = std::max(most, batch.batch * batch.seq);
  return most;
}

// Describes a replicated buffer as if it were a parameter.
ParamSpec SpecOf(const ReplicatedBuffer& buffer) {
  return {.name = buffer.spec.name, .shape = buffer.spec.shape, .init = {}};
}

// `spec` outlives it.
ParamPiece WholePiece(const ParamSpec& spec) {
  const std::int64_t rows = spec.shape.front();
  return {.spec = &spec, .rows = rows, .row_elems = NumElements(spec.shape) / rows};
}

class RankTrainerImpl final : public RankTrainer {
 public:
  RankTrainerImpl(const TrainConfig& config, HostGroup& world, const TrainerRuntime& runtime)
      : config_(config),
        world_(world),
        device_(*runtime.device),
        ops_(*runtime.ops),
        topology_(config.mesh, world.rank()),
        compute_(device_.MakeQueue("compute")) {}
  // The other ranks may still read this rank's memory.
  ~RankTrainerImpl() override {
    (void)(store_ != nullptr ? store_->Synchronize() : compute_->Synchronize());
    comms_.Leave();
  }
  RankTrainerImpl(const RankTrainerImpl&) = delete;
  RankTrainerImpl& operator=(const RankTrainerImpl&) = delete;

  Status Build();

  Status InitializeWeights() override;
  Status SetWeights(const ParamStore::FillRows& fill) override;
  Status SetMoment(int moment, const ParamStore::FillRows& fill) override {
    return optimizer_->SetMoment(moment, fill, *compute_);
  }
  Status ReadWeights(const ParamStore::PlaceRows& place) override;
  Status ReadMoment(int moment, const ParamStore::PlaceRows& place) override {
    return optimizer_->ReadMoment(moment, place, *compute_);
  }
  Result<StepReport> Step(std::span<const HostMicroBatch> batches) override;
  Result<StepReport> ComputeGradients(std::span<const HostMicroBatch> batches) override;
  Result<std::vector<float>> ReadGradient(const MainArrays& main) override;
  Result<Evaluation> Evaluate(std::span<const HostMicroBatch> batches) override;
  Result<std::vector<float>> Logits(const HostMicroBatch& batch) override;

  [[nodiscard]] std::span<const double> micro_batch_losses() const override {
    return micro_batch_losses_;
  }
  ParamStore& params() override { return *store_; }
  Optimizer& optimizer() override { return *optimizer_; }
  Model& model() override { return *model_; }
  [[nodiscard]] const TrainConfig& config() const override { return config_; }

 private:
  [[nodiscard]] DType statistics() const {
    return config_.precision.compute == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  }
  // Makes room on the device for these micro-batches; the memory is kept from step to step. Clears
  // the counts of the routing.
  Status Reserve(std::span<const HostMicroBatch> batches);
  // Starts copying this micro-batch's arrays to the device.
  MicroBatch Upload(const HostMicroBatch& batch);
  // The results of a micro-batch on the device: a loss per token, then its auxiliary losses.
  [[nodiscard]] Tensor LossesOf(std::size_t micro_batch, std::int64_t tokens) const;
  [[nodiscard]] Tensor AuxLossOf(std::size_t micro_batch) const;
  Result<std::vector<HostLosses>> ReadLosses(std::span<const HostMicroBatch> batches);
  // Sets loss, aux_loss and tokens to their values over all ranks.
  Status SumLossesOverRanks(std::span<const HostMicroBatch> batches, StepReport& report);
  // Errors: kUsage.
  [[nodiscard]] Status RowsDoNotFit() const;
  void ClearExpertCounts();
  // Sums them over all ranks, on the host and on the device.
  void SumExpertCounts();
  void UpdateExpertBias();
  // REQUIRES: the compute queue was synchronised after SumExpertCounts.
  void DescribeExperts(StepReport::ExpertLoad& load) const;
  // The peak of the rank that has used the most memory.
  Result<std::uint64_t> PeakBytes();
  // The factor that brings a gradient of this norm down to the configured one; 1 if it is smaller.
  [[nodiscard]] double ClipFactor(double norm) const;
  // Casts a tensor to float32 and copies it to the host, times `factors`. Blocks.
  Result<std::vector<float>> ReadFloats(const Tensor& tensor, const GradientFactors& factors);

  const TrainConfig config_;
  HostGroup& world_;
  Device& device_;
  Ops& ops_;
  const Topology topology_;
  MeshComms comms_;
  std::unique_ptr<Queue> compute_;
  std::unique_ptr<Model> model_;
  std::vector<UnitSpec> units_;
  std::unique_ptr<ParamStore> store_;
  std::optional<Optimizer> optimizer_;
  std::optional<GradNorm> grad_norm_;
  Buffer inputs_;  // of one micro-batch
  Buffer losses_;  // of every micro-batch, `losses_stride_` elements each
  std::int64_t losses_stride_ = 0;
  std::vector<double> micro_batch_losses_;
  GradientFactors factors_;                // of the last step's gradients
  std::vector<std::int64_t> host_counts_;  // of experts, [L, E]
  Buffer routing_memory_;
  Tensor routing_;                              // int64 [2]: the model's DispatchCounts
  std::array<std::int64_t, 2> host_routing_{};  // a copy
};

Status RankTrainerImpl::Build() {
  CKPT_ASSIGN_OR_RETURN(comms_, SplitWorld(world_, topology_, device_));
  CKPT_ASSIGN_OR_RETURN(routing_memory_, device_.Allocate(RoutingBytes(), MemoryUse::kOther));
  routing_ = Tensor(routing_memory_.data(), DType::kInt64, {2});
  const bool is_canonical = config_.reduction == Reduction::kCanonical;
  const ModelRuntime runtime = {
      .ops = &ops_,
      .device = &device_,
      .queue = compute_.get(),
      .compute = config_.precision.compute,
      .recompute = config_.recompute,
      .prefetch_depth = config_.slots.prefetch_depth,
      .moe = {.expert_group = comms_.expert.get(),
              .dispatcher = config_.dispatcher,
              .rank_capacity_factor = config_.rank_capacity_factor,
              .separate_sources = is_canonical,
              .counts = {.dropped = routing_.Rows(0, 1), .overflows = routing_.Rows(1, 1)}}};
  CKPT_ASSIGN_OR_RETURN(model_, Model::Create(config_.model, runtime));
  units_ = ListTrainedUnits(config_, topology_.expert());
  ShardPlan plan = PlanShards(units_, topology_, config_.precision, config_.slots);
  CKPT_RETURN_IF_ERROR(CheckUnshardedBytes(config_, plan));
  CKPT_ASSIGN_OR_RETURN(
      store_, ParamStore::Create(units_, std::move(plan), comms_, ops_, device_, *compute_,
                                 {.poison_released = config_.poison_released,
                                  .prefetches = config_.overlap_param_gather,
                                  .overlaps_reduces = config_.overlap_grad_reduce}));
  CKPT_ASSIGN_OR_RETURN(optimizer_, Optimizer::Create(config_.optimizer, *store_, ops_, device_));
  CKPT_ASSIGN_OR_RETURN(grad_norm_, GradNorm::Create(*store_, world_, ops_, device_));
  return OkStatus();
}

Status RankTrainerImpl::InitializeWeights() {
  return SetWeights([&](const ParamSpec& spec, std::int64_t row_begin, std::int64_t rows,
                        std::span<float> values) {
    const auto constant = static_cast<float>(spec.init.constant);
    if (spec.init.std == 0) {
      std::ranges::fill(values, constant);
      return OkStatus();
    }
    const auto row_elems = static_cast<std::int64_t>(values.size()) / rows;
    FillNormal(StreamKey(config_.seed, spec.name),
               static_cast<std::uint64_t>(row_begin * row_elems), values);
    for (float& value : values) value = constant + static_cast<float>(spec.init.std) * value;
    return OkStatus();
  });
}

Status RankTrainerImpl::SetWeights(const ParamStore::FillRows& fill) {
  CKPT_RETURN_IF_ERROR(store_->SetWeights(fill));
  for (const ReplicatedBuffer& buffer : model_->buffers()) {
    const ParamSpec spec = SpecOf(buffer);
    const ParamPiece whole = WholePiece(spec);
    CKPT_RETURN_IF_ERROR(FillPieces({&whole, 1}, buffer.values, fill, ops_, device_, *compute_));
  }
  return OkStatus();
}

Status RankTrainerImpl::ReadWeights(const ParamStore::PlaceRows& place) {
  CKPT_RETURN_IF_ERROR(store_->ReadWeights(place));
  for (const ReplicatedBuffer& buffer : model_->buffers()) {
    const ParamSpec spec = SpecOf(buffer);
    const ParamPiece whole = WholePiece(spec);
    CKPT_RETURN_IF_ERROR(ReadPieces({&whole, 1}, buffer.values, place, ops_, device_, *compute_));
  }
  return OkStatus();
}

Status RankTrainerImpl::Reserve(std::span<const HostMicroBatch> batches) {
  const std::int64_t tokens = MostTokens(batches);
  losses_stride_ = tokens + 1;
  const auto grow = [&](Buffer& buffer, std::uint64_t size_bytes) -> Status {
    if (buffer.size_bytes() >= size_bytes) return OkStatus();
    buffer = Buffer();
    CKPT_ASSIGN_OR_RETURN(buffer, device_.Allocate(size_bytes, MemoryUse::kOther));
    return OkStatus();
  };
  CKPT_RETURN_IF_ERROR(grow(inputs_, InputBytes(tokens)));
  ops_.Fill(*compute_, routing_, 0);
  return grow(losses_, LossBytes(static_cast<std::int64_t>(batches.size()), tokens,
                                 config_.precision.compute));
}

MicroBatch RankTrainerImpl::Upload(const HostMicroBatch& batch) {
  const auto tokens = static_cast<std::size_t>(batch.batch * batch.seq);
  CKPT_CHECK(batch.tokens.size() == tokens && batch.labels.size() == tokens);
  CKPT_CHECK(batch.positions.empty() || batch.positions.size() == tokens);
  CKPT_CHECK(batch.lengths.size() <= tokens);
  std::array<Tensor, 5> arrays;
  std::byte* end = inputs_.data();
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::vector<std::int32_t>& values = *ArraysOf(batch)[i];
    if (values.empty()) continue;
    arrays[i] = Tensor(end, DType::kInt32, {static_cast<std::int64_t>(values.size())});
    device_.CopyFromHost(*compute_, values.data(), arrays[i]);
    end += arrays[i].size_bytes();
  }
  return {.tokens = arrays[0],
          .labels = arrays[1],
          .batch = batch.batch,
          .seq = batch.seq,
          .layout = {.positions = arrays[2],
                     .examples = {.cu_seqlens = arrays[3], .lengths = arrays[4]},
                     .num_padding = CountPadding(batch)}};
}

Tensor RankTrainerImpl::LossesOf(std::size_t micro_batch, std::int64_t tokens) const {
  const std::uint64_t offset_bytes =
      micro_batch * static_cast<std::uint64_t>(losses_stride_) * ElementBytes(statistics());
  return {losses_.data() + offset_bytes, statistics(), {tokens}};
}

Tensor RankTrainerImpl::AuxLossOf(std::size_t micro_batch) const {
  return LossesOf(micro_batch, losses_stride_).Rows(losses_stride_ - 1, 1);
}

Result<std::vector<HostLosses>> RankTrainerImpl::ReadLosses(
    std::span<const HostMicroBatch> batches) {
  const auto stride = static_cast<std::size_t>(losses_stride_);
  const Tensor all(losses_.data(), statistics(),
                   {static_cast<std::int64_t>(batches.size() * stride)});
  device_.CopyToHost(*compute_, routing_, host_routing_.data());
  std::vector<double> values(batches.size() * stride);
  if (statistics() == DType::kFloat64) {
    device_.CopyToHost(*compute_, all, values.data());
    CKPT_RETURN_IF_ERROR(compute_->Synchronize());
  } else {
    std::vector<float> floats(values.size());
    device_.CopyToHost(*compute_, all, floats.data());
    CKPT_RETURN_IF_ERROR(compute_->Synchronize());
    std::ranges::copy(floats, values.begin());
  }
  std::vector<HostLosses> losses;
  for (std::size_t m = 0; m < batches.size(); ++m) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(m * stride);
    losses.push_back({.tokens = {first, first + batches[m].batch * batches[m].seq},
                      .aux = *(first + losses_stride_ - 1)});
  }
  return losses;
}

Status RankTrainerImpl::SumLossesOverRanks(std::span<const HostMicroBatch> batches,
                                           StepReport& report) {
  CKPT_ASSIGN_OR_RETURN(const std::vector<HostLosses> losses, ReadLosses(batches));
  std::array<ExactSum, 5> sums;  // loss, tokens, auxiliary losses, dropped choices, overflows
  std::string bad;
  micro_batch_losses_.clear();
  for (std::size_t m = 0; m < batches.size(); ++m) {
    const std::int64_t tokens = CountLabels(batches[m]);
    const double sum = losses[m].Sum();
    const double mean = tokens > 0 ? sum / static_cast<double>(tokens) : 0;
    const bool is_finite = std::isfinite(sum) && std::isfinite(losses[m].aux);
    micro_batch_losses_.push_back(is_finite ? mean : std::nan(""));
    if (!is_finite && bad.empty()) bad = fmt::format("rank {}, micro-batch {}", world_.rank(), m);
    if (tokens > 0) sums[0].Add(config_.per_token_loss ? sum : mean);
    sums[1].Add(static_cast<double>(tokens));
    sums[2].Add(losses[m].aux);
  }
  sums[3].Add(static_cast<double>(host_routing_[0]));
  sums[4].Add(static_cast<double>(host_routing_[1]));
  CKPT_RETURN_IF_ERROR(SumOverRanks(world_, sums));
  // First: it leaves the losses undefined.
  if (sums[4].Value() > 0) return RowsDoNotFit();
  const double num_batches = static_cast<double>(batches.size()) * world_.size();
  report.tokens = static_cast<std::int64_t>(sums[1].Value());
  const double divisor = config_.per_token_loss ? sums[1].Value() : num_batches;
  report.loss = divisor > 0 ? sums[0].Value() / divisor : 0;
  report.aux_loss = sums[2].Value() / num_batches;
  if (config_.model.moe) {
    report.experts.emplace().dropped = static_cast<std::int64_t>(sums[3].Value());
  }
  if (std::isfinite(report.loss) && std::isfinite(report.aux_loss)) return OkStatus();
  Status status = Error(ErrorKind::kValueMismatch, "the loss is not finite")
                      .Actual(bad.empty() ? fmt::format("{}", report.loss) : bad);
  return bad.empty() ? std::move(status).Hint("the error of another rank names the micro-batch")
                     : std::move(status);
}

Status RankTrainerImpl::RowsDoNotFit() const {
  return Error(ErrorKind::kUsage, "the experts of a rank got more tokens than they have memory for")
      .Expected(fmt::format("at most moe_expert_rank_capacity_factor={} times the mean",
                            config_.rank_capacity_factor.value_or(0)))
      .Hint("raise moe_expert_rank_capacity_factor, or leave it out");
}

void RankTrainerImpl::ClearExpertCounts() {
  const Tensor& counts = model_->expert_counts();
  if (counts) ops_.Fill(*compute_, counts, 0);
}

void RankTrainerImpl::SumExpertCounts() {
  const Tensor& counts = model_->expert_counts();
  if (!counts) return;
  comms_.world->AllReduce(*compute_, counts, ReduceOp::kSum);
  host_counts_.resize(static_cast<std::size_t>(counts.num_elems()));
  device_.CopyToHost(*compute_, counts, host_counts_.data());
}

void RankTrainerImpl::UpdateExpertBias() {
  const Tensor& counts = model_->expert_counts();
  const std::vector<ReplicatedBuffer>& biases = model_->buffers();
  for (std::size_t layer = 0; layer < biases.size(); ++layer) {
    const Tensor of_layer =
        counts.Rows(static_cast<std::int64_t>(layer), 1).Reshape({counts.dim(1)});
    ops_.UpdateExpertBias(*compute_, of_layer, config_.model.moe->bias_update_rate,
                          biases[layer].values);
  }
}

void RankTrainerImpl::DescribeExperts(StepReport::ExpertLoad& load) const {
  const auto num_experts = static_cast<std::size_t>(config_.model.moe->num_experts);
  for (std::size_t first = 0; first < host_counts_.size(); first += num_experts) {
    const std::span layer = std::span(host_counts_).subspan(first, num_experts);
    const auto all = std::accumulate(layer.begin(), layer.end(), std::int64_t{0});
    if (all == 0) continue;
    const double mean = static_cast<double>(all) / static_cast<double>(num_experts);
    load.most = std::max(load.most, static_cast<double>(*std::ranges::max_element(layer)) / mean);
    load.least = std::min(load.least, static_cast<double>(*std::ranges::min_element(layer)) / mean);
  }
}

Result<std::uint64_t> RankTrainerImpl::PeakBytes() {
  std::uint64_t mine = 0;  // a step keeps what it allocates, so all uses peak at once
  for (int use = 0; use < kNumMemoryUses; ++use) {
    mine += device_.usage(static_cast<MemoryUse>(use)).peak_bytes;
  }
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world_.size()));
  CKPT_RETURN_IF_ERROR(
      world_.Exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
  return *std::ranges::max_element(all);
}

double RankTrainerImpl::ClipFactor(double norm) const {
  return config_.clip_grad == 0 ? 1 : std::min(1.0, config_.clip_grad / (norm + 1e-6));
}

Result<StepReport> RankTrainerImpl::ComputeGradients(std::span<const HostMicroBatch> batches) {
  CKPT_CHECK(!batches.empty());
  CKPT_RETURN_IF_ERROR(Reserve(batches));

  ClearExpertCounts();
  store_->BeginStep(static_cast<int>(batches.size()));
  for (std::size_t m = 0; m < batches.size(); ++m) {
    const std::int64_t tokens = batches[m].batch * batches[m].seq;
    const auto counted = static_cast<double>(CountLabels(batches[m]));
    // The gradient of a micro-batch is that of its mean loss, or of its sum: the same numbers on
    // every mesh. One factor at the end completes the average.
    const LossScales scales = {
        .token = config_.per_token_loss ? 1 : (counted > 0 ? 1 / counted : 0),
        .aux = config_.per_token_loss ? counted : 1};
    ops_.Fill(*compute_, AuxLossOf(m), 0);
    store_->BeginMicroBatch();
    CKPT_RETURN_IF_ERROR(model_->ForwardBackward(*store_, Upload(batches[m]), scales,
                                                 LossesOf(m, tokens), AuxLossOf(m)));
  }
  StepReport report;
  report.step = optimizer_->steps() + 1;
  CKPT_RETURN_IF_ERROR(SumLossesOverRanks(batches, report));
  const double num_batches = static_cast<double>(batches.size()) * world_.size();
  const double divisor =
      config_.per_token_loss ? std::max(1.0, static_cast<double>(report.tokens)) : num_batches;
  store_->FinishGradients();
  factors_ = {.scale = 1 / divisor};
  CKPT_ASSIGN_OR_RETURN(report.grad_norm, grad_norm_->Compute(*compute_, factors_.scale));
  return report;
}

Result<StepReport> RankTrainerImpl::Step(std::span<const HostMicroBatch> batches) {
  CKPT_ASSIGN_OR_RETURN(StepReport report, ComputeGradients(batches));
  report.lr = LearningRate(config_.schedule, report.step);
  factors_.clip = ClipFactor(report.grad_norm);
  SumExpertCounts();
  UpdateExpertBias();
  optimizer_->Step(*compute_, report.lr, factors_);
  store_->WeightsChanged();
  CKPT_RETURN_IF_ERROR(compute_->Synchronize());
  if (report.experts) DescribeExperts(*report.experts);
  CKPT_ASSIGN_OR_RETURN(report.peak_bytes, PeakBytes());
  return report;
}

Result<Evaluation> RankTrainerImpl::Evaluate(std::span<const HostMicroBatch> batches) {
  CKPT_CHECK(!batches.empty());
  CKPT_RETURN_IF_ERROR(Reserve(batches));
  for (std::size_t m = 0; m < batches.size(); ++m) {
    const std::int64_t tokens = batches[m].batch * batches[m].seq;
    ops_.Fill(*compute_, AuxLossOf(m), 0);
    CKPT_RETURN_IF_ERROR(model_->Forward(*store_, Upload(batches[m]), LossesOf(m, tokens), {}));
  }
  StepReport report;
  CKPT_RETURN_IF_ERROR(SumLossesOverRanks(batches, report));
  return Evaluation{.loss = report.loss, .tokens = report.tokens};
}

Result<std::vector<float>> RankTrainerImpl::Logits(const HostMicroBatch& batch) {
  const std::int64_t tokens = batch.batch * batch.seq;
  const std::int64_t vocab = config_.model.padded_vocab_size;
  CKPT_RETURN_IF_ERROR(Reserve({&batch, 1}));
  const auto elems = static_cast<std::uint64_t>(tokens * vocab);
  CKPT_ASSIGN_OR_RETURN(
      const Buffer logits_memory,
      device_.Allocate(elems * ElementBytes(config_.precision.compute), MemoryUse::kOther));
  const Tensor logits(logits_memory.data(), config_.precision.compute, {tokens, vocab});
  CKPT_RETURN_IF_ERROR(model_->Forward(*store_, Upload(batch), LossesOf(0, tokens), logits));
  device_.CopyToHost(*compute_, routing_, host_routing_.data());
  CKPT_ASSIGN_OR_RETURN(std::vector<float> values, ReadFloats(logits, {}));
  if (host_routing_[1] > 0) return RowsDoNotFit();
  return values;
}

Result<std::vector<float>> RankTrainerImpl::ReadGradient(const MainArrays& main) {
  CKPT_CHECK(main.gradient);
  return ReadFloats(main.gradient, factors_);
}

Result<std::vector<float>> RankTrainerImpl::ReadFloats(const Tensor& tensor,
                                                       const GradientFactors& factors) {
  std::vector<float> values(static_cast<std::size_t>(tensor.num_elems()));
  CKPT_ASSIGN_OR_RETURN(const Buffer memory,
                        device_.Allocate(values.size() * sizeof(float), MemoryUse::kOther));
  const Tensor floats(memory.data(), DType::kFloat32, {tensor.num_elems()});
  ops_.Cast(*compute_, tensor, floats);
  for (const double factor : {factors.scale, factors.clip}) {
    if (factor != 1) ops_.Scale(*compute_, floats, factor);
  }
  device_.CopyToHost(*compute_, floats, values.data());
  CKPT_RETURN_IF_ERROR(compute_->Synchronize());
  return values;
}

}  // namespace

Result<std::unique_ptr<RankTrainer>> RankTrainer::Create(const TrainConfig& config,
                                                         HostGroup& world,
                                                         const TrainerRuntime& runtime) {
  auto trainer = std::make_unique<RankTrainerImpl>(config, world, runtime);
  CKPT_RETURN_IF_ERROR(trainer->Build());
  return std::unique_ptr<RankTrainer>(std::move(trainer));
}

}  // namespace ckpt::trainer
