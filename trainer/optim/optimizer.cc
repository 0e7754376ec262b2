#include "trainer/optim/optimizer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "trainer/optim/weight_decay.h"

namespace ckpt::trainer {
namespace {

std::span<float> ValuesOf(const ParamPiece& piece, std::span<float> state) {
  return state.subspan(static_cast<std::size_t>(piece.main_offset),
                       static_cast<std::size_t>(piece.rows * piece.row_elems));
}

}  // namespace

Status ValidateOptimizer(const OptimizerConfig& config) {
  Status status;
  const auto require = [&](bool holds, std::string_view rule, double actual,
                           std::string_view usual) {
    if (holds) return;
    status.Add(Error(ErrorKind::kUsage, rule)
                   .Actual(fmt::format("{}", actual))
                   .Hint(fmt::format("the usual value is {}", usual)));
  };
  const auto is_rate = [](double value) { return value >= 0 && value < 1; };
  require(is_rate(config.adam_beta1), "adam_beta1 must be in [0, 1)", config.adam_beta1, "0.9");
  require(is_rate(config.adam_beta2), "adam_beta2 must be in [0, 1)", config.adam_beta2,
          "0.95 or 0.999");
  require(config.adam_eps > 0, "adam_eps must be positive", config.adam_eps, "1e-8");
  require(is_rate(config.sgd_momentum), "sgd_momentum must be in [0, 1)", config.sgd_momentum,
          "0.9");
  require(config.weight_decay >= 0, "weight_decay must not be negative", config.weight_decay,
          "0.1; 0 switches it off");
  return status;
}

int NumMoments(const OptimizerConfig& config) {
  return config.kind == OptimizerKind::kAdam ? 2 : 1;
}

PlannedBytes PlanTrainingBytes(const OptimizerConfig& config, const ShardPlan& plan,
                               std::uint64_t* host_bytes) {
  const int moments = NumMoments(config);
  PlannedBytes bytes = PlanBytes(plan, moments);
  if (host_bytes != nullptr) *host_bytes = config.moments_on_host ? bytes.optimizer : 0;
  if (!config.moments_on_host) return bytes;
  std::int64_t largest = 0;
  for (const GroupPlan& group : plan.groups) {
    if (group.trainable) largest = std::max(largest, group.main.elems);
  }
  bytes.optimizer = HostMoments::DeviceBytes(largest, moments, config.host_block_elems);
  return bytes;
}

Result<Optimizer> Optimizer::Create(const OptimizerConfig& config, ParamStore& store, Ops& ops,
                                    Device& device) {
  Optimizer optimizer(config, store, ops);
  std::vector<std::int64_t> elems;  // of each state
  for (std::size_t i = 0; i < store.mains().size(); ++i) {
    const MainArrays& main = store.mains()[i];
    if (!main.gradient) continue;
    State state = {.group = i, .moments = {}};
    for (int m = 0; m < NumMoments(config) && !config.moments_on_host; ++m) {
      CKPT_ASSIGN_OR_RETURN(Buffer buffer,
                            device.Allocate(main.weights.size_bytes(), MemoryUse::kOptimizer));
      state.moments.emplace_back(buffer.data(), main.weights.dtype,
                                 std::initializer_list<std::int64_t>{main.weights.num_elems()});
      optimizer.memory_.push_back(std::move(buffer));
    }
    optimizer.AddRuns(optimizer.states_.size(), main);
    optimizer.states_.push_back(std::move(state));
    elems.push_back(main.weights.num_elems());
  }
  if (config.moments_on_host) {
    CKPT_ASSIGN_OR_RETURN(optimizer.host_, HostMoments::Create(elems, NumMoments(config),
                                                               config.host_block_elems, device));
  }
  return optimizer;
}

void Optimizer::AddRuns(std::size_t state, const MainArrays& main) {
  for (const ParamPiece& piece : main.pieces) {
    const bool decays = Decays(config_, *piece.spec);
    const std::int64_t end = piece.main_offset + piece.rows * piece.row_elems;
    // The padding between parameters is zero and stays zero, so one run may contain it.
    if (!runs_.empty() && runs_.back().state == state && runs_.back().decays == decays) {
      runs_.back().elems = end - runs_.back().begin;
      continue;
    }
    runs_.push_back({.state = state,
                     .begin = piece.main_offset,
                     .elems = end - piece.main_offset,
                     .decays = decays});
  }
}

UpdateScalars Optimizer::NextScalars(double lr) const {
  UpdateScalars scalars = {.lr = lr};
  if (config_.kind != OptimizerKind::kAdam) return scalars;
  const auto step = static_cast<double>(steps_ + 1);
  scalars.correction1 = 1 - std::pow(config_.adam_beta1, step);
  scalars.root_correction2 = std::sqrt(1 - std::pow(config_.adam_beta2, step));
  return scalars;
}

void Optimizer::Step(Queue& queue, const Tensor& update) {
  ++steps_;
  if (host_) host_->BeginUpdate();
  const ShardPlan& plan = store_->plan();
  auto run = runs_.begin();
  for (int unit = 0; unit < static_cast<int>(plan.units.size()); ++unit) {
    for (; run != runs_.end() && plan.groups[states_[run->state].group].unit == unit; ++run) {
      UpdateRun(queue, update, *run);
    }
    store_->WeightsChanged(unit);
  }
  CKPT_CHECK(run == runs_.end());
}

void Optimizer::UpdateRun(Queue& queue, const Tensor& update, const Run& run) {
  const auto part = [&](std::int64_t first, std::int64_t elems, std::span<const Tensor> moments) {
    UpdatePart(queue, update, run, first, elems, moments);
  };
  if (host_) return host_->ForBlocks(queue, run.state, run.begin, run.elems, part);
  std::vector<Tensor> moments;
  for (const Tensor& moment : states_[run.state].moments) {
    moments.push_back(moment.Rows(run.begin, run.elems));
  }
  part(run.begin, run.elems, moments);
}

void Optimizer::UpdatePart(Queue& queue, const Tensor& update, const Run& run, std::int64_t first,
                           std::int64_t elems, std::span<const Tensor> moments) {
  const MainArrays& main = store_->mains()[states_[run.state].group];
  const Tensor weights = main.weights.Rows(first, elems);
  const GradientSum gradient = main.gradient.Rows(first, elems);
  const WeightCopies copies = main.compute.Rows(first, elems);
  const double weight_decay = run.decays ? config_.weight_decay : 0;
  if (config_.kind == OptimizerKind::kSgd) {
    ops_->Sgd(queue, {.momentum = config_.sgd_momentum, .weight_decay = weight_decay}, update,
              gradient, weights, moments[0], copies);
    return;
  }
  const AdamWForm form = {.beta1 = config_.adam_beta1,
                          .beta2 = config_.adam_beta2,
                          .eps = config_.adam_eps,
                          .weight_decay = weight_decay,
                          .decoupled = config_.decoupled_weight_decay};
  ops_->AdamW(queue, form, update, gradient, weights, moments[0], moments[1], copies);
}

Status Optimizer::SetMoment(int moment, const FillRows& fill, Queue& queue) {
  CKPT_CHECK(moment >= 0 && moment < NumMoments(config_));
  if (host_) CKPT_RETURN_IF_ERROR(host_->AwaitAll());
  for (std::size_t s = 0; s < states_.size(); ++s) {
    const std::vector<ParamPiece>& pieces = store_->mains()[states_[s].group].pieces;
    if (!host_) {
      CKPT_RETURN_IF_ERROR(store_->piece_rows().Fill(
          pieces, states_[s].moments[static_cast<std::size_t>(moment)], fill, queue));
      continue;
    }
    for (const ParamPiece& piece : pieces) {
      const std::span<float> values = ValuesOf(piece, host_->values(s, moment));
      for (std::int64_t row = 0; row < piece.rows; row += RowsAtOnce(piece)) {
        const std::int64_t rows = std::min(RowsAtOnce(piece), piece.rows - row);
        CKPT_RETURN_IF_ERROR(
            fill(*piece.spec, piece.row_begin + row, rows,
                 values.subspan(static_cast<std::size_t>(row * piece.row_elems),
                                static_cast<std::size_t>(rows * piece.row_elems))));
      }
    }
  }
  return OkStatus();
}

Status Optimizer::ReadMoment(int moment, const PlaceRows& place, Queue& queue) {
  CKPT_CHECK(moment >= 0 && moment < NumMoments(config_));
  if (host_) CKPT_RETURN_IF_ERROR(host_->AwaitAll());
  for (std::size_t s = 0; s < states_.size(); ++s) {
    const std::vector<ParamPiece>& pieces = store_->mains()[states_[s].group].pieces;
    if (!host_) {
      CKPT_RETURN_IF_ERROR(store_->piece_rows().Read(
          pieces, states_[s].moments[static_cast<std::size_t>(moment)], place, queue));
      continue;
    }
    for (const ParamPiece& piece : pieces) {
      const MutableByteSpan to = place(piece);
      if (to.empty()) continue;
      const std::span<float> values = ValuesOf(piece, host_->values(s, moment));
      CKPT_CHECK(to.size() == values.size_bytes());
      std::memcpy(to.data(), values.data(), values.size_bytes());
    }
  }
  return OkStatus();
}

}  // namespace ckpt::trainer
