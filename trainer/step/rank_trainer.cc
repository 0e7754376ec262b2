#include "trainer/step/rank_trainer.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "trainer/params/mesh_comms.h"
#include "trainer/random/philox.h"
#include "trainer/rehearsal/left_out_collectives.h"
#include "trainer/step/internal/grad_norm.h"
#include "trainer/step/internal/read_outcome.h"
#include "trainer/step/rehearse_step.h"
#include "trainer/step/trained_units.h"

namespace ckpt::trainer {
namespace {

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
        host_threads_(runtime.host_threads),
        assigned_experts_(runtime.assigned_experts),
        topology_(config.mesh, world.rank()),
        compute_(device_.MakeQueue("compute")),
        copy_(device_.MakeQueue("copy")) {}
  // Enqueued work may use any member, and the other ranks may still read this rank's memory.
  ~RankTrainerImpl() override {
    (void)copy_->Synchronize();
    (void)(store_ != nullptr ? store_->Synchronize() : compute_->Synchronize());
    comms_.Leave();
  }
  RankTrainerImpl(const RankTrainerImpl&) = delete;
  RankTrainerImpl& operator=(const RankTrainerImpl&) = delete;

  Status Build();

  Status InitializeWeights() override;
  Status SetWeights(const FillRows& fill) override { return FillWeights(fill, 1); }
  Status DrawWeights(const FillRows& fill) override { return FillWeights(fill, host_threads_); }
  Status SetMoment(int moment, const FillRows& fill) override;
  Status ReadWeights(const PlaceRows& place) override;
  Status ReadMoment(int moment, const PlaceRows& place) override;
  Status AwaitReads() override { return copy_->Await(reads_); }
  Status Enqueue(std::span<const HostMicroBatch> batches, const Vote& asks_to_stop) override;
  Result<StepReport> Collect() override;
  [[nodiscard]] int num_in_flight() const override { return static_cast<int>(in_flight_.size()); }
  [[nodiscard]] int max_in_flight() const override {
    return device_.is_asynchronous() ? StepBuffers::kSlots : 1;
  }
  Result<StepReport> ComputeGradients(std::span<const HostMicroBatch> batches) override;
  Result<std::vector<float>> ReadGradient(const MainArrays& main) override;
  Result<Evaluation> Evaluate(std::span<const HostMicroBatch> batches) override;
  Result<std::vector<float>> Logits(const HostMicroBatch& batch) override;
  void LeaveOutTransfers() override;

  [[nodiscard]] std::span<const double> micro_batch_losses() const override {
    return micro_batch_losses_;
  }
  ParamStore& params() override { return *store_; }
  Device& device() override { return device_; }
  Optimizer& optimizer() override { return *optimizer_; }
  Model& model() override { return *model_; }
  [[nodiscard]] const TrainConfig& config() const override { return config_; }

 private:
  Status FillWeights(const FillRows& fill, int threads);

  // On the device; null if the router chooses. Errors: kSystem.
  Result<Tensor> PutAssignedExperts();

  // A step whose outcome is not known yet.
  struct InFlight {
    int slot = 0;
    std::int64_t number = 0;
    double lr = 0;
    Event done;
    bool trains = false;         // updates weights
    std::int64_t told_step = 0;  // whose phases the ranks told each other; 0: none
  };

  [[nodiscard]] StepRule RuleOf(std::span<const HostMicroBatch> batches) const;
  // Makes room for micro-batches that are more or larger than the configuration says.
  Status Reserve(std::span<const HostMicroBatch> batches);
  // Begins a step in a free slot.
  InFlight Begin(std::span<const HostMicroBatch> batches);
  // Enqueues everything of a step that comes before the update, which reads step_->update().
  Status EnqueueGradients(std::span<const HostMicroBatch> batches, const InFlight& step,
                          const Vote& asks_to_stop, const Tensor& has_failed);
  // Adds a micro-batch's losses to the sums.
  void AddLosses(std::size_t micro_batch, std::span<const HostMicroBatch> batches);
  // Sums over the ranks what a step reports, and decides about its update.
  void Decide(const StepRule& rule, const Tensor& has_failed);
  void EndStep(InFlight step, const Tensor& expert_counts);
  // After a failed step: no step is in flight and the next one may succeed.
  Status Recover(const InFlight& failed);
  void SumExpertCounts();
  void UpdateExpertBias();
  [[nodiscard]] std::uint64_t PeakBytes() const;
  // Into `logits`, and from there to the host. After an error, the queue may still use both.
  Result<std::vector<float>> ComputeLogits(const HostMicroBatch& batch, const Tensor& logits,
                                           std::int64_t& overflows);
  // Casts a tensor to float32 and copies it to the host. Blocks.
  Result<std::vector<float>> ReadFloats(const Tensor& tensor);

  const TrainConfig config_;
  HostGroup& world_;
  Device& device_;
  Ops& ops_;
  const int host_threads_;
  const std::span<const std::int32_t> assigned_experts_;  // valid in Build
  const Topology topology_;
  MeshComms comms_;
  std::unique_ptr<Queue> compute_;
  std::unique_ptr<Queue> copy_;  // to the host, of the state
  Event reads_;                  // everything that was read so far is copied
  Buffer assigned_memory_;
  std::unique_ptr<Model> model_;
  std::vector<UnitSpec> units_;
  std::unique_ptr<ParamStore> store_;
  std::optional<Optimizer> optimizer_;
  std::optional<GradNorm> grad_norm_;
  std::optional<StepBuffers> step_;
  std::optional<PhaseClock> clock_;  // of the compute queue
  std::deque<InFlight> in_flight_;
  int next_slot_ = 0;
  std::vector<double> micro_batch_losses_;
  StepOutcome collected_;    // of the step that was collected last
  bool is_clipped_ = false;  // whether that step clipped its gradients
  struct {
    std::int64_t number = 0;  // of the step; 0: none
    std::array<std::int64_t, kNumStepPhases> ns{};
  } phases_;  // of this rank, in the training step that was collected last
};

Status RankTrainerImpl::Build() {
  CKPT_RETURN_IF_ERROR(ops_.CheckSupports(
      {.compute = config_.precision.compute, .gradients = config_.precision.main_grads}));
  // Where ranks divide gradients, backward writes them as they are sent.
  if (config_.mesh.sharding >= Sharding::kOptimGrads &&
      config_.mesh.world_size > config_.mesh.num_instances) {
    CKPT_RETURN_IF_ERROR(ops_.CheckSupports(
        {.compute = config_.precision.compute, .gradients = config_.precision.grad_comm}));
  }
  CKPT_ASSIGN_OR_RETURN(comms_, SplitWorld(world_, topology_, device_));
  if (config_.dispatcher == Dispatcher::kFlex && comms_.expert->size() > 1 &&
      comms_.expert->host().abort_ends_processes()) {
    return Error(ErrorKind::kUnsupported,
                 "moe_token_dispatcher_type=flex needs ranks that read each other's memory")
        .Expected("ranks that are threads of one process")
        .Actual("ranks that are processes")
        .Hint("set moe_token_dispatcher_type=alltoall, or start one process with --ranks");
  }
  CKPT_ASSIGN_OR_RETURN(step_, StepBuffers::Create(ShapeOf(config_), device_, *compute_));
  clock_.emplace(ops_, *compute_, step_->phase_times());
  CKPT_ASSIGN_OR_RETURN(const RehearsedBytes rehearsed, RehearseStep(config_, world_.rank()));
  CKPT_ASSIGN_OR_RETURN(const Tensor assigned_experts, PutAssignedExperts());
  const bool is_canonical = config_.reduction == Reduction::kCanonical;
  const bool is_asynchronous = device_.is_asynchronous();
  const ModelRuntime runtime = {
      .ops = &ops_,
      .device = &device_,
      .queue = compute_.get(),
      .clock = &*clock_,
      .compute = config_.precision.compute,
      .recompute = config_.recompute,
      .prefetch_depth = config_.slots.prefetch_depth,
      .loss_chunk_tokens = config_.loss_chunk_tokens,
      .moe = {.expert_group = comms_.expert.get(),
              .dispatcher = config_.dispatcher,
              .rank_capacity_factor = config_.rank_capacity_factor,
              .separate_sources = is_canonical,
              .assigned_experts = assigned_experts,
              .counts = {.dropped = step_->dropped(), .overflows = step_->overflows()}},
      .activation_bytes = rehearsed.activations,
      .seq = config_.seq_length};
  CKPT_ASSIGN_OR_RETURN(model_, Model::Create(config_.model, runtime));
  units_ = ListTrainedUnits(config_, topology_.expert());
  ShardPlan plan = PlanShards(units_, topology_, config_.plan_options());
  CKPT_RETURN_IF_ERROR(CheckUnshardedBytes(config_, plan));
  CKPT_ASSIGN_OR_RETURN(
      store_, ParamStore::Create(units_, std::move(plan), comms_, ops_, device_, *compute_,
                                 {.poison_released = config_.poison_released,
                                  .prefetches = config_.overlaps_gathers(is_asynchronous),
                                  .overlaps_reduces = config_.overlaps_reduces(is_asynchronous),
                                  .clock = &*clock_}));
  CKPT_ASSIGN_OR_RETURN(optimizer_, Optimizer::Create(config_.optimizer, *store_, ops_, device_));
  CKPT_ASSIGN_OR_RETURN(grad_norm_, GradNorm::Create(*store_, ops_, device_));
  return OkStatus();
}

Result<Tensor> RankTrainerImpl::PutAssignedExperts() {
  if (assigned_experts_.empty()) return Tensor();
  CKPT_CHECK(config_.model.moe.has_value());
  const std::int64_t topk = config_.model.moe->router.topk;
  const auto elems = static_cast<std::int64_t>(assigned_experts_.size());
  CKPT_CHECK(elems % topk == 0);
  CKPT_ASSIGN_OR_RETURN(assigned_memory_,
                        device_.Allocate(assigned_experts_.size_bytes(), MemoryUse::kOther));
  const Tensor experts(assigned_memory_.data(), DType::kInt32, {elems / topk, topk});
  device_.CopyFromHost(*compute_, assigned_experts_.data(), experts);
  CKPT_RETURN_IF_ERROR(compute_->Synchronize());
  return experts;
}

// The sums of a step and the rows of experts go on: without them the model would compute other
// amounts.
void RankTrainerImpl::LeaveOutTransfers() {
  for (std::unique_ptr<Collectives>* moves :
       {&comms_.gather_shard, &comms_.gather_expert_shard, &comms_.gather_outer,
        &comms_.reduce_shard, &comms_.reduce_expert_shard, &comms_.reduce_outer}) {
    *moves = LeaveOut(std::move(*moves));
  }
}

Status RankTrainerImpl::InitializeWeights() {
  return DrawWeights([&](const ParamSpec& spec, std::int64_t row_begin, std::int64_t rows,
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

Status RankTrainerImpl::FillWeights(const FillRows& fill, int threads) {
  compute_->Wait(reads_);
  CKPT_RETURN_IF_ERROR(store_->SetWeights(fill, threads));
  for (const ReplicatedBuffer& buffer : model_->buffers()) {
    const ParamSpec spec = SpecOf(buffer);
    const ParamPiece whole = WholePiece(spec);
    CKPT_RETURN_IF_ERROR(store_->piece_rows().Fill({&whole, 1}, buffer.values, fill, *compute_));
  }
  return OkStatus();
}

Status RankTrainerImpl::SetMoment(int moment, const FillRows& fill) {
  compute_->Wait(reads_);
  return optimizer_->SetMoment(moment, fill, *compute_);
}

Status RankTrainerImpl::ReadWeights(const PlaceRows& place) {
  copy_->Wait(compute_->Record());
  CKPT_RETURN_IF_ERROR(store_->ReadWeights(place, *copy_));
  for (const ReplicatedBuffer& buffer : model_->buffers()) {
    const ParamSpec spec = SpecOf(buffer);
    const ParamPiece whole = WholePiece(spec);
    CKPT_RETURN_IF_ERROR(store_->piece_rows().Read({&whole, 1}, buffer.values, place, *copy_));
  }
  reads_ = copy_->Record();
  return OkStatus();
}

Status RankTrainerImpl::ReadMoment(int moment, const PlaceRows& place) {
  copy_->Wait(compute_->Record());
  CKPT_RETURN_IF_ERROR(optimizer_->ReadMoment(moment, place, *copy_));
  reads_ = copy_->Record();
  return OkStatus();
}

Status RankTrainerImpl::Reserve(std::span<const HostMicroBatch> batches) {
  if (step_->Holds(batches)) return OkStatus();
  CKPT_RETURN_IF_ERROR(compute_->Synchronize());
  return step_->Widen(batches);
}

StepRule RankTrainerImpl::RuleOf(std::span<const HostMicroBatch> batches) const {
  return {.clip_grad = config_.clip_grad,
          .per_token_loss = config_.per_token_loss,
          .num_batches = static_cast<std::int64_t>(batches.size()) * world_.size()};
}

RankTrainerImpl::InFlight RankTrainerImpl::Begin(std::span<const HostMicroBatch> batches) {
  InFlight step = {.slot = next_slot_, .number = optimizer_->steps() + 1, .lr = 0, .done = {}};
  next_slot_ = (next_slot_ + 1) % StepBuffers::kSlots;
  constexpr std::int64_t kFirst = offsetof(PhaseTimes, ns) / sizeof(std::int64_t);
  ops_.Fill(*compute_, step_->phase_times().Rows(kFirst, kNumStepPhases), 0);
  clock_->Enter(StepPhase::kForward);
  step.lr = LearningRate(config_.schedule, step.number);
  UpdateScalars update = optimizer_->NextScalars(step.lr);
  update.scale = 1 / static_cast<double>(RuleOf(batches).num_batches);
  step_->Upload(step.slot, batches, update);
  return step;
}

void RankTrainerImpl::AddLosses(std::size_t micro_batch, std::span<const HostMicroBatch> batches) {
  const HostMicroBatch& batch = batches[micro_batch];
  ops_.AddLosses(*compute_, RuleOf(batches), batch.CountLabels(), step_->losses(batch.num_tokens()),
                 step_->aux_loss(), step_->sums(), step_->mean(micro_batch));
}

void RankTrainerImpl::Decide(const StepRule& rule, const Tensor& has_failed) {
  // With a loss per token, the gradient's scale needed the tokens before anything else.
  const Tensor shared = step_->shared_sums();
  const std::int64_t first = rule.per_token_loss ? 1 : 0;
  comms_.world->AllReduce(*compute_, shared.Rows(first, shared.num_elems() - first),
                          ReduceOp::kSum);
  ops_.DecideStep(*compute_, rule, step_->sums(), has_failed, step_->update(), step_->outcome());
}

void RankTrainerImpl::EndStep(InFlight step, const Tensor& expert_counts) {
  clock_->Enter(StepPhase::kIdle);
  step_->Download(step.slot, expert_counts);
  step.done = compute_->Record();
  in_flight_.push_back(std::move(step));
}

Status RankTrainerImpl::EnqueueGradients(std::span<const HostMicroBatch> batches,
                                         const InFlight& step, const Vote& asks_to_stop,
                                         const Tensor& has_failed) {
  static_assert(offsetof(StepSums, tokens) == 0);
  const StepRule rule = RuleOf(batches);
  if (rule.per_token_loss) {
    comms_.world->AllReduce(*compute_, step_->sums().Rows(0, 1), ReduceOp::kSum);
    ops_.AverageOverTokens(*compute_, step_->sums(), step_->update());
  }
  const Tensor& counts = model_->expert_counts();
  if (counts) ops_.Fill(*compute_, counts, 0);
  store_->BeginStep(static_cast<int>(batches.size()));
  for (std::size_t m = 0; m < batches.size(); ++m) {
    const auto counted = static_cast<double>(batches[m].CountLabels());
    // The gradient of a micro-batch is that of its mean loss, or of its sum: the same numbers on
    // every mesh. One factor at the end completes the average.
    const LossScales scales = {
        .token = config_.per_token_loss ? 1 : (counted > 0 ? 1 / counted : 0),
        .aux = config_.per_token_loss ? counted : 1};
    ops_.Fill(*compute_, step_->aux_loss(), 0);
    store_->BeginMicroBatch();
    CKPT_RETURN_IF_ERROR(model_->ForwardBackward(*store_, step_->micro_batch(m), scales,
                                                 step_->losses(batches[m].num_tokens()),
                                                 step_->aux_loss()));
    AddLosses(m, batches);
  }
  // The last reduction ends while the gradients before it are squared.
  const int last_unit = store_->FinishEarlyGradients();
  clock_->Enter(StepPhase::kUpdate);
  grad_norm_->SquareEarly(*compute_, last_unit);
  store_->FinishGradients();
  grad_norm_->Add(*compute_, step_->update(), step_->sums(), step_->outcome());
  step_->UploadLate(step.slot, {.votes_to_stop = asks_to_stop && asks_to_stop(),
                                .rank = world_.rank(),
                                .peak_bytes = PeakBytes(),
                                .phase_ns = phases_.ns});
  Decide(rule, has_failed);
  return OkStatus();
}

Status RankTrainerImpl::Enqueue(std::span<const HostMicroBatch> batches, const Vote& asks_to_stop) {
  CKPT_CHECK(!batches.empty() && num_in_flight() < max_in_flight());
  CKPT_RETURN_IF_ERROR(Reserve(batches));
  InFlight step = Begin(batches);
  CKPT_RETURN_IF_ERROR(EnqueueGradients(batches, step, asks_to_stop, step_->has_failed()));
  SumExpertCounts();
  // The state may be on its way to the host until now.
  compute_->Wait(reads_);
  UpdateExpertBias();
  optimizer_->Step(*compute_, step_->update());
  step.trains = true;
  step.told_step = phases_.number;
  EndStep(std::move(step), model_->expert_counts());
  return OkStatus();
}

Result<StepReport> RankTrainerImpl::Collect() {
  CKPT_CHECK(!in_flight_.empty());
  const InFlight step = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (Status status = compute_->Await(step.done); !status.ok()) {
    in_flight_.clear();
    return status;
  }
  const StepBuffers::Results results = step_->Read(step.slot);
  collected_ = results.outcome;
  is_clipped_ = true;
  micro_batch_losses_ = results.means;
  if (Status failure = CheckOutcome(results, config_, world_.rank(), *grad_norm_); !failure.ok()) {
    CKPT_RETURN_IF_ERROR(Recover(step));
    return failure;
  }
  StepReport report = ReportOf(results, config_);
  report.step = step.number;
  report.lr = step.lr;
  if (step.told_step > 0 && world_.size() > 1) {
    report.rank_phases = SpreadOverRanks(step.told_step, results.rank_phases);
  }
  if (step.trains) {
    phases_.number = step.number;
    std::ranges::copy(results.phases.ns, phases_.ns.begin());
  }
  return report;
}

Status RankTrainerImpl::Recover(const InFlight& failed) {
  in_flight_.clear();
  optimizer_->set_steps(failed.number - 1);
  ops_.Fill(*compute_, step_->has_failed(), 0);
  return compute_->Synchronize();
}

void RankTrainerImpl::SumExpertCounts() {
  const Tensor& counts = model_->expert_counts();
  if (counts) comms_.world->AllReduce(*compute_, counts, ReduceOp::kSum);
}

void RankTrainerImpl::UpdateExpertBias() {
  const Tensor& counts = model_->expert_counts();
  const std::vector<ReplicatedBuffer>& biases = model_->buffers();
  for (std::size_t layer = 0; layer < biases.size(); ++layer) {
    const Tensor of_layer =
        counts.Rows(static_cast<std::int64_t>(layer), 1).Reshape({counts.dim(1)});
    ops_.UpdateExpertBias(*compute_, of_layer, config_.model.moe->bias_update_rate, step_->update(),
                          biases[layer].values);
  }
}

std::uint64_t RankTrainerImpl::PeakBytes() const {
  std::uint64_t bytes = 0;  // a step keeps what it allocates, so all uses peak at once
  for (int use = 0; use < kNumMemoryUses; ++use) {
    bytes += device_.usage(static_cast<MemoryUse>(use)).peak_bytes;
  }
  return bytes;
}

Result<StepReport> RankTrainerImpl::ComputeGradients(std::span<const HostMicroBatch> batches) {
  CKPT_CHECK(!batches.empty() && in_flight_.empty());
  CKPT_RETURN_IF_ERROR(Reserve(batches));
  InFlight step = Begin(batches);
  CKPT_RETURN_IF_ERROR(EnqueueGradients(batches, step, {}, {}));
  EndStep(std::move(step), {});
  CKPT_ASSIGN_OR_RETURN(StepReport report, Collect());
  is_clipped_ = false;
  report.lr = 0;
  return report;
}

Result<Evaluation> RankTrainerImpl::Evaluate(std::span<const HostMicroBatch> batches) {
  CKPT_CHECK(!batches.empty() && in_flight_.empty());
  CKPT_RETURN_IF_ERROR(Reserve(batches));
  InFlight step = Begin(batches);
  StepRule rule = RuleOf(batches);
  ops_.Fill(*compute_, step_->aux_loss(), 0);
  for (std::size_t m = 0; m < batches.size(); ++m) {
    CKPT_RETURN_IF_ERROR(model_->Forward(*store_, step_->micro_batch(m),
                                         step_->losses(batches[m].num_tokens()), {}));
    AddLosses(m, batches);
  }
  if (rule.per_token_loss) {
    comms_.world->AllReduce(*compute_, step_->sums().Rows(0, 1), ReduceOp::kSum);
  }
  Decide(rule, {});
  EndStep(std::move(step), {});
  CKPT_ASSIGN_OR_RETURN(const StepReport report, Collect());
  return Evaluation{.loss = report.loss, .tokens = report.tokens};
}

Result<std::vector<float>> RankTrainerImpl::Logits(const HostMicroBatch& batch) {
  CKPT_CHECK(in_flight_.empty());
  const std::int64_t tokens = batch.num_tokens();
  const std::int64_t vocab = config_.model.padded_vocab_size;
  CKPT_RETURN_IF_ERROR(Reserve({&batch, 1}));
  const auto elems = static_cast<std::uint64_t>(tokens * vocab);
  CKPT_ASSIGN_OR_RETURN(
      const Buffer logits_memory,
      device_.Allocate(elems * ElementBytes(config_.precision.compute), MemoryUse::kOther));
  const Tensor logits(logits_memory.data(), config_.precision.compute, {tokens, vocab});
  std::int64_t overflows = 0;
  Result<std::vector<float>> values = ComputeLogits(batch, logits, overflows);
  // After a failure the queue may still write here.
  if (!values.ok()) (void)compute_->Synchronize();
  if (values.ok() && overflows > 0) return RowsDoNotFit(config_);
  return values;
}

Result<std::vector<float>> RankTrainerImpl::ComputeLogits(const HostMicroBatch& batch,
                                                          const Tensor& logits,
                                                          std::int64_t& overflows) {
  Begin({&batch, 1});
  CKPT_RETURN_IF_ERROR(
      model_->Forward(*store_, step_->micro_batch(0), step_->losses(batch.num_tokens()), logits));
  clock_->Enter(StepPhase::kIdle);
  device_.CopyToHost(*compute_, step_->overflows(), &overflows);
  return ReadFloats(logits);
}

Result<std::vector<float>> RankTrainerImpl::ReadGradient(const MainArrays& main) {
  CKPT_CHECK(main.gradient && in_flight_.empty());
  const auto& [first, second] = main.gradient;
  CKPT_ASSIGN_OR_RETURN(std::vector<float> values, ReadFloats(first));
  if (second) {
    CKPT_ASSIGN_OR_RETURN(const std::vector<float> others, ReadFloats(second));
    std::ranges::transform(values, others, values.begin(), std::plus());
  }
  const auto scale = static_cast<float>(collected_.scale);
  const auto clip = static_cast<float>(is_clipped_ ? collected_.clip : 1);
  for (float& value : values) value = value * scale * clip;
  return values;
}

Result<std::vector<float>> RankTrainerImpl::ReadFloats(const Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.num_elems()));
  CKPT_ASSIGN_OR_RETURN(const Buffer memory,
                        device_.Allocate(values.size() * sizeof(float), MemoryUse::kOther));
  const Tensor floats(memory.data(), DType::kFloat32, {tensor.num_elems()});
  ops_.Cast(*compute_, tensor, floats);
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
