#include "trainer/explain/step_simulation.h"

#include <algorithm>
#include <cstddef>

#include "core/base/check.h"

namespace ckpt::train {
namespace {

// Slots for units, the longest unused first. A slot that was given back may still be read until
// `free_at`.
struct Slot {
  int unit = -1;
  bool is_taken = false;
  double free_at = 0;
  double ready_at = 0;
};

class Simulation {
 public:
  explicit Simulation(const StepWork& work)
      : work_(work),
        num_units_(static_cast<int>(work.units.size())),
        refreshed_(work.units.size()),
        end_ready_(work.units.size()),
        weight_slots_(static_cast<std::size_t>(work.slots.weight_slots)),
        gradient_slots_(static_cast<std::size_t>(work.slots.gradient_slots)) {
    CKPT_CHECK(num_units_ > 0 && work.units.front().is_end);
    first_layer_ = 1;
    end_layers_ = num_units_ > 1 && work.units.back().is_end ? num_units_ - 1 : num_units_;
  }

  StepTime Run() {
    Refresh();
    for (int micro_batch = 1; micro_batch <= work_.micro_batches; ++micro_batch) {
      const bool is_last = micro_batch == work_.micro_batches;
      Forward();
      Compute(work_.head);
      if (has_head()) {
        Compute(Unit(end_layers_).forward + Unit(end_layers_).backward);
        Reduce(end_layers_, is_last);
      }
      Backward(is_last);
    }
    WaitUntil(reduce_end_, time_.reduce_wait);
    Compute(work_.update);
    return time_;
  }

 private:
  [[nodiscard]] const UnitWork& Unit(int unit) const {
    return work_.units[static_cast<std::size_t>(unit)];
  }
  [[nodiscard]] bool has_head() const { return end_layers_ < num_units_; }
  void Compute(double ms) {
    now_ += ms;
    time_.compute += ms;
  }
  void Exchange(double ms) {
    now_ += ms;
    time_.exchange += ms;
  }
  void WaitUntil(double at, double& wait) {
    wait += std::max(0.0, at - now_);
    now_ = std::max(now_, at);
  }

  // What follows the update of the step before.
  void Refresh() {
    for (int unit = 0; unit < num_units_; ++unit) {
      double& at = refreshed_[static_cast<std::size_t>(unit)];
      outer_end_ += Unit(unit).refresh_outer;
      at = Unit(unit).refresh_outer > 0 ? outer_end_ : 0;
      if (Unit(unit).refresh == 0) continue;
      gather_end_ = std::max(gather_end_, at) + Unit(unit).refresh;
      at = gather_end_;
    }
    if (!work_.overlaps_gathers) WaitUntil(std::max(gather_end_, outer_end_), time_.gather_wait);
  }

  // The end of the unit's gather if it begins now or when `free_at` has come.
  double GatherFrom(int unit, double free_at) {
    const double begin = std::max({gather_end_, free_at, refreshed_[static_cast<std::size_t>(unit)],
                                   work_.overlaps_gathers ? 0 : now_});
    gather_end_ = begin + Unit(unit).gather;
    return gather_end_;
  }

  void Gather(int unit) {
    if (unit < first_layer_ || unit >= end_layers_ || Unit(unit).gather == 0) return;
    auto slot = std::ranges::find(weight_slots_, unit, &Slot::unit);
    if (slot == weight_slots_.end()) {
      slot = std::ranges::find(weight_slots_, false, &Slot::is_taken);
      if (slot == weight_slots_.end()) return;
      slot->unit = unit;
      slot->ready_at = GatherFrom(unit, slot->free_at);
    }
    slot->is_taken = true;
  }
  // The computation waits for the unit's weights.
  void Acquire(int unit) {
    Gather(unit);
    const auto slot = std::ranges::find(weight_slots_, unit, &Slot::unit);
    const bool is_gathered = Unit(unit).gather > 0 && slot != weight_slots_.end();
    WaitUntil(is_gathered ? slot->ready_at : refreshed_[static_cast<std::size_t>(unit)],
              time_.gather_wait);
  }
  void Release(int unit) {
    const auto slot = std::ranges::find(weight_slots_, unit, &Slot::unit);
    if (slot == weight_slots_.end()) return;
    slot->is_taken = false;
    slot->free_at = now_;
    std::rotate(slot, slot + 1, weight_slots_.end());
  }
  // Ends have places of their own, where a later micro-batch finds them.
  void GatherEnd(int unit) {
    double& ready = end_ready_[static_cast<std::size_t>(unit)];
    if (ready > 0) return;
    ready =
        Unit(unit).gather > 0 ? GatherFrom(unit, 0) : refreshed_[static_cast<std::size_t>(unit)];
  }
  void PrefetchFrom(int first) {
    if (!work_.overlaps_gathers) return;
    const int end = first + work_.slots.prefetch_depth;
    for (int unit = first; unit < end; ++unit) Gather(unit);
    if (end > end_layers_ && has_head()) GatherEnd(end_layers_);
  }
  void PrefetchBackFrom(int first) {
    if (!work_.overlaps_gathers) return;
    for (int ahead = 0; ahead < work_.slots.prefetch_depth; ++ahead) Gather(first - ahead);
  }

  void Forward() {
    GatherEnd(0);
    PrefetchFrom(first_layer_);
    WaitUntil(end_ready_.front(), time_.gather_wait);
    Compute(Unit(0).forward);
    for (int unit = first_layer_; unit < end_layers_; ++unit) {
      Acquire(unit);
      PrefetchFrom(unit + 1);
      Compute(Unit(unit).forward);
      Exchange(Unit(unit).exchange_forward);
      Release(unit);
    }
    if (!has_head()) return;
    GatherEnd(end_layers_);
    WaitUntil(end_ready_.back(), time_.gather_wait);
  }

  void Backward(bool is_last) {
    for (int unit = end_layers_ - 1; unit >= first_layer_; --unit) {
      Acquire(unit);
      PrefetchBackFrom(unit - 1);
      Slot& gradients = gradient_slots_.front();
      if (Unit(unit).reduce > 0) WaitUntil(gradients.free_at, time_.reduce_wait);
      Compute(Unit(unit).backward);
      Exchange(Unit(unit).exchange_backward);
      Release(unit);
      Reduce(unit, is_last);
      if (Unit(unit).reduce > 0) {
        gradients.free_at = reduce_end_;
        std::rotate(gradient_slots_.begin(), gradient_slots_.begin() + 1, gradient_slots_.end());
      }
    }
    Compute(Unit(0).backward);
    Reduce(0, is_last);
  }

  void Reduce(int unit, bool is_last) {
    const double ms = Unit(unit).reduce + (is_last ? Unit(unit).late_reduce : 0);
    if (ms == 0) return;
    reduce_end_ = std::max(reduce_end_, now_) + ms;
    if (!work_.overlaps_reduces) WaitUntil(reduce_end_, time_.reduce_wait);
  }

  const StepWork& work_;
  const int num_units_;
  int first_layer_ = 1;
  int end_layers_ = 0;  // the unit after the last layer
  double now_ = 0;      // of the computation
  double gather_end_ = 0;
  double outer_end_ = 0;
  double reduce_end_ = 0;
  std::vector<double> refreshed_;  // by unit, when its part is there
  std::vector<double> end_ready_;  // by unit, of the ends
  std::vector<Slot> weight_slots_;
  std::vector<Slot> gradient_slots_;
  StepTime time_;
};

}  // namespace

StepTime SimulateStep(const StepWork& work) { return Simulation(work).Run(); }

}  // namespace ckpt::train
