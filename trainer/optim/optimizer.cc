#include "trainer/optim/optimizer.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/base/check.h"
#include "trainer/optim/weight_decay.h"

namespace ckpt::trainer {

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

Result<Optimizer> Optimizer::Create(const OptimizerConfig& config, ParamStore& store, Ops& ops,
                                    Device& device) {
  Optimizer optimizer(config, store, ops);
  for (std::size_t i = 0; i < store.mains().size(); ++i) {
    const MainArrays& main = store.mains()[i];
    if (!main.gradient) continue;
    State state = {.group = i, .moments = {}};
    for (int m = 0; m < NumMoments(config); ++m) {
      CKPT_ASSIGN_OR_RETURN(Buffer buffer,
                            device.Allocate(main.weights.size_bytes(), MemoryUse::kOptimizer));
      state.moments.emplace_back(buffer.data(), main.weights.dtype,
                                 std::initializer_list<std::int64_t>{main.weights.num_elems()});
      optimizer.memory_.push_back(std::move(buffer));
    }
    optimizer.AddRuns(optimizer.states_.size(), main);
    optimizer.states_.push_back(std::move(state));
  }
  return optimizer;
}

void Optimizer::AddRuns(std::size_t state, const MainArrays& main) {
  for (const ParamPiece& piece : main.pieces) {
    const bool decays = config_.decay_all || Decays(*piece.spec);
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
  for (const Run& run : runs_) {
    const State& state = states_[run.state];
    const MainArrays& main = store_->mains()[state.group];
    const auto part = [&](const Tensor& array) {
      return array ? array.Rows(run.begin, run.elems) : Tensor();
    };
    const double weight_decay = run.decays ? config_.weight_decay : 0;
    if (config_.kind == OptimizerKind::kSgd) {
      ops_->Sgd(queue, {.momentum = config_.sgd_momentum, .weight_decay = weight_decay}, update,
                part(main.gradient), part(main.weights), part(state.moments[0]),
                part(main.compute));
      continue;
    }
    const AdamWForm form = {.beta1 = config_.adam_beta1,
                            .beta2 = config_.adam_beta2,
                            .eps = config_.adam_eps,
                            .weight_decay = weight_decay,
                            .decoupled = config_.decoupled_weight_decay};
    ops_->AdamW(queue, form, update, part(main.gradient), part(main.weights),
                part(state.moments[0]), part(state.moments[1]), part(main.compute));
  }
}

Status Optimizer::SetMoment(int moment, const ParamStore::FillRows& fill, Queue& queue) {
  CKPT_CHECK(moment >= 0 && moment < NumMoments(config_));
  for (const State& state : states_) {
    CKPT_RETURN_IF_ERROR(store_->piece_rows().Fill(store_->mains()[state.group].pieces,
                                                   state.moments[static_cast<std::size_t>(moment)],
                                                   fill, queue));
  }
  return OkStatus();
}

Status Optimizer::ReadMoment(int moment, const ParamStore::PlaceRows& place, Queue& queue) {
  CKPT_CHECK(moment >= 0 && moment < NumMoments(config_));
  for (const State& state : states_) {
    CKPT_RETURN_IF_ERROR(store_->piece_rows().Read(store_->mains()[state.group].pieces,
                                                   state.moments[static_cast<std::size_t>(moment)],
                                                   place, queue));
  }
  return OkStatus();
}

}  // namespace ckpt::trainer
