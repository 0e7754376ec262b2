#include "trainer/model/dispatch.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

Tensor Upload(BlockContext& context, const std::vector<std::int32_t>& values) {
  const Tensor to =
      context.arena.Allocate(DType::kInt32, {static_cast<std::int64_t>(values.size())});
  context.device.CopyFromHost(context.queue, values.data(), to);
  return to;
}

// Sends tokens to the ranks of their experts and back.
//
// A rank sorts its choices by expert. That also sorts them by destination, so each rank gets one
// contiguous share. The received rows are sorted by source, then by expert; one permutation sorts
// them by expert, then by source.
class AllToAllDispatch final : public Dispatch {
 public:
  AllToAllDispatch(const DispatchSpec& spec, Collectives& group)
      : spec_(spec), group_(group), num_held_(spec.num_experts / group.size()) {
    CKPT_CHECK(spec.num_experts % group.size() == 0);
    segments_ = spec.separates_sources ? group.size() : 1;
  }

  Status Route(BlockContext& context, const Tensor& experts, const Tensor& weights) override;

  void ToExperts(BlockContext& context, const Tensor& x, const Tensor& rows) override {
    const ArenaScope scope(context.arena);
    const Tensor sorted =
        is_alone() ? rows : context.arena.Allocate(x.dtype, {num_sent_, x.dim(1)});
    context.ops.Permute(context.queue, x, sent_rows_, sorted);
    Travel(context, sorted, rows);
  }

  void FromExperts(BlockContext& context, const Tensor& rows, const Tensor& y) override {
    const ArenaScope scope(context.arena);
    const Tensor sorted =
        is_alone() ? rows : context.arena.Allocate(y.dtype, {num_sent_, y.dim(1)});
    TravelBack(context, rows, sorted);
    context.ops.Unpermute(context.queue, sorted, sent_rows_, y);
  }

  void WeightsToExperts(BlockContext& context, const Tensor& weights,
                        const Tensor& row_weights) override {
    const ArenaScope scope(context.arena);
    const Tensor sorted =
        is_alone() ? row_weights : context.arena.Allocate(weights.dtype, {num_sent_});
    context.ops.PermuteWeights(context.queue, weights, sent_rows_, sorted);
    Travel(context, sorted, row_weights);
  }

  void WeightsFromExperts(BlockContext& context, const Tensor& row_weights,
                          const Tensor& weights) override {
    const ArenaScope scope(context.arena);
    const Tensor sorted =
        is_alone() ? row_weights : context.arena.Allocate(weights.dtype, {num_sent_});
    TravelBack(context, row_weights, sorted);
    context.ops.UnpermuteWeights(context.queue, sorted, sent_rows_, weights);
  }

 private:
  // In a group of one rank the sorted rows stay where they are.
  [[nodiscard]] bool is_alone() const { return group_.size() == 1; }

  void CountTraffic(const std::vector<std::int32_t>& counts);
  // Sends rows sorted here [num_sent, …] to their experts, which receive rows [R, …]; and the way
  // back.
  void Travel(BlockContext& context, const Tensor& sorted, const Tensor& rows);
  void TravelBack(BlockContext& context, const Tensor& rows, const Tensor& sorted);
  [[nodiscard]] static Tensor Like(BlockContext& context, const Tensor& rows) {
    return rows.ndim == 1 ? context.arena.Allocate(rows.dtype, {rows.dim(0)})
                          : context.arena.Allocate(rows.dtype, {rows.dim(0), rows.dim(1)});
  }

  const DispatchSpec spec_;
  Collectives& group_;
  const std::int64_t num_held_;

  std::int64_t num_sent_ = 0;
  // int32 [T, K]: the row of each choice among the rows sorted here; -1 if dropped.
  Tensor sent_rows_;
  // int32 [R]: where each row of the experts held here was received.
  Tensor arrival_;
  std::vector<std::int64_t> sent_to_;        // rows per rank
  std::vector<std::int64_t> received_from_;  // rows per rank
  std::vector<std::int32_t> host_offsets_;
  std::vector<std::int32_t> host_arrival_;
};

Status AllToAllDispatch::Route(BlockContext& context, const Tensor& experts,
                               const Tensor& weights) {
  sent_rows_ = context.arena.Allocate(DType::kInt32, {experts.dim(0), experts.dim(1)});
  const Tensor sent_offsets = context.arena.Allocate(DType::kInt32, {spec_.num_experts + 1});
  context.ops.SortByExpert(context.queue, spec_.drop, experts, weights, sent_rows_, sent_offsets);
  std::vector<std::int32_t> sent(static_cast<std::size_t>(spec_.num_experts + 1));
  context.device.CopyToHost(context.queue, sent_offsets, sent.data());
  // The number of choices that have a row. The offsets give it, unless experts' rows are padded.
  std::vector<std::int32_t> places;
  if (spec_.drop.pad) {
    places.resize(static_cast<std::size_t>(sent_rows_.num_elems()));
    context.device.CopyToHost(context.queue, sent_rows_, places.data());
  }
  CKPT_RETURN_IF_ERROR(context.queue.Synchronize());
  num_sent_ = sent.back();
  const bool drops = spec_.drop.capacity > 0;
  num_unplaced_ = spec_.drop.pad ? std::ranges::count(places, -1)
                  : drops        ? sent_rows_.num_elems() - num_sent_
                                 : 0;

  std::vector<std::int32_t> mine(static_cast<std::size_t>(spec_.num_experts));
  std::adjacent_difference(sent.begin() + 1, sent.end(), mine.begin());  // from offset 0
  std::vector<std::int32_t> counts(mine.size() * static_cast<std::size_t>(group_.size()));
  CKPT_RETURN_IF_ERROR(group_.host().Exchange(std::as_bytes(std::span(mine)),
                                              std::as_writable_bytes(std::span(counts))));
  CountTraffic(counts);
  offsets_ = Upload(context, host_offsets_);
  if (!is_alone()) arrival_ = Upload(context, host_arrival_);
  return OkStatus();
}

// counts[p·E + e]: rows that rank p sends to expert e.
void AllToAllDispatch::CountTraffic(const std::vector<std::int32_t>& counts) {
  const std::int64_t num_ranks = group_.size();
  const auto count = [&](std::int64_t source, std::int64_t expert) {
    return counts[static_cast<std::size_t>(source * spec_.num_experts + expert)];
  };
  sent_to_.assign(static_cast<std::size_t>(num_ranks), 0);
  received_from_.assign(static_cast<std::size_t>(num_ranks), 0);
  for (std::int64_t expert = 0; expert < spec_.num_experts; ++expert) {
    sent_to_[static_cast<std::size_t>(expert / num_held_)] += count(group_.rank(), expert);
  }
  const std::int64_t first = group_.rank() * num_held_;
  // Where the rows of each pair (source, held expert) are received.
  std::vector<std::int32_t> arrivals;
  std::int32_t arrived = 0;
  for (std::int64_t source = 0; source < num_ranks; ++source) {
    for (std::int64_t expert = first; expert < first + num_held_; ++expert) {
      arrivals.push_back(arrived);
      arrived += count(source, expert);
      received_from_[static_cast<std::size_t>(source)] += count(source, expert);
    }
  }
  host_offsets_.assign(1, 0);
  host_arrival_.clear();
  for (std::int64_t held = 0; held < num_held_; ++held) {
    for (std::int64_t source = 0; source < num_ranks; ++source) {
      const std::int32_t rows = count(source, first + held);
      const std::int32_t from = arrivals[static_cast<std::size_t>(source * num_held_ + held)];
      for (std::int32_t row = 0; row < rows; ++row) host_arrival_.push_back(from + row);
      const bool ends_segment = spec_.separates_sources || source == num_ranks - 1;
      if (ends_segment) host_offsets_.push_back(static_cast<std::int32_t>(host_arrival_.size()));
    }
  }
  num_rows_ = static_cast<std::int64_t>(host_arrival_.size());
}

void AllToAllDispatch::Travel(BlockContext& context, const Tensor& sorted, const Tensor& rows) {
  if (is_alone()) return;
  const Tensor received = Like(context, rows);
  group_.AllToAll(context.queue, sorted, sent_to_, received, received_from_);
  context.ops.GatherRows(context.queue, received, arrival_, rows);
}

void AllToAllDispatch::TravelBack(BlockContext& context, const Tensor& rows, const Tensor& sorted) {
  if (is_alone()) return;
  const Tensor received = Like(context, rows);
  context.ops.ScatterRows(context.queue, rows, arrival_, received);
  group_.AllToAll(context.queue, received, received_from_, sorted, sent_to_);
}

// Every rank gets all tokens of the group.
class AllGatherDispatch final : public Dispatch {
 public:
  AllGatherDispatch(const DispatchSpec& spec, Collectives& group)
      : spec_(spec), group_(group), num_held_(spec.num_experts / group.size()) {
    CKPT_CHECK(spec.num_experts % group.size() == 0 && !spec.separates_sources &&
               spec.drop.capacity == 0);
  }

  Status Route(BlockContext& context, const Tensor& experts, const Tensor& weights) override;

  void ToExperts(BlockContext& context, const Tensor& x, const Tensor& rows) override {
    const ArenaScope scope(context.arena);
    const Tensor all = context.arena.Allocate(x.dtype, {x.dim(0) * group_.size(), x.dim(1)});
    group_.AllGather(context.queue, x, all);
    context.ops.Permute(context.queue, all, rows_, rows);
  }

  void FromExperts(BlockContext& context, const Tensor& rows, const Tensor& y) override {
    const ArenaScope scope(context.arena);
    const Tensor partial = context.arena.Allocate(y.dtype, {y.dim(0) * group_.size(), y.dim(1)});
    context.ops.Unpermute(context.queue, rows, rows_, partial);
    group_.ReduceScatter(context.queue, partial, y);
  }

  void WeightsToExperts(BlockContext& context, const Tensor& weights,
                        const Tensor& row_weights) override {
    const ArenaScope scope(context.arena);
    const Tensor all = context.arena.Allocate(weights.dtype, {rows_.dim(0), rows_.dim(1)});
    group_.AllGather(context.queue, weights, all);
    context.ops.PermuteWeights(context.queue, all, rows_, row_weights);
  }

  void WeightsFromExperts(BlockContext& context, const Tensor& row_weights,
                          const Tensor& weights) override {
    const ArenaScope scope(context.arena);
    const Tensor partial = context.arena.Allocate(weights.dtype, {rows_.dim(0), rows_.dim(1)});
    context.ops.UnpermuteWeights(context.queue, row_weights, rows_, partial);
    group_.ReduceScatter(context.queue, partial, weights);
  }

 private:
  const DispatchSpec spec_;
  Collectives& group_;
  const std::int64_t num_held_;

  // int32 [P·T, K]: the row of each choice among the rows of the experts held here; -1 for other
  // experts.
  Tensor rows_;
  std::vector<std::int32_t> host_rows_;
  std::vector<std::int32_t> host_offsets_;
};

Status AllGatherDispatch::Route(BlockContext& context, const Tensor& experts,
                                const Tensor& weights) {
  const std::int64_t all_tokens = experts.dim(0) * group_.size();
  rows_ = context.arena.Allocate(DType::kInt32, {all_tokens, experts.dim(1)});
  const Tensor all_offsets = context.arena.Allocate(DType::kInt32, {spec_.num_experts + 1});
  {
    const ArenaScope scope(context.arena);
    const Tensor all_experts = context.arena.Allocate(DType::kInt32, {all_tokens, experts.dim(1)});
    group_.AllGather(context.queue, experts, all_experts);
    // No choice is dropped, so the weights have no influence.
    context.ops.SortByExpert(context.queue, spec_.drop, all_experts, weights, rows_, all_offsets);
  }
  host_rows_.resize(static_cast<std::size_t>(rows_.num_elems()));
  std::vector<std::int32_t> offsets(static_cast<std::size_t>(spec_.num_experts + 1));
  context.device.CopyToHost(context.queue, rows_, host_rows_.data());
  context.device.CopyToHost(context.queue, all_offsets, offsets.data());
  CKPT_RETURN_IF_ERROR(context.queue.Synchronize());

  // Keep the rows of the experts held here, which are contiguous.
  const auto first = static_cast<std::size_t>(group_.rank() * num_held_);
  const std::int32_t begin = offsets[first];
  const std::int32_t end = offsets[first + static_cast<std::size_t>(num_held_)];
  for (std::int32_t& row : host_rows_) row = row >= begin && row < end ? row - begin : -1;
  host_offsets_.clear();
  for (std::size_t held = 0; held <= static_cast<std::size_t>(num_held_); ++held) {
    host_offsets_.push_back(offsets[first + held] - begin);
  }
  num_rows_ = end - begin;
  context.device.CopyFromHost(context.queue, host_rows_.data(), rows_);
  offsets_ = Upload(context, host_offsets_);
  return OkStatus();
}

}  // namespace

std::unique_ptr<Dispatch> MakeDispatch(Dispatcher kind, const DispatchSpec& spec,
                                       Collectives& group) {
  switch (kind) {
    case Dispatcher::kAllGather:
      return std::make_unique<AllGatherDispatch>(spec, group);
    case Dispatcher::kAllToAll:
      break;
  }
  return std::make_unique<AllToAllDispatch>(spec, group);
}

}  // namespace ckpt::trainer
