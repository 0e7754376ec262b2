#include "trainer/model/dispatch.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/check.h"

namespace ckpt::trainer {
namespace {

std::int64_t SizeOf(const Collectives* group) { return group == nullptr ? 1 : group->size(); }

// Memory for the rows of `num_experts` experts, of which there are at most `max_rows`.
ExpertRows AllocateRows(BlockContext& context, std::int64_t tokens, std::int64_t topk,
                        std::int64_t num_experts, std::int64_t max_rows) {
  return {.rows = context.arena.Allocate(DType::kInt32, {tokens, topk}),
          .choices = context.arena.Allocate(DType::kInt32, {max_rows}),
          .offsets = context.arena.Allocate(DType::kInt32, {num_experts + 1})};
}

// Memory to plan an exchange among `ranks`, of which each gets at most `max_received` rows for its
// `ranges` of experts.
ExchangePlan AllocatePlan(BlockContext& context, std::int64_t ranks, std::int64_t max_received,
                          std::int64_t ranges) {
  return {.send_rows = context.arena.Allocate(DType::kInt64, {ranks}),
          .receive_rows = context.arena.Allocate(DType::kInt64, {ranks}),
          .arrival = context.arena.Allocate(DType::kInt32, {max_received}),
          .offsets = context.arena.Allocate(DType::kInt32, {ranges + 1})};
}

// The rows that one rank's tokens have at all experts: exact if rows are padded or not limited,
// otherwise a bound.
std::int64_t MostRows(const DispatchSpec& spec, std::int64_t tokens, std::int64_t capacity) {
  const std::int64_t choices = tokens * spec.topk;
  if (capacity == 0) return choices;
  const std::int64_t places = capacity * spec.num_experts;
  return spec.capacity.pad ? places : std::min(places, choices);
}

// The rows that the experts of one rank get from the tokens of all ranks.
std::int64_t MostReceived(const DispatchSpec& spec, std::int64_t ranks, std::int64_t tokens) {
  const std::int64_t held = spec.num_experts / ranks;
  // Other ranks may have less padding than this one, so more capacity.
  const std::int64_t capacity = spec.capacity.Rows(tokens, spec.topk, spec.num_experts);
  std::int64_t from_one = tokens * std::min(spec.topk, held);
  if (capacity > 0) {
    const std::int64_t places = capacity * held;
    from_one = spec.capacity.pad ? places : std::min(places, from_one);
  }
  const std::int64_t most = ranks * from_one;
  if (!spec.rank_capacity_factor) return most;
  const double limit = std::ceil(*spec.rank_capacity_factor * static_cast<double>(tokens) *
                                 static_cast<double>(spec.topk));  // the mean: T·K
  return limit < static_cast<double>(most) ? static_cast<std::int64_t>(limit) : most;
}

SortForm SortFormOf(const DispatchSpec& spec, std::int64_t capacity) {
  return {.num_experts = spec.num_experts,
          .capacity = capacity,
          .policy = spec.capacity.policy,
          .pad = spec.capacity.pad};
}

// All experts are here: rows only change their order.
class LocalDispatch final : public Dispatch {
 public:
  explicit LocalDispatch(const DispatchSpec& spec) : spec_(spec) {}

  void Plan(BlockContext& context, std::int64_t tokens, std::int64_t routed_tokens) override {
    capacity_ = spec_.capacity.Rows(routed_tokens, spec_.topk, spec_.num_experts);
    max_rows_ = MostRows(spec_, tokens, capacity_);
    sorted_ = AllocateRows(context, tokens, spec_.topk, spec_.num_experts, max_rows_);
    offsets_ = sorted_.offsets;
  }
  void Route(BlockContext& context, const Tensor& experts, const Tensor& weights,
             const DispatchCounts& counts) override {
    context.ops.SortByExpert(context.queue, SortFormOf(spec_, capacity_), experts, weights, sorted_,
                             counts.dropped, {});
  }
  void ToExperts(BlockContext& context, const Tensor& x, const Tensor& weights, const Tensor& rows,
                 const Tensor& row_weights) override {
    context.ops.Permute(context.queue, sorted_, x, weights, rows, row_weights);
  }
  void FromExperts(BlockContext& context, const Tensor& rows, const Tensor& row_weights,
                   const Tensor& y, const Tensor& weights) override {
    context.ops.Unpermute(context.queue, sorted_, rows, row_weights, y, weights);
  }

 private:
  const DispatchSpec spec_;
  std::int64_t capacity_ = 0;
  ExpertRows sorted_;
};

// Sends tokens to the ranks of their experts and back.
//
// A rank sorts its choices by expert. That also sorts them by destination, so each rank gets one
// contiguous share. The received rows are sorted by source, then by expert; one permutation sorts
// them by expert, then by source.
class AllToAllDispatch final : public Dispatch {
 public:
  AllToAllDispatch(const DispatchSpec& spec, Collectives& group) : spec_(spec), group_(group) {
    segments_ = spec.separates_sources ? group.size() : 1;
  }

  void Plan(BlockContext& context, std::int64_t tokens, std::int64_t routed_tokens) override {
    const std::int64_t ranks = group_.size();
    const std::int64_t held = spec_.num_experts / ranks;
    capacity_ = spec_.capacity.Rows(routed_tokens, spec_.topk, spec_.num_experts);
    sorted_ = AllocateRows(context, tokens, spec_.topk, spec_.num_experts,
                           MostRows(spec_, tokens, capacity_));
    max_rows_ = MostReceived(spec_, ranks, tokens);
    plan_ = AllocatePlan(context, ranks, max_rows_, held * segments_);
    offsets_ = plan_.offsets;
  }

  void Route(BlockContext& context, const Tensor& experts, const Tensor& weights,
             const DispatchCounts& counts) override {
    const ArenaScope scope(context.arena);
    const Tensor all_offsets =
        context.arena.Allocate(DType::kInt32, {group_.size(), spec_.num_experts + 1});
    context.ops.SortByExpert(context.queue, SortFormOf(spec_, capacity_), experts, weights, sorted_,
                             counts.dropped, {});
    group_.AllGather(context.queue, sorted_.offsets, all_offsets);
    context.ops.PlanExchange(context.queue, group_.rank(), all_offsets, plan_, counts.overflows);
    send_rows_ = group_.ReadCounts(context.queue, plan_.send_rows);
    receive_rows_ = group_.ReadCounts(context.queue, plan_.receive_rows);
  }

  void ToExperts(BlockContext& context, const Tensor& x, const Tensor& weights, const Tensor& rows,
                 const Tensor& row_weights) override {
    const ArenaScope scope(context.arena);
    const Travellers sent = Allocate(context, sorted_.choices.dim(0), rows, row_weights);
    const Travellers received = Allocate(context, max_rows_, rows, row_weights);
    context.ops.Permute(context.queue, sorted_, x, weights, sent.rows, sent.weights);
    Exchange(context, sent, send_rows_, received, receive_rows_);
    const auto sort = [&](const Tensor& from, const Tensor& to) {
      if (to) context.ops.GatherRows(context.queue, from, plan_.arrival, count(), to);
    };
    sort(received.rows, rows);
    sort(received.weights, row_weights);
  }

  void FromExperts(BlockContext& context, const Tensor& rows, const Tensor& row_weights,
                   const Tensor& y, const Tensor& weights) override {
    const ArenaScope scope(context.arena);
    const Travellers received = Allocate(context, max_rows_, rows, row_weights);
    const Travellers sent = Allocate(context, sorted_.choices.dim(0), rows, row_weights);
    const auto unsort = [&](const Tensor& from, const Tensor& to) {
      if (to) context.ops.ScatterRows(context.queue, from, plan_.arrival, count(), to);
    };
    unsort(rows, received.rows);
    unsort(row_weights, received.weights);
    Exchange(context, received, receive_rows_, sent, send_rows_);
    context.ops.Unpermute(context.queue, sorted_, sent.rows, sent.weights, y, weights);
  }

 private:
  // Rows on their way, and what goes with them; `weights` may be null.
  struct Travellers {
    Tensor rows;
    Tensor weights;
  };

  static Travellers Allocate(BlockContext& context, std::int64_t max_rows, const Tensor& rows,
                             const Tensor& row_weights) {
    Travellers travellers{.rows = context.arena.Allocate(rows.dtype, {max_rows, rows.dim(1)}),
                          .weights = {}};
    if (row_weights) travellers.weights = context.arena.Allocate(row_weights.dtype, {max_rows});
    return travellers;
  }

  void Exchange(BlockContext& context, const Travellers& from, const RowCounts& from_rows,
                const Travellers& to, const RowCounts& to_rows) {
    const std::array<RowTransfer, 2> transfers = {
        RowTransfer{.send = from.rows, .receive = to.rows},
        RowTransfer{.send = from.weights, .receive = to.weights}};
    group_.AllToAll(context.queue, std::span(transfers).first(from.weights ? 2 : 1), from_rows,
                    to_rows);
  }

  const DispatchSpec spec_;
  Collectives& group_;
  std::int64_t capacity_ = 0;
  ExpertRows sorted_;  // this rank's choices at all experts
  ExchangePlan plan_;
  RowCounts send_rows_;  // of the plan, for every exchange of the routing
  RowCounts receive_rows_;
};

// Sends a token once to each rank that holds experts of it.
//
// To send, ranks take the place of experts: a token's choices are the ranks that hold its experts,
// and its rows are sorted by them. With a token go its experts and their weights. The tokens that
// are here are then sorted by the experts that are held here. As they come by source, rows are
// ordered as those of the all-to-all dispatch are.
class FlexDispatch final : public Dispatch {
 public:
  FlexDispatch(const DispatchSpec& spec, Collectives& group)
      : spec_(spec), group_(group), num_held_(spec.num_experts / group.size()) {
    CKPT_CHECK(!spec.separates_sources && !spec.capacity.factor);
  }

  void Plan(BlockContext& context, std::int64_t tokens, std::int64_t /*routed_tokens*/) override {
    const std::int64_t ranks = group_.size();
    const std::int64_t most_here = ranks * tokens;
    max_rows_ = MostReceived(spec_, ranks, tokens);
    sent_ = AllocateRows(context, tokens, ranks, ranks, tokens * std::min(spec_.topk, ranks));
    plan_ = AllocatePlan(context, ranks, most_here, 1);
    here_ = AllocateRows(context, most_here, spec_.topk, num_held_, max_rows_);
    offsets_ = here_.offsets;
  }

  void Route(BlockContext& context, const Tensor& experts, const Tensor& /*weights*/,
             const DispatchCounts& counts) override {
    const ArenaScope scope(context.arena);
    const std::int64_t ranks = group_.size();
    const Tensor chosen_ranks = context.arena.Allocate(DType::kInt32, {experts.dim(0), ranks});
    const Tensor all_offsets = context.arena.Allocate(DType::kInt32, {ranks, ranks + 1});
    context.ops.ChosenRanks(context.queue, experts, num_held_, chosen_ranks);
    context.ops.SortByExpert(context.queue, {.num_experts = ranks}, chosen_ranks, {}, sent_, {},
                             {});
    group_.AllGather(context.queue, sent_.offsets, all_offsets);
    context.ops.PlanExchange(context.queue, group_.rank(), all_offsets, plan_, counts.overflows);
    send_rows_ = group_.ReadCounts(context.queue, plan_.send_rows);
    receive_rows_ = group_.ReadCounts(context.queue, plan_.receive_rows);

    const RowTransfer travelling = Allocate(context, experts);
    context.ops.Permute(context.queue, sent_, experts, {}, travelling.send, {});
    context.ops.Fill(context.queue, travelling.receive, -1);  // where there is no token
    group_.AllToAll(context.queue, std::span(&travelling, 1), send_rows_, receive_rows_);
    const SortForm form{.first_expert = group_.rank() * num_held_, .num_experts = num_held_};
    context.ops.SortByExpert(context.queue, form, travelling.receive, {}, here_, {},
                             counts.overflows);
  }

  void ToExperts(BlockContext& context, const Tensor& x, const Tensor& weights, const Tensor& rows,
                 const Tensor& row_weights) override {
    const ArenaScope scope(context.arena);
    const std::array<RowTransfer, 2> travelling = {Allocate(context, x),
                                                   Allocate(context, weights)};
    context.ops.Permute(context.queue, sent_, x, {}, travelling[0].send, {});
    if (weights) context.ops.Permute(context.queue, sent_, weights, {}, travelling[1].send, {});
    group_.AllToAll(context.queue, std::span(travelling).first(weights ? 2 : 1), send_rows_,
                    receive_rows_);
    context.ops.Permute(context.queue, here_, travelling[0].receive, travelling[1].receive, rows,
                        row_weights);
  }

  void FromExperts(BlockContext& context, const Tensor& rows, const Tensor& row_weights,
                   const Tensor& y, const Tensor& weights) override {
    const ArenaScope scope(context.arena);
    const std::array<RowTransfer, 2> there = {Allocate(context, y), Allocate(context, weights)};
    context.ops.Unpermute(context.queue, here_, rows, row_weights, there[0].receive,
                          there[1].receive);
    const std::array<RowTransfer, 2> back = {Back(there[0]), Back(there[1])};
    group_.AllToAll(context.queue, std::span(back).first(weights ? 2 : 1), receive_rows_,
                    send_rows_);
    context.ops.Unpermute(context.queue, sent_, there[0].send, {}, y, {});
    // Of a choice, one rank sends the weight, and all others 0.
    if (weights) context.ops.Unpermute(context.queue, sent_, there[1].send, {}, weights, {});
  }

 private:
  // Memory for rows of this tensor's size, as they are sent and as they are received;
  // null if it is.
  [[nodiscard]] RowTransfer Allocate(BlockContext& context, const Tensor& of_tokens) const {
    if (!of_tokens) return {};
    const auto allocate = [&](std::int64_t rows) {
      return context.arena.Allocate(of_tokens.dtype, {rows, of_tokens.dim(1)});
    };
    return {.send = allocate(sent_.choices.dim(0)), .receive = allocate(here_.rows.dim(0))};
  }
  static RowTransfer Back(const RowTransfer& there) {
    return {.send = there.receive, .receive = there.send};
  }

  const DispatchSpec spec_;
  Collectives& group_;
  const std::int64_t num_held_;
  ExpertRows sent_;  // this rank's tokens at all ranks
  ExchangePlan plan_;
  RowCounts send_rows_;  // of the plan
  RowCounts receive_rows_;
  ExpertRows here_;  // the received tokens at the experts held here
};

// Every rank gets all tokens of the group.
class AllGatherDispatch final : public Dispatch {
 public:
  AllGatherDispatch(const DispatchSpec& spec, Collectives& group)
      : spec_(spec), group_(group), num_held_(spec.num_experts / group.size()) {
    CKPT_CHECK(!spec.separates_sources && !spec.capacity.factor);
  }

  void Plan(BlockContext& context, std::int64_t tokens, std::int64_t /*routed_tokens*/) override {
    max_rows_ = MostReceived(spec_, group_.size(), tokens);
    sorted_ = AllocateRows(context, tokens * group_.size(), spec_.topk, num_held_, max_rows_);
    offsets_ = sorted_.offsets;
  }

  void Route(BlockContext& context, const Tensor& experts, const Tensor& /*weights*/,
             const DispatchCounts& counts) override {
    const ArenaScope scope(context.arena);
    const Tensor all_experts = AllocateAll(context, experts);
    group_.AllGather(context.queue, experts, all_experts);
    const SortForm form{.first_expert = group_.rank() * num_held_, .num_experts = num_held_};
    context.ops.SortByExpert(context.queue, form, all_experts, {}, sorted_, {}, counts.overflows);
  }

  void ToExperts(BlockContext& context, const Tensor& x, const Tensor& weights, const Tensor& rows,
                 const Tensor& row_weights) override {
    const ArenaScope scope(context.arena);
    const Tensor all_x = AllocateAll(context, x);
    const Tensor all_weights = AllocateAll(context, weights);
    group_.AllGather(context.queue, x, all_x);
    if (weights) group_.AllGather(context.queue, weights, all_weights);
    context.ops.Permute(context.queue, sorted_, all_x, all_weights, rows, row_weights);
  }

  void FromExperts(BlockContext& context, const Tensor& rows, const Tensor& row_weights,
                   const Tensor& y, const Tensor& weights) override {
    const ArenaScope scope(context.arena);
    const Tensor partial_y = AllocateAll(context, y);
    const Tensor partial_weights = AllocateAll(context, weights);
    context.ops.Unpermute(context.queue, sorted_, rows, row_weights, partial_y, partial_weights);
    group_.ReduceScatter(context.queue, partial_y, y);
    if (weights) group_.ReduceScatter(context.queue, partial_weights, weights);
  }

 private:
  // For what all ranks have of this tensor; null if it is.
  [[nodiscard]] Tensor AllocateAll(BlockContext& context, const Tensor& mine) const {
    if (!mine) return {};
    return context.arena.Allocate(mine.dtype, {mine.dim(0) * group_.size(), mine.dim(1)});
  }

  const DispatchSpec spec_;
  Collectives& group_;
  const std::int64_t num_held_;
  ExpertRows sorted_;  // all ranks' choices at the experts held here
};

}  // namespace

std::int64_t ExpertCapacity::Rows(std::int64_t tokens, std::int64_t topk,
                                  std::int64_t num_experts) const {
  if (!factor) return 0;
  const double mean_load = static_cast<double>(tokens * topk) / static_cast<double>(num_experts);
  // A token chooses an expert at most once, so an expert cannot get more rows than tokens.
  const double rows = std::min(std::ceil(mean_load * *factor), static_cast<double>(tokens));
  // A capacity of 0 would mean no limit, so it is at least 1, also without tokens.
  return std::max<std::int64_t>(static_cast<std::int64_t>(rows), 1);
}

double RowsPerToken(Dispatcher kind, std::int64_t num_experts, std::int64_t topk,
                    std::int64_t ranks) {
  if (kind == Dispatcher::kAllGather) return static_cast<double>(ranks);
  if (kind == Dispatcher::kAllToAll) return static_cast<double>(topk);
  // A rank gets nothing if all of the experts are among those that it does not hold.
  const std::int64_t elsewhere = num_experts - num_experts / ranks;
  double nothing = 1;
  for (std::int64_t k = 0; k < topk; ++k) {
    nothing *= static_cast<double>(std::max<std::int64_t>(elsewhere - k, 0)) /
               static_cast<double>(num_experts - k);
  }
  return static_cast<double>(ranks) * (1 - nothing);
}

std::unique_ptr<Dispatch> MakeDispatch(Dispatcher kind, const DispatchSpec& spec,
                                       Collectives* group) {
  CKPT_CHECK(spec.num_experts % SizeOf(group) == 0);
  if (SizeOf(group) == 1) return std::make_unique<LocalDispatch>(spec);
  switch (kind) {
    case Dispatcher::kAllGather:
      return std::make_unique<AllGatherDispatch>(spec, *group);
    case Dispatcher::kFlex:
      if (spec.separates_sources || spec.capacity.factor) break;
      return std::make_unique<FlexDispatch>(spec, *group);
    case Dispatcher::kAllToAll:
      break;
  }
  return std::make_unique<AllToAllDispatch>(spec, *group);
}

}  // namespace ckpt::trainer
