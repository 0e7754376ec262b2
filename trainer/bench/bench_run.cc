#include "trainer/bench/bench_run.h"

#include <algorithm>
#include <chrono>
#include <cstddef>

#include <fmt/format.h>

#include "core/json/json_writer.h"

namespace ckpt::train {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

// Trains step after step with the benchmark's tokens.
class Steps {
 public:
  // `progress` counts steps; null: none.
  Steps(const BenchPlan& plan, trainer::RankTrainer& trainer, int rank, ProgressSink* progress)
      : plan_(plan), trainer_(trainer), rank_(rank), progress_(progress) {}

  // Runs `count` more steps, as many at once as the trainer takes; `body(report, time)` is called
  // as each ends, with the time since the one before. None is in flight at the end.
  template <typename Body>
  Status Run(std::int64_t count, const Body& body) {
    const std::int64_t end = enqueued_ + count;
    Clock::time_point start = Clock::now();
    for (std::int64_t step = 0; step < count; ++step) {
      while (enqueued_ < end && trainer_.num_in_flight() < trainer_.max_in_flight()) {
        const trainer::HostMicroBatch batch = plan_.tokens.At(enqueued_++, rank_);
        CKPT_RETURN_IF_ERROR(trainer_.Enqueue({&batch, 1}, {}));
      }
      CKPT_ASSIGN_OR_RETURN(const trainer::StepReport report, trainer_.Collect());
      const Clock::time_point now = Clock::now();
      body(report, now - start);
      if (progress_ != nullptr) progress_->OnDone("step", 1);
      start = now;
    }
    return OkStatus();
  }

 private:
  const BenchPlan& plan_;
  trainer::RankTrainer& trainer_;
  const int rank_;
  ProgressSink* const progress_;
  std::int64_t enqueued_ = 0;
};

double Median(std::vector<double> values) {
  std::ranges::sort(values);
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// Steps of which one timing of a trial takes the median, after one that is not counted.
constexpr std::int64_t kTrialSteps = 5;

Result<ProductChoice> Choose(std::int64_t warmup, Steps& steps, trainer::ProductTrial& trial) {
  const auto ignored = [](const trainer::StepReport&, Clock::duration) {};
  // At least one, in which the products of a step become known.
  CKPT_RETURN_IF_ERROR(steps.Run(std::max<std::int64_t>(warmup, 1), ignored));
  return ChooseProducts(trial, [&]() -> Result<double> {
    CKPT_RETURN_IF_ERROR(steps.Run(1, ignored));
    std::vector<double> step_ms;
    CKPT_RETURN_IF_ERROR(
        steps.Run(kTrialSteps, [&](const trainer::StepReport&, Clock::duration time) {
          step_ms.push_back(Milliseconds(time));
        }));
    return Median(std::move(step_ms));
  });
}

// Every rank calls it, and those with `recorded` make a ledger. Errors: those of the trainer and of
// Device::RecordWork.
Result<std::optional<trainer::Ledger>> RecordLedger(std::int64_t count,
                                                    const trainer::Roofline& peaks, Steps& steps,
                                                    trainer::RankTrainer& trainer,
                                                    trainer::Device& device,
                                                    trainer::RecordedOps* recorded) {
  // A queue may still run what the next step needs: that is not work of the steps below.
  CKPT_RETURN_IF_ERROR(trainer.params().Synchronize());
  std::unique_ptr<trainer::WorkRecord> record;
  if (recorded != nullptr) {
    CKPT_ASSIGN_OR_RETURN(record, device.RecordWork());
    recorded->Begin(*record);
  }
  CKPT_RETURN_IF_ERROR(steps.Run(count, [](const trainer::StepReport&, Clock::duration) {}));
  CKPT_RETURN_IF_ERROR(trainer.params().Synchronize());
  std::optional<trainer::Ledger> ledger;
  if (recorded == nullptr) return ledger;
  const std::vector<trainer::OpWork> operations = recorded->End();
  CKPT_ASSIGN_OR_RETURN(const std::vector<trainer::DeviceWork> work, record->Finish());
  ledger = trainer::MakeLedger(work, operations, count, peaks);
  return ledger;
}

// Those of the benchmark's models, or those of a run that begins.
Status SetWeights(const BenchPlan& plan, trainer::RankTrainer& trainer) {
  if (!plan.has_bench_weights) return trainer.InitializeWeights();
  return trainer.DrawWeights([&](const trainer::ParamSpec& spec, std::int64_t row_begin,
                                 std::int64_t rows, std::span<float> values) {
    return FillBenchWeights(trainer.config().model, plan.tokens.seed, spec, row_begin, rows,
                            values);
  });
}

// What a timed step adds to `times`, but for its loss.
void AddTimed(const BenchPlan& plan, const trainer::StepReport& report, Clock::duration time,
              BenchTimes& times) {
  times.step_ms.push_back(Milliseconds(time));
  for (std::size_t phase = 0; phase < times.phase_ms.size(); ++phase) {
    times.phase_ms[phase] += report.phase_ms[phase] / static_cast<double>(plan.steps);
  }
  if (report.rank_phases && report.rank_phases->step > plan.warmup) {
    times.rank_phases.Add(*report.rank_phases);
  }
  if (report.experts) {
    times.expert_load_max = std::max(times.expert_load_max.value_or(1), report.experts->most);
  }
}

// The warm-up, and the timed steps.
Status TimeWholeSteps(const BenchPlan& plan, Steps& steps, BenchTimes& times) {
  std::int64_t done = 0;
  return steps.Run(plan.warmup + plan.steps,
                   [&](const trainer::StepReport& report, Clock::duration time) {
                     if (done++ >= plan.warmup) AddTimed(plan, report, time, times);
                     times.losses.push_back(report.loss);
                   });
}

// BenchTimes::step_without_transfers_ms.
Result<std::vector<double>> TimeWithoutTransfers(std::int64_t count, Steps& steps,
                                                 trainer::RankTrainer& trainer) {
  trainer.LeaveOutTransfers();
  std::vector<double> step_ms;
  CKPT_RETURN_IF_ERROR(steps.Run(count, [&](const trainer::StepReport&, Clock::duration time) {
    step_ms.push_back(Milliseconds(time));
  }));
  // The first one began with weights that were gathered for it.
  step_ms.erase(step_ms.begin());
  return step_ms;
}

// Where the plan does not say what the device can do, the device does.
trainer::Roofline PeaksOf(const BenchPlan& plan, const trainer::RankTrainer& trainer,
                          const trainer::Device& device) {
  trainer::Roofline peaks = plan.peaks;
  if (peaks.flops == 0) peaks.flops = device.PeakFlops(trainer.config().precision.compute);
  if (peaks.bytes == 0) peaks.bytes = device.PeakBandwidth();
  return peaks;
}

}  // namespace

double BenchTimes::median_ms() const { return Median(step_ms); }

std::optional<double> BenchTimes::exposed_ms() const {
  if (step_without_transfers_ms.empty()) return std::nullopt;
  return median_ms() - Median(step_without_transfers_ms);
}

Result<BenchTimes> TimeSteps(const BenchPlan& plan, trainer::RankTrainer& trainer,
                             trainer::Device& device, trainer::RecordedOps* recorded, int rank,
                             ProgressSink* progress) {
  CKPT_RETURN_IF_ERROR(SetWeights(plan, trainer));
  const bool records = plan.ledger_steps > 0 && recorded != nullptr;
  // Before the steps: a device that keeps no record says so at once.
  if (records) CKPT_RETURN_IF_ERROR(device.RecordWork().status());
  BenchTimes times;
  Steps steps(plan, trainer, rank, progress);
  if (plan.product_trial != nullptr) {
    // Nobody knows how many steps that takes.
    if (progress != nullptr) progress->OnPhase("choose products", 0, 0);
    CKPT_ASSIGN_OR_RETURN(times.product_choice, Choose(plan.warmup, steps, *plan.product_trial));
  }
  if (progress != nullptr) {
    progress->OnPhase("bench",
                      static_cast<std::uint64_t>(plan.warmup + plan.steps + plan.ledger_steps +
                                                 plan.steps_without_transfers),
                      0);
  }
  CKPT_RETURN_IF_ERROR(TimeWholeSteps(plan, steps, times));
  for (std::size_t use = 0; use < times.peak_bytes.size(); ++use) {
    times.peak_bytes[use] = device.usage(static_cast<trainer::MemoryUse>(use)).peak_bytes;
  }
  times.peaks = PeaksOf(plan, trainer, device);
  if (plan.ledger_steps > 0) {
    CKPT_ASSIGN_OR_RETURN(times.ledger, RecordLedger(plan.ledger_steps, times.peaks, steps, trainer,
                                                     device, records ? recorded : nullptr));
  }
  if (plan.steps_without_transfers > 0) {
    CKPT_ASSIGN_OR_RETURN(times.step_without_transfers_ms,
                          TimeWithoutTransfers(plan.steps_without_transfers, steps, trainer));
  }
  return times;
}

double BenchReport::tokens_per_s_of_rank() const {
  return static_cast<double>(tokens_of_rank) * 1e3 / times.median_ms();
}

double BenchReport::flops_per_s_of_rank() const { return flops_per_token * tokens_per_s_of_rank(); }

std::string BenchJson(const BenchReport& report) {
  const BenchTimes& times = report.times;
  const auto [fastest, slowest] = std::ranges::minmax(times.step_ms);
  JsonWriter json;
  json.BeginObject().Key("model").Text(report.model).Key("device").Text(report.device);
  json.Key("ranks").Int(report.num_ranks);
  json.Key("seq").Int(report.seq).Key("tokens_per_rank").Int(report.tokens_of_rank);
  json.Key("steps").Int(static_cast<std::int64_t>(times.step_ms.size()));
  json.Key("step_ms").Double(times.median_ms());
  json.Key("step_ms_min").Double(fastest).Key("step_ms_max").Double(slowest);
  json.Key("tokens_s_rank").Double(report.tokens_per_s_of_rank());
  json.Key("flops_per_token").Double(report.flops_per_token);
  json.Key("tflops_s_rank").Double(report.flops_per_s_of_rank() / 1e12);
  json.Key("mfu");
  times.peaks.flops > 0 ? json.Double(report.flops_per_s_of_rank() / times.peaks.flops)
                        : json.Null();
  if (times.expert_load_max) json.Key("expert_load_max").Double(*times.expert_load_max);
  if (const std::optional<double> exposed = times.exposed_ms()) {
    json.Key("exposed_ms").Double(*exposed);
  }
  json.Key("phase_ms").BeginObject();
  for (std::size_t phase = 0; phase < times.phase_ms.size(); ++phase) {
    json.Key(trainer::kStepPhaseNames[phase]).Double(times.phase_ms[phase]);
  }
  json.End();
  if (times.rank_phases.num_steps() > 0) {
    json.Key("rank_phase_ms").BeginObject();
    const auto means = times.rank_phases.Means();
    for (std::size_t phase = 0; phase < means.size(); ++phase) {
      json.Key(trainer::kStepPhaseNames[phase]).BeginObject();
      json.Key("min").Double(means[phase].min_ms).Key("min_rank").Int(means[phase].min_rank);
      json.Key("max").Double(means[phase].max_ms).Key("max_rank").Int(means[phase].max_rank).End();
    }
    json.End();
  }
  json.Key("losses").BeginArray();
  for (const double loss : times.losses) json.Double(loss);
  json.End();
  json.Key("peak_bytes").BeginObject();
  for (std::size_t use = 0; use < times.peak_bytes.size(); ++use) {
    json.Key(trainer::MemoryUseName(static_cast<trainer::MemoryUse>(use)))
        .Int(times.peak_bytes[use]);
  }
  json.End();
  if (times.product_choice) {
    const ProductChoice& choice = *times.product_choice;
    json.Key("products").BeginObject().Key("shapes").Int(choice.num_products);
    json.Key("tried").Int(choice.num_tried).Key("changed").Int(choice.num_changed);
    json.Key("library_ms").Double(choice.library_ms);
    json.Key("chosen_ms").Double(choice.chosen_ms).End();
  }
  if (times.ledger) {
    json.Key("peak_tflops").Double(times.peaks.flops / 1e12);
    json.Key("peak_tbytes").Double(times.peaks.bytes / 1e12);
    json.Key("ledger");
    trainer::WriteLedger(*times.ledger, json);
  }
  json.End();
  return json.Take() + "\n";
}

std::string BenchText(const BenchReport& report) {
  const BenchTimes& times = report.times;
  const auto [fastest, slowest] = std::ranges::minmax(times.step_ms);
  std::uint64_t peak_bytes = 0;
  for (const std::uint64_t bytes : times.peak_bytes) peak_bytes += bytes;
  std::string text =
      fmt::format("{} on {}: {} ranks, {} tokens a rank in sequences of {}\n", report.model,
                  report.device, report.num_ranks, report.tokens_of_rank, report.seq);
  text += fmt::format("step      {:.1f} ms (median of {}; {:.1f} to {:.1f})\n", times.median_ms(),
                      times.step_ms.size(), fastest, slowest);
  text += fmt::format("speed     {:.0f} tokens/s, {:.3g} TFLOP/s a rank",
                      report.tokens_per_s_of_rank(), report.flops_per_s_of_rank() / 1e12);
  if (times.peaks.flops > 0) {
    text += fmt::format(", MFU {:.1f} %", 100 * report.flops_per_s_of_rank() / times.peaks.flops);
  }
  if (const std::optional<double> exposed = times.exposed_ms()) {
    text += fmt::format("\nexposed   {:.1f} ms of a step are communication, {:.1f} %", *exposed,
                        100 * *exposed / times.median_ms());
  }
  text += "\nphases   ";
  for (std::size_t phase = 0; phase < times.phase_ms.size(); ++phase) {
    if (times.phase_ms[phase] == 0) continue;
    text += fmt::format(" {} {:.1f}", trainer::kStepPhaseNames[phase], times.phase_ms[phase]);
  }
  if (times.rank_phases.num_steps() > 0) {
    text += " ms\nranks     " + times.rank_phases.Text();
  }
  text += fmt::format(" ms\nmemory    {:.2f} GiB at most\n",
                      static_cast<double>(peak_bytes) / static_cast<double>(1U << 30U));
  text += fmt::format("loss      {:.6f} at first, {:.6f} at last\n", times.losses.front(),
                      times.losses.back());
  if (times.expert_load_max) {
    text += fmt::format("experts   {:.2f} times the mean at most\n", *times.expert_load_max);
  }
  if (times.product_choice) {
    const ProductChoice& choice = *times.product_choice;
    text += fmt::format(
        "products  {} of {} have another algorithm, of {} that were tried; a step took {:.1f} ms, "
        "with the library's {:.1f}\n",
        choice.num_changed, choice.num_products, choice.num_tried, choice.chosen_ms,
        choice.library_ms);
  }
  if (times.ledger) text += "\n" + trainer::LedgerText(*times.ledger);
  return text;
}

}  // namespace ckpt::train
