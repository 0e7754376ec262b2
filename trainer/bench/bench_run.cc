#include "trainer/bench/bench_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "core/json/json_writer.h"

namespace ckpt::train {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::duration time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

}  // namespace

double BenchTimes::median_ms() const {
  std::vector<double> sorted = step_ms;
  std::ranges::sort(sorted);
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

Result<BenchTimes> TimeSteps(const BenchPlan& plan, trainer::RankTrainer& trainer,
                             const trainer::Device& device, int rank, ProgressSink* progress) {
  CKPT_RETURN_IF_ERROR(
      trainer.SetWeights([&](const trainer::ParamSpec& spec, std::int64_t row_begin,
                             std::int64_t rows, std::span<float> values) {
        return FillBenchWeights(trainer.config().model, plan.tokens.seed, spec, row_begin, rows,
                                values);
      }));
  const std::int64_t all = plan.warmup + plan.steps;
  if (progress != nullptr) progress->OnPhase("bench", static_cast<std::uint64_t>(all), 0);
  BenchTimes times;
  std::int64_t enqueued = 0;
  Clock::time_point start = Clock::now();  // of the step that is collected next
  for (std::int64_t step = 0; step < all; ++step) {
    while (enqueued < all && trainer.num_in_flight() < trainer.max_in_flight()) {
      const trainer::HostMicroBatch batch = plan.tokens.At(enqueued++, rank);
      CKPT_RETURN_IF_ERROR(trainer.Enqueue({&batch, 1}, {}));
    }
    CKPT_ASSIGN_OR_RETURN(const trainer::StepReport report, trainer.Collect());
    const Clock::time_point end = Clock::now();
    if (step >= plan.warmup) times.step_ms.push_back(Milliseconds(end - start));
    start = end;
    times.losses.push_back(report.loss);
    if (progress != nullptr) progress->OnDone("step", 1);
  }
  for (std::size_t use = 0; use < times.peak_bytes.size(); ++use) {
    times.peak_bytes[use] = device.usage(static_cast<trainer::MemoryUse>(use)).peak_bytes;
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
  json.BeginObject().Key("model").Text(report.model).Key("ranks").Int(report.num_ranks);
  json.Key("seq").Int(report.seq).Key("tokens_per_rank").Int(report.tokens_of_rank);
  json.Key("steps").Int(static_cast<std::int64_t>(times.step_ms.size()));
  json.Key("step_ms").Double(times.median_ms());
  json.Key("step_ms_min").Double(fastest).Key("step_ms_max").Double(slowest);
  json.Key("tokens_s_rank").Double(report.tokens_per_s_of_rank());
  json.Key("flops_per_token").Double(report.flops_per_token);
  json.Key("tflops_s_rank").Double(report.flops_per_s_of_rank() / 1e12);
  json.Key("mfu");
  report.peak_flops > 0 ? json.Double(report.flops_per_s_of_rank() / report.peak_flops)
                        : json.Null();
  json.Key("losses").BeginArray();
  for (const double loss : times.losses) json.Double(loss);
  json.End();
  json.Key("peak_bytes").BeginObject();
  for (std::size_t use = 0; use < times.peak_bytes.size(); ++use) {
    json.Key(trainer::MemoryUseName(static_cast<trainer::MemoryUse>(use)))
        .Int(times.peak_bytes[use]);
  }
  json.End().End();
  return json.Take() + "\n";
}

std::string BenchText(const BenchReport& report) {
  const BenchTimes& times = report.times;
  const auto [fastest, slowest] = std::ranges::minmax(times.step_ms);
  std::uint64_t peak_bytes = 0;
  for (const std::uint64_t bytes : times.peak_bytes) peak_bytes += bytes;
  std::string text = fmt::format("{}: {} ranks, {} tokens a rank in sequences of {}\n",
                                 report.model, report.num_ranks, report.tokens_of_rank, report.seq);
  text += fmt::format("step      {:.1f} ms (median of {}; {:.1f} to {:.1f})\n", times.median_ms(),
                      times.step_ms.size(), fastest, slowest);
  text += fmt::format("speed     {:.0f} tokens/s, {:.3g} TFLOP/s a rank",
                      report.tokens_per_s_of_rank(), report.flops_per_s_of_rank() / 1e12);
  if (report.peak_flops > 0) {
    text += fmt::format(", MFU {:.1f} %", 100 * report.flops_per_s_of_rank() / report.peak_flops);
  }
  text += fmt::format("\nmemory    {:.2f} GiB at most\n",
                      static_cast<double>(peak_bytes) / static_cast<double>(1U << 30U));
  text +=
      fmt::format("loss      {:.6f} at first, {:.6f} at last\n", times.losses.front(), times.losses.back());
  return text;
}

}  // namespace ckpt::train
