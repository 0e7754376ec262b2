#include "trainer/step/step_buffers.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "core/base/check.h"
#include "trainer/model/block.h"
#include "trainer/step/internal/grad_norm.h"

namespace ckpt::trainer {
namespace {

constexpr std::uint64_t kWordBytes = sizeof(std::int64_t);

// Tokens, labels, positions, cu_seqlens with one entry more, lengths.
std::int64_t InputElems(const StepShape& shape) {
  return shape.micro_batches * (5 * shape.tokens + 1);
}

// The arrays of a micro-batch, in their order on the device.
std::array<const std::vector<std::int32_t>*, 5> ArraysOf(const HostMicroBatch& batch) {
  return {&batch.tokens, &batch.labels, &batch.positions, &batch.cu_seqlens, &batch.lengths};
}

std::int64_t CountPadding(const HostMicroBatch& batch) {
  return std::ranges::count_if(batch.positions, [](std::int32_t position) { return position < 0; });
}

// Divides memory into arrays, each aligned to a word.
class Divider {
 public:
  // Null memory only counts.
  explicit Divider(std::byte* memory) : memory_(memory) {}

  Tensor Take(DType dtype, std::int64_t elems) {
    const Tensor tensor(memory_ == nullptr ? nullptr : memory_ + taken_bytes_, dtype, {elems});
    taken_bytes_ += (tensor.size_bytes() + kWordBytes - 1) / kWordBytes * kWordBytes;
    return tensor;
  }
  [[nodiscard]] std::uint64_t taken_bytes() const { return taken_bytes_; }

 private:
  std::byte* const memory_;
  std::uint64_t taken_bytes_ = 0;
};

struct Scalars {
  Tensor update, sums, rank_phases, outcome, phase_times, has_failed, aux_loss;
  std::uint64_t size_bytes = 0;
};

Scalars DivideScalars(const StepShape& shape, std::byte* memory) {
  Divider divider(memory);
  Scalars scalars = {
      .update = divider.Take(DType::kInt64, kWordsOf<UpdateScalars>),
      .sums = divider.Take(DType::kInt64, kWordsOf<StepSums> + shape.ranks),
      .rank_phases =
          divider.Take(DType::kInt64, shape.ranks * static_cast<std::int64_t>(kNumStepPhases)),
      .outcome = divider.Take(DType::kInt64, kWordsOf<StepOutcome>),
      .phase_times = divider.Take(DType::kInt64, kWordsOf<PhaseTimes>),
      .has_failed = divider.Take(DType::kInt64, 1),
      .aux_loss = divider.Take(shape.statistics, 1),
  };
  scalars.size_bytes = divider.taken_bytes();
  return scalars;
}

struct Arrays {
  Tensor inputs, means, losses;
  std::uint64_t size_bytes = 0;
};

Arrays DivideArrays(const StepShape& shape, std::byte* memory) {
  Divider divider(memory);
  Arrays arrays = {
      .inputs = divider.Take(DType::kInt32, InputElems(shape)),
      .means = divider.Take(DType::kFloat64, shape.micro_batches),
      .losses = divider.Take(shape.statistics, shape.tokens),
  };
  arrays.size_bytes = divider.taken_bytes();
  return arrays;
}

// The tensor from the begin of `first` to the end of `last`, in bytes.
Tensor Span(const Tensor& first, const Tensor& last) {
  return {first.data,
          DType::kUint8,
          {static_cast<std::int64_t>(last.bytes() + last.size_bytes() - first.bytes())}};
}

// A field of the sums.
Tensor FieldOf(const Tensor& sums, std::size_t offset_bytes) {
  return sums.Rows(static_cast<std::int64_t>(offset_bytes / kWordBytes), 1);
}

// The end of what the ranks share: votes, peaks, times of phases.
Tensor LateOf(const Tensor& shared_sums) {
  static_assert(offsetof(StepSums, stop_votes) + kWordBytes == sizeof(StepSums));
  constexpr std::int64_t kFirst = offsetof(StepSums, stop_votes) / kWordBytes;
  return shared_sums.Rows(kFirst, shared_sums.num_elems() - kFirst);
}

StepShape Widened(StepShape shape, std::span<const HostMicroBatch> batches) {
  shape.micro_batches = std::max(shape.micro_batches, static_cast<std::int64_t>(batches.size()));
  for (const HostMicroBatch& batch : batches) {
    shape.tokens = std::max(shape.tokens, batch.num_tokens());
  }
  return shape;
}

}  // namespace

std::int64_t HostMicroBatch::CountLabels() const {
  return std::ranges::count_if(labels, [](std::int32_t label) { return label >= 0; });
}

StepShape ShapeOf(const TrainConfig& config) {
  StepShape shape = {.micro_batches = config.num_micro_batches(),
                     .tokens = config.micro_batch_size * config.seq_length,
                     .ranks = config.mesh.world_size,
                     .statistics = StatisticsDtype(config.precision.compute)};
  if (config.model.moe) {
    shape.expert_counts =
        std::ranges::count(config.model.is_moe_layer, true) * config.model.moe->num_experts;
  }
  return shape;
}

std::uint64_t StepBytes(const TrainConfig& config, std::span<const UnitSpec> units,
                        const ShardPlan& plan) {
  const StepShape shape = ShapeOf(config);
  return NormBytes(CountNormRows(units, plan)) + DivideScalars(shape, nullptr).size_bytes +
         DivideArrays(shape, nullptr).size_bytes;
}

Result<StepBuffers> StepBuffers::Create(const StepShape& shape, Device& device, Queue& queue) {
  StepBuffers buffers(shape, device, queue);
  CKPT_RETURN_IF_ERROR(buffers.AllocateScalars());
  CKPT_RETURN_IF_ERROR(buffers.AllocateArrays());
  return buffers;
}

Status StepBuffers::AllocateScalars() {
  CKPT_ASSIGN_OR_RETURN(
      scalars_memory_,
      device_->Allocate(DivideScalars(shape_, nullptr).size_bytes, MemoryUse::kOther));
  const Scalars scalars = DivideScalars(shape_, scalars_memory_.data());
  update_ = scalars.update;
  sums_ = scalars.sums;
  rank_phases_ = scalars.rank_phases;
  outcome_ = scalars.outcome;
  phase_times_ = scalars.phase_times;
  has_failed_ = scalars.has_failed;
  aux_loss_ = scalars.aux_loss;
  for (Slot& slot : slots_) {
    CKPT_ASSIGN_OR_RETURN(slot.scalars_up,
                          device_->AllocatePinned(Span(update_, rank_phases_).size_bytes()));
    CKPT_ASSIGN_OR_RETURN(slot.late_up,
                          device_->AllocatePinned(LateOf(shared_sums()).size_bytes()));
    CKPT_ASSIGN_OR_RETURN(slot.outcome_down,
                          device_->AllocatePinned(Span(rank_phases_, phase_times_).size_bytes()));
    CKPT_ASSIGN_OR_RETURN(
        slot.counts_down,
        device_->AllocatePinned(static_cast<std::uint64_t>(shape_.expert_counts) * kWordBytes));
  }
  return OkStatus();
}

Status StepBuffers::AllocateArrays() {
  arrays_memory_ = Buffer();
  CKPT_ASSIGN_OR_RETURN(arrays_memory_, device_->Allocate(DivideArrays(shape_, nullptr).size_bytes,
                                                          MemoryUse::kOther));
  const Arrays arrays = DivideArrays(shape_, arrays_memory_.data());
  inputs_ = arrays.inputs;
  means_ = arrays.means;
  losses_ = arrays.losses;
  for (Slot& slot : slots_) {
    CKPT_ASSIGN_OR_RETURN(slot.inputs_up, device_->AllocatePinned(inputs_.size_bytes()));
    CKPT_ASSIGN_OR_RETURN(slot.means_down, device_->AllocatePinned(means_.size_bytes()));
  }
  return OkStatus();
}

Tensor StepBuffers::shared_sums() const {
  return {sums_.data, DType::kInt64, {sums_.num_elems() + rank_phases_.num_elems()}};
}
Tensor StepBuffers::dropped() const { return FieldOf(sums_, offsetof(StepSums, dropped)); }
Tensor StepBuffers::overflows() const { return FieldOf(sums_, offsetof(StepSums, overflows)); }

Status StepBuffers::Widen(std::span<const HostMicroBatch> batches) {
  shape_ = Widened(shape_, batches);
  return AllocateArrays();
}

bool StepBuffers::Holds(std::span<const HostMicroBatch> batches) const {
  const StepShape wanted = Widened(shape_, batches);
  return wanted.micro_batches == shape_.micro_batches && wanted.tokens == shape_.tokens;
}

void StepBuffers::Upload(int slot, std::span<const HostMicroBatch> batches,
                         const UpdateScalars& update) {
  CKPT_CHECK(Holds(batches));
  Slot& here = slots_[static_cast<std::size_t>(slot)];
  here.num_micro_batches = batches.size();
  StepSums sums;
  for (const HostMicroBatch& batch : batches) sums.tokens += batch.CountLabels();
  std::byte* const update_up = here.scalars_up.data();
  std::byte* const sums_up = update_up + update_.size_bytes();
  std::memcpy(update_up, &update, sizeof update);
  std::memcpy(sums_up, &sums, sizeof sums);
  std::memset(sums_up + sizeof sums, 0, shared_sums().size_bytes() - sizeof sums);
  device_->CopyFromHost(*queue_, update_up, Span(update_, rank_phases_));

  std::byte* const inputs_up = here.inputs_up.data();
  std::int64_t elems = 0;
  micro_batches_.clear();
  for (const HostMicroBatch& batch : batches) {
    const auto tokens = static_cast<std::size_t>(batch.num_tokens());
    CKPT_CHECK(batch.tokens.size() == tokens && batch.labels.size() == tokens);
    CKPT_CHECK(batch.positions.empty() || batch.positions.size() == tokens);
    CKPT_CHECK(batch.lengths.size() <= tokens);
    std::array<Tensor, 5> arrays;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const std::vector<std::int32_t>& values = *ArraysOf(batch)[i];
      if (values.empty()) continue;
      arrays[i] = inputs_.Rows(elems, static_cast<std::int64_t>(values.size()));
      std::memcpy(inputs_up + static_cast<std::size_t>(elems) * sizeof(std::int32_t), values.data(),
                  arrays[i].size_bytes());
      elems += arrays[i].num_elems();
    }
    micro_batches_.push_back(
        {.tokens = arrays[0],
         .labels = arrays[1],
         .batch = batch.batch,
         .seq = batch.seq,
         .layout = {.positions = arrays[2],
                    .examples = {.cu_seqlens = arrays[3], .lengths = arrays[4]},
                    .num_padding = CountPadding(batch)}});
  }
  device_->CopyFromHost(*queue_, inputs_up, inputs_.Rows(0, elems));
}

void StepBuffers::UploadLate(int slot, const LateScalars& late) {
  const Slot& here = slots_[static_cast<std::size_t>(slot)];
  const Tensor to = LateOf(shared_sums());
  std::vector<std::int64_t> words(static_cast<std::size_t>(to.num_elems()));
  const auto rank = static_cast<std::size_t>(late.rank);
  words[0] = late.votes_to_stop ? 1 : 0;
  words[1 + rank] = static_cast<std::int64_t>(late.peak_bytes);
  std::ranges::copy(late.phase_ns, words.end() - rank_phases_.num_elems() +
                                       static_cast<std::ptrdiff_t>(rank * kNumStepPhases));
  std::memcpy(here.late_up.data(), words.data(), to.size_bytes());
  device_->CopyFromHost(*queue_, here.late_up.data(), to);
}

void StepBuffers::Download(int slot, const Tensor& counts) {
  Slot& here = slots_[static_cast<std::size_t>(slot)];
  device_->CopyToHost(*queue_, Span(rank_phases_, phase_times_), here.outcome_down.data());
  device_->CopyToHost(*queue_, means_, here.means_down.data());
  here.num_counts = counts ? counts.num_elems() : 0;
  if (counts) device_->CopyToHost(*queue_, counts, here.counts_down.data());
}

StepBuffers::Results StepBuffers::Read(int slot) const {
  const Slot& here = slots_[static_cast<std::size_t>(slot)];
  Results results;
  const std::byte* const outcome = here.outcome_down.data() + rank_phases_.size_bytes();
  std::memcpy(&results.outcome, outcome, sizeof results.outcome);
  std::memcpy(&results.phases, outcome + outcome_.size_bytes(), sizeof results.phases);
  results.rank_phases = {reinterpret_cast<const std::int64_t*>(here.outcome_down.data()),
                         static_cast<std::size_t>(rank_phases_.num_elems())};
  results.means.resize(here.num_micro_batches);
  std::memcpy(results.means.data(), here.means_down.data(), results.means.size() * sizeof(double));
  results.expert_counts = {reinterpret_cast<const std::int64_t*>(here.counts_down.data()),
                           static_cast<std::size_t>(here.num_counts)};
  return results;
}

}  // namespace ckpt::trainer
